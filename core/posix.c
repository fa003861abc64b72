/* SPDX-License-Identifier: MIT
 *
 * The exact stand-ins for the POSIX calls: same values, same errors, same errno.
 */
#define _GNU_SOURCE
#ifndef FC_POSIX_TIME64_
#undef _TIME_BITS /* whatever this build asks for: posix_time64.c has the other width */
#endif
#include "posix.h"

#include "read.h"
#include "vdso.h"

static int fail(int32_t error) {
    errno = -error;
    return -1;
}

/* Without a call of its own: under a clocksource that the look does not know every read comes here.
 */
static inline int32_t read_slow(int32_t clock, struct fc_reading *out) {
    if (!fc_is_ours(clock))
        return fc_sys_gettime(clock, out);
    if (!fc_read_slow((uint32_t)clock, true, out))
        return -ENOSYS;
    if (out->ns >= FC_NS_PER_S) {
        out->sec += out->ns / FC_NS_PER_S;
        out->ns %= FC_NS_PER_S;
    }
    return 0;
}

#ifndef FC_POSIX_TIME64_

int32_t fc_posix_read_slow(int32_t clock, struct fc_reading *out) {
    return read_slow(clock, out);
}

#endif

/* The kernel looks at the clock's number before it looks at the pointer, and so does this. */
static __attribute__((noinline)) int gettime_slow(int32_t clock, struct timespec *ts) {
    struct fc_reading r;
    int32_t error = read_slow(clock, &r);
    if (error == 0)
        error = ts ? fc_posix_store(r, ts) : -EFAULT;
    return error == 0 ? 0 : fail(error);
}

int fc_clock_gettime(int32_t clock, struct timespec *ts) {
    struct fc_reading r;
    if (__builtin_expect(!ts || !fc_posix_look_ordered(clock, &r), 0))
        return gettime_slow(clock, ts);
    if (__builtin_expect(fc_posix_store(r, ts) < 0, 0))
        return fail(-EOVERFLOW);
    return 0;
}

int fc_clock_getres(int32_t clock, struct timespec *res) {
    struct fc_reading r;
    int32_t error = 0;
    if (!fc_is_ours(clock) || !fc_vdso_getres(clock, &r))
        error = fc_sys_getres(clock, &r);
    if (error == 0 && res)
        error = fc_posix_store(r, res);
    return error == 0 ? 0 : fail(error);
}

int fc_gettimeofday(struct timeval *tv, void *tz) {
    struct timespec ts;
    int32_t error;
    if (__builtin_expect(tv != NULL, 1)) {
        if (fc_clock_gettime(FC_REALTIME, &ts) < 0)
            return -1;
        tv->tv_sec = ts.tv_sec;
        tv->tv_usec = (suseconds_t)(ts.tv_nsec / FC_NS_PER_US);
    }
    if (__builtin_expect(tz == NULL, 1))
        return 0;
    error = fc_sys_timezone(tz);
    return error == 0 ? 0 : fail(error);
}

time_t fc_time(time_t *out) {
    struct timespec ts;
    if (fc_clock_gettime(FC_REALTIME_COARSE, &ts) < 0)
        return (time_t)-1;
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}
