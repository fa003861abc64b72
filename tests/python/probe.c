/* SPDX-License-Identifier: MIT
 *
 * What the Python tests need done in C: a million brackets, one read step by step, refusals by the
 * kernel. Built by conftest.py. Includes nothing of fastclock: it judges from outside.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

#include "../bracket.h"
#include "probe.h"

typedef uint64_t read_function(void);

/* ---- Brackets ------------------------------------------------------------------------------ */

void probe_brackets(int32_t clock, uintptr_t read, uintptr_t read_number, uint64_t rounds,
                    uint64_t early_ns, int32_t control, struct probe_brackets *out) {
    const struct bracket_setup setup = {
        .clock = clock,
        .read = (read_function *)read,
        .read_number = (int32_t(*)(int32_t, uint64_t *))read_number,
        .early_ns = early_ns,
        .no_control = !control,
    };
    struct bracket b = {0};
    bracket_run(&b, &setup, rounds);
    *out = (struct probe_brackets){
        .rounds = b.rounds,
        .voided = b.voided,
        .good = b.ours.good,
        .outside = b.ours.outside,
        .back = b.ours.back,
        .errors = b.ours.errors,
        .control_good = b.control.good,
        .control_outside = b.control.outside,
        .first_round = b.ours.first.round,
        .first_before = b.ours.first.before,
        .first_ours = b.ours.first.ours,
        .first_after = b.ours.first.after,
        .first_error = b.ours.error,
        .refused = b.refused,
    };
}

int32_t probe_syscall_ns(int32_t clock, uint64_t *ns) {
    return bracket_syscall_ns(clock, ns);
}

/* ---- Step by step -------------------------------------------------------------------------- */

#ifndef __x86_64__
#error "probe_steps knows the registers and instructions of x86-64 alone"
#endif

struct range {
    uint64_t start, end;
};

static struct range vdso_range(void) {
    struct range range = {0, 0};
    char line[256];
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "[vdso]"))
            sscanf(line, "%" SCNx64 "-%" SCNx64, &range.start, &range.end);
    if (maps)
        fclose(maps);
    return range;
}

/* In the child: one call to settle what a first one does, one between two breakpoints. */
static void be_traced(read_function *read) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(errno);
    read();
    __asm__ volatile("int3" ::: "memory");
    read();
    __asm__ volatile("int3" ::: "memory");
    _exit(0);
}

static int starts_with(uint64_t code, uint64_t bytes, int count) {
    return (code & (UINT64_MAX >> (64 - 8 * count))) == bytes;
}

/* Steps until the second breakpoint. */
static int32_t follow(pid_t child, struct probe_steps *out) {
    const struct range vdso = vdso_range();
    const uint64_t libc = (uint64_t)(uintptr_t)dlsym(RTLD_DEFAULT, "clock_gettime");
    const uint64_t breakpoint = 0xcc, syscall_ = 0x050f, rdtsc = 0x310f, rdtscp = 0xf9010f;
    int status;
    if (waitpid(child, &status, 0) != child)
        return -errno;
    if (WIFEXITED(status))
        return -WEXITSTATUS(status);
    if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
        return -ECHILD;
    for (;;) {
        struct user_regs_struct at;
        uint64_t code;
        if (ptrace(PTRACE_GETREGS, child, NULL, &at) != 0)
            return -errno;
        errno = 0;
        code = (uint64_t)ptrace(PTRACE_PEEKTEXT, child, (void *)(uintptr_t)at.rip, NULL);
        if (errno != 0)
            return -errno;
        if (starts_with(code, breakpoint, 1))
            return 0;
        const int in_vdso = at.rip >= vdso.start && at.rip < vdso.end;
        out->instructions++;
        out->vdso += (uint64_t)in_vdso;
        out->libc += at.rip == libc;
        out->syscalls += (uint64_t)starts_with(code, syscall_, 2);
        if (!in_vdso)
            out->counter += (uint64_t)(starts_with(code, rdtsc, 2) || starts_with(code, rdtscp, 3));
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 ||
            waitpid(child, &status, 0) != child)
            return -errno;
        if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
            return -ECHILD;
    }
}

int32_t probe_steps(uintptr_t read, struct probe_steps *out) {
    const pid_t child = fork();
    int32_t error;
    memset(out, 0, sizeof *out);
    if (child < 0)
        return -errno;
    if (child == 0)
        be_traced((read_function *)read);
    error = follow(child, out);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return error;
}

/* ---- Refusals ------------------------------------------------------------------------------ */

int32_t probe_counter(int32_t readable) {
    const int setting = readable ? PR_TSC_ENABLE : PR_TSC_SIGSEGV;
    return prctl(PR_SET_TSC, setting, 0, 0, 0) == 0 ? 0 : -errno;
}

int32_t probe_refuse_clock_gettime(int32_t error) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int32_t result;
    if (!filter)
        return -ENOMEM;
    result = seccomp_rule_add(filter, SCMP_ACT_ERRNO((uint16_t)error), SCMP_SYS(clock_gettime), 0);
    if (result == 0)
        result = seccomp_load(filter);
    seccomp_release(filter);
    return result;
}
