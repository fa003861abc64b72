/* SPDX-License-Identifier: MIT
 *
 * The exact stand-ins for the POSIX calls: same values, same errors, same errno.
 */
#define _GNU_SOURCE
#include "posix.h"

#include <errno.h>

#include "read.h"
#include "vdso.h"

static int fail(int32_t error) {
    errno = -error;
    return -1;
}

/* time_t has 32 bits on some machines; the C library there answers EOVERFLOW too. */
static int32_t store(struct fc_reading r, struct timespec *ts) {
    const uint64_t sec = r.sec + r.ns / FC_NS_PER_S;
    const time_t narrow = (time_t)sec;
    if ((int64_t)narrow != (int64_t)sec)
        return -EOVERFLOW;
    ts->tv_sec = narrow;
    ts->tv_nsec = (long)(r.ns % FC_NS_PER_S);
    return 0;
}

/* The kernel looks at the clock's number before it looks at the pointer, and so does this. */
__attribute__((cold, noinline)) int fc_posix_gettime_slow(int32_t clock, struct timespec *ts) {
    struct fc_reading r;
    int32_t error = 0;
    if (!fc_is_ours(clock))
        error = fc_sys_gettime(clock, &r);
    else if (!fc_read((uint32_t)clock, &r))
        error = -ENOSYS;
    if (error == 0)
        error = ts ? store(r, ts) : -EFAULT;
    return error < 0 ? fail(error) : 0;
}

int fc_clock_gettime(int32_t clock, struct timespec *ts) {
    if (__builtin_expect(fc_posix_look(clock, FC_POSIX_ORDERED, ts), 1))
        return 0;
    return fc_posix_gettime_slow(clock, ts);
}

int fc_clock_getres(int32_t clock, struct timespec *res) {
    struct fc_reading r;
    int32_t error = 0;
    if (!fc_is_ours(clock) || !fc_vdso_getres(clock, &r))
        error = fc_sys_getres(clock, &r);
    if (error == 0 && res)
        error = store(r, res);
    return error < 0 ? fail(error) : 0;
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
    return error < 0 ? fail(error) : 0;
}

time_t fc_time(time_t *out) {
    struct timespec ts;
    if (fc_clock_gettime(FC_REALTIME_COARSE, &ts) < 0)
        return (time_t)-1;
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}
