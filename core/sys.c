/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "sys.h"

#include <sys/time.h>
#include <time.h>

#ifdef __linux__

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel's own errors come back as negative numbers; errno stays as the caller left it. */
static long call(long number, long a, long b, long c, long d) {
    const int saved = errno;
    long result = syscall(number, a, b, c, d);
    if (result == -1)
        result = -errno;
    errno = saved;
    return result;
}

/* The kernel's 64-bit timespec, and the one of 32-bit calls before 2038. */
struct time64 {
    int64_t sec;
    int64_t nsec;
};

struct time_long {
    long sec;
    long nsec;
};

/* `number64` is the call that takes 64-bit times where `number` does not, or 0. */
static int32_t time_call(long number, long number64, int32_t clock, struct fc_reading *out) {
    struct time_long narrow;
    long result;
    if (number64) {
        struct time64 wide;
        result = call(number64, clock, (long)&wide, 0, 0);
        if (result == 0) {
            out->sec = (uint64_t)wide.sec;
            out->ns = (uint64_t)wide.nsec;
        }
        if (result != -ENOSYS) /* kernels before 5.1 have the narrow call only */
            return (int32_t)result;
    }
    result = call(number, clock, (long)&narrow, 0, 0);
    if (result == 0) {
        out->sec = (uint64_t)narrow.sec;
        out->ns = (uint64_t)narrow.nsec;
    }
    return (int32_t)result;
}

#ifdef SYS_clock_gettime64
enum { GETTIME64 = SYS_clock_gettime64, GETRES64 = SYS_clock_getres_time64 };
#else
enum { GETTIME64 = 0, GETRES64 = 0 };
#endif

int32_t fc_sys_gettime(int32_t clock, struct fc_reading *out) {
    return time_call(SYS_clock_gettime, GETTIME64, clock, out);
}

int32_t fc_sys_getres(int32_t clock, struct fc_reading *out) {
    return time_call(SYS_clock_getres, GETRES64, clock, out);
}

int32_t fc_sys_getcpu(uint32_t *cpu, uint32_t *node) {
    return (int32_t)call(SYS_getcpu, (long)cpu, (long)node, 0, 0);
}

int32_t fc_sys_timezone(void *zone) {
    return (int32_t)call(SYS_gettimeofday, 0, (long)zone, 0, 0);
}

/* rt_sigprocmask copies the set in before it looks at `how`: EFAULT for what cannot be read, EINVAL
 * for the impossible `how`. It needs no descriptor and changes nothing. */
bool fc_sys_readable(const void *at) {
    const long impossible_how = -1;
    return call(SYS_rt_sigprocmask, impossible_how, (long)at, 0, 8) == -EINVAL;
}

bool fc_sys_block_signals(uint64_t *former) {
    const uint64_t all = UINT64_MAX;
    return call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)former, 8) == 0;
}

void fc_sys_restore_signals(uint64_t former) {
    call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&former, 0, 8);
}

int32_t fc_sys_counter_allowed(void) {
#ifdef PR_GET_TSC
    int setting = 0;
    const long result = call(SYS_prctl, PR_GET_TSC, (long)&setting, 0, 0);
    if (result == -EINVAL)
        return 1;
    return result < 0 ? (int32_t)result : setting == PR_TSC_ENABLE;
#else
    return 1;
#endif
}

int32_t fc_sys_open(const char *path) {
    return (int32_t)call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_CLOEXEC, 0);
}

int64_t fc_sys_read(int32_t descriptor, void *buffer, uint64_t size) {
    return call(SYS_read, descriptor, (long)buffer, (long)size, 0);
}

void fc_sys_close(int32_t descriptor) {
    call(SYS_close, descriptor, 0, 0, 0);
}

#else /* no Linux: the raw calls are nobody's business there; `libc` serves */

int32_t fc_sys_gettime(int32_t clock, struct fc_reading *out) {
    (void)clock;
    (void)out;
    return -ENOSYS;
}

int32_t fc_sys_getres(int32_t clock, struct fc_reading *out) {
    (void)clock;
    (void)out;
    return -ENOSYS;
}

int32_t fc_sys_getcpu(uint32_t *cpu, uint32_t *node) {
    (void)cpu;
    (void)node;
    return -ENOSYS;
}

int32_t fc_sys_timezone(void *zone) {
    return gettimeofday(NULL, zone) == 0 ? 0 : -errno;
}

bool fc_sys_readable(const void *at) {
    (void)at;
    return false;
}

bool fc_sys_block_signals(uint64_t *former) {
    (void)former;
    return false;
}

void fc_sys_restore_signals(uint64_t former) {
    (void)former;
}

int32_t fc_sys_counter_allowed(void) {
    return 1;
}

int32_t fc_sys_open(const char *path) {
    (void)path;
    return -ENOSYS;
}

int64_t fc_sys_read(int32_t descriptor, void *buffer, uint64_t size) {
    (void)descriptor;
    (void)buffer;
    (void)size;
    return -ENOSYS;
}

void fc_sys_close(int32_t descriptor) {
    (void)descriptor;
}

#endif
