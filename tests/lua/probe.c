/* SPDX-License-Identifier: MIT
 *
 * probe: what the Lua tests and benchmarks need from C. The kernel's own answers, by raw system
 * call, so that a reading can be held between two of them; a function that does nothing; and two
 * ways to make a process worse.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "compat.h"

static int failed(lua_State *L, const char *what) {
    return luaL_error(L, "%s: %s", what, strerror(errno));
}

static struct timespec now(lua_State *L) {
    struct timespec time;
    if (syscall(SYS_clock_gettime, (clockid_t)luaL_checkinteger(L, 1), &time) != 0)
        failed(L, "clock_gettime");
    return time;
}

/* A clock by its number, as a count of the same kind as the module's. */
static int syscall_ns(lua_State *L) {
    const struct timespec time = now(L);
    compat_push_count(L, (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec);
    return 1;
}

/* The same as seconds and nanoseconds. */
static int syscall_pair(lua_State *L) {
    const struct timespec time = now(L);
    compat_push_count(L, (uint64_t)time.tv_sec);
    compat_push_count(L, (uint64_t)time.tv_nsec);
    return 2;
}

static int empty(lua_State *L) {
    (void)L;
    return 0;
}

/* The same for LuaJIT's FFI; the count is exact there, and -1 if the clock cannot be read. */
uint64_t probe_empty(void);
int64_t probe_syscall_ns(int32_t clock);

uint64_t probe_empty(void) {
    return 0;
}

int64_t probe_syscall_ns(int32_t clock) {
    struct timespec time;
    if (syscall(SYS_clock_gettime, clock, &time) != 0)
        return -1;
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* From here on the kernel refuses this thread's clock calls with EPERM. */
static int refuse_clock_calls(lua_State *L) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return failed(L, "PR_SET_NO_NEW_PRIVS");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return failed(L, "PR_SET_SECCOMP");
    return 0;
}

/* From here on an instruction that reads the counter kills this thread. */
static int disable_counter(lua_State *L) {
    if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0) != 0)
        return failed(L, "PR_SET_TSC");
    return 0;
}

static const luaL_Reg functions[] = {{"syscall_ns", syscall_ns},
                                     {"syscall_pair", syscall_pair},
                                     {"empty", empty},
                                     {"refuse_clock_calls", refuse_clock_calls},
                                     {"disable_counter", disable_counter},
                                     {NULL, NULL}};

int luaopen_probe(lua_State *L);

int luaopen_probe(lua_State *L) {
    lua_newtable(L);
    compat_set_functions(L, functions);
    return 1;
}
