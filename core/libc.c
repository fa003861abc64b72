/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "libc.h"

#include <fastclock.h>

#include "vdso.h"

bool fc_libc_gettime(uint32_t clock, struct fc_reading *out) {
#ifdef FASTCLOCK_NO_LIBC
    /* Built into the preloaded library, whose own clock_gettime this call would be. */
    return fc_vdso_gettime((int32_t)clock, out) || fc_sys_gettime((int32_t)clock, out) == 0;
#else
    const int saved = errno;
    struct timespec time;
    clockid_t id;
    int result;
    switch (clock) {
    case FC_REALTIME: id = CLOCK_REALTIME; break;
    case FC_MONOTONIC: id = CLOCK_MONOTONIC; break;
#ifdef CLOCK_MONOTONIC_RAW
    case FC_RAW: id = CLOCK_MONOTONIC_RAW; break;
#endif
#ifdef CLOCK_REALTIME_COARSE
    case FC_REALTIME_COARSE: id = CLOCK_REALTIME_COARSE; break;
    case FC_MONOTONIC_COARSE: id = CLOCK_MONOTONIC_COARSE; break;
#endif
#ifdef CLOCK_BOOTTIME
    case FC_BOOTTIME: id = CLOCK_BOOTTIME; break;
#endif
#ifdef CLOCK_TAI
    case FC_TAI: id = CLOCK_TAI; break;
#endif
    default: return false;
    }
    result = clock_gettime(id, &time);
    errno = saved;
    if (result != 0)
        return false;
    out->sec = (uint64_t)time.tv_sec;
    out->ns = (uint64_t)time.tv_nsec;
    return true;
#endif
}
