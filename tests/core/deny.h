/* SPDX-License-Identifier: MIT
 *
 * Forbids system calls to this process for good, by a seccomp filter. Written out, since libseccomp
 * is packaged neither for -m32 nor for musl, and a filter that compares numbers is a dozen lines.
 */
#ifndef FASTCLOCK_TESTS_DENY_H
#define FASTCLOCK_TESTS_DENY_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "check.h"

enum { DENY_MAX = 32 };

/* action: SECCOMP_RET_ERRNO | an errno, SECCOMP_RET_TRAP (SIGSYS) or SECCOMP_RET_KILL_PROCESS. */
static inline void deny_calls(const int *numbers, int count, uint32_t action) {
    struct sock_filter filter[2 * DENY_MAX + 2];
    struct sock_fprog program = {0, filter};
    CHECK(count <= DENY_MAX, "%d numbers", count);
    filter[program.len++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count; i++) {
        filter[program.len++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)numbers[i], 0, 1);
        filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
    }
    filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* Every system call that tells a time. */
static inline void deny_time_calls(uint32_t action) {
    static const int numbers[] = {
        SYS_clock_gettime,
        SYS_clock_getres,
        SYS_gettimeofday,
#ifdef SYS_time
        SYS_time,
#endif
#ifdef SYS_clock_gettime64
        SYS_clock_gettime64,
        SYS_clock_getres_time64,
#endif
    };
    deny_calls(numbers, sizeof numbers / sizeof *numbers, action);
}

#endif /* FASTCLOCK_TESTS_DENY_H */
