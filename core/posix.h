/* SPDX-License-Identifier: MIT
 *
 * The one look of inline.h for a caller who wants a struct timespec: what fc_clock_gettime and the
 * clock_gettime of the preloaded library begin with. Only functions that expand in place, so that
 * each of the two is a single function without a call on the fast path.
 */
#ifndef FASTCLOCK_CORE_POSIX_H
#define FASTCLOCK_CORE_POSIX_H

#define FASTCLOCK_INLINE
#include <fastclock.h>
#include <stdbool.h>

enum { FC_NS_PER_S = 1000000000, FC_NS_PER_US = 1000 };

/* Everything that the look does not answer: any clock, any pointer, NULL too. Returns 0, or -1 with
 * errno. */
int fc_posix_gettime_slow(int32_t clock, struct timespec *ts);

#ifdef FC_MODE_COUNTER_

/* Looks at `clock` and stores the time; false, with nothing stored, if a look is not enough. The
 * clocks are told apart by bits, as a jump for each would cost more than the address of a base that
 * is worked out. */
FC_INLINE_ bool fc_posix_look(int32_t clock, int (*counter)(const void *, uint64_t *),
                              struct timespec *ts) {
    const uint32_t coarse = 1u << FC_REALTIME_COARSE | 1u << FC_MONOTONIC_COARSE;
    const uint32_t fine = 1u << FC_REALTIME | 1u << FC_MONOTONIC | 1u << FC_BOOTTIME | 1u << FC_TAI;
    const uint32_t number = (uint32_t)clock;
    uint64_t sec, ns;
    if (FC_UNLIKELY_(number > FC_TAI || !ts))
        return false;
    if (__builtin_expect((fine >> number & 1) != 0, 1)) {
        if (FC_UNLIKELY_(!fc_look_fine_(&fc_view_v1.fine, number, counter, &sec, &ns)))
            return false;
    } else if (coarse >> number & 1) {
        if (FC_UNLIKELY_(!fc_look_coarse_(number, &sec, &ns)))
            return false;
    } else if (number == FC_RAW) {
        if (FC_UNLIKELY_(!fc_look_fine_(&fc_view_v1.raw, FC_RAW, counter, &sec, &ns)))
            return false;
    } else {
        return false;
    }
    /* Most looks fall before the second in which the page was last written is over. */
    if (FC_UNLIKELY_(ns >= FC_NS_PER_S)) {
        sec += ns / FC_NS_PER_S;
        ns %= FC_NS_PER_S;
    }
    /* time_t has 32 bits on some machines; what does not fit is an error, for others to report. */
    if (sizeof ts->tv_sec < sizeof sec && FC_UNLIKELY_(sec > INT32_MAX))
        return false;
    ts->tv_sec = (time_t)sec;
    ts->tv_nsec = (long)ns;
    return true;
}

#define FC_POSIX_ORDERED fc_cpu_counter_ordered_
#define FC_POSIX_RELAXED fc_cpu_counter_relaxed_

#else /* without a counter there is nothing to look at */

#define fc_posix_look(clock, counter, ts) false

#endif

#endif
