/* SPDX-License-Identifier: MIT
 *
 * The exact stand-ins for the POSIX calls: same values, same errors, same errno.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fastclock.h>
#include <string.h>

#include "read.h"
#include "vdso.h"

enum { NS_PER_S = 1000000000, NS_PER_US = 1000 };

static int fail(int32_t error) {
    errno = -error;
    return -1;
}

/* Brings `ns` below a second. A page leaves at most a few seconds in it, for which the subtractions
 * are quicker than a division; more than that is divided, so that nothing can loop for long. */
static void normalise(struct fc_reading *r) {
    if (__builtin_expect(r->ns >= 4ull * NS_PER_S, 0)) {
        r->sec += r->ns / NS_PER_S;
        r->ns %= NS_PER_S;
    }
    while (r->ns >= NS_PER_S) {
        r->ns -= NS_PER_S;
        r->sec++;
    }
}

/* time_t has 32 bits on some machines; the C library there answers EOVERFLOW too. */
static int32_t store(struct fc_reading r, struct timespec *ts) {
    const time_t sec = (time_t)r.sec;
    if ((int64_t)sec != (int64_t)r.sec)
        return -EOVERFLOW;
    ts->tv_sec = sec;
    ts->tv_nsec = (long)r.ns;
    return 0;
}

static int32_t read_any(int32_t clock, struct fc_reading *r) {
    if (!fc_is_ours(clock))
        return fc_sys_gettime(clock, r);
    if (!fc_read((uint32_t)clock, r))
        return -ENOSYS;
    normalise(r);
    return 0;
}

int fc_clock_gettime(int32_t clock, struct timespec *ts) {
    struct fc_reading r;
    int32_t error;
    if (!ts) /* the kernel looks at the clock's number first */
        return fail((error = read_any(clock, &r)) < 0 ? error : -EFAULT);
    error = read_any(clock, &r);
    if (error == 0)
        error = store(r, ts);
    return error < 0 ? fail(error) : 0;
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
    if (tz) /* obsolete, and not on the page in one place */
        return gettimeofday(tv, tz);
    if (!tv)
        return 0;
    if (fc_clock_gettime(FC_REALTIME, &ts) < 0)
        return -1;
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = (suseconds_t)(ts.tv_nsec / NS_PER_US);
    return 0;
}

time_t fc_time(time_t *out) {
    struct timespec ts;
    if (fc_clock_gettime(FC_REALTIME_COARSE, &ts) < 0)
        return (time_t)-1;
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}
