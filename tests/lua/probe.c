/* SPDX-License-Identifier: MIT
 *
 * probe: what the Lua tests and benchmarks need from C. The kernel's own answers, by raw system
 * call, so that a reading can be held between two of them; and a function that does nothing.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "compat.h"

static struct timespec now(lua_State *L) {
    struct timespec time;
    if (syscall(SYS_clock_gettime, (clockid_t)luaL_checkinteger(L, 1), &time) != 0)
        luaL_error(L, "clock_gettime: %s", strerror(errno));
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

/* For LuaJIT's FFI. */
__attribute__((visibility("default"))) uint64_t probe_empty(void);

uint64_t probe_empty(void) {
    return 0;
}

static const luaL_Reg functions[] = {
    {"syscall_ns", syscall_ns}, {"syscall_pair", syscall_pair}, {"empty", empty}, {NULL, NULL}};

int luaopen_probe(lua_State *L);

int luaopen_probe(lua_State *L) {
    lua_newtable(L);
    compat_set_functions(L, functions);
    return 1;
}
