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

#include "sys.h"

#pragma GCC visibility push(hidden)

enum { FC_NS_PER_S = 1000000000, FC_NS_PER_US = 1000 };

/* Reads any clock that a look does not answer, the kernel's own among them, and brings `ns` below a
 * second. 0 or a negative errno. */
int32_t fc_posix_read_slow(int32_t clock, struct fc_reading *out);

#ifdef FC_MODE_COUNTER_

/* Looks at `clock`; false if a look is not enough. The clocks are told apart by bits, as a jump for
 * each would cost more than to work out the address of a base. */
FC_INLINE_ bool fc_posix_look_(int32_t clock, int (*counter)(const void *, uint64_t *),
                               struct fc_reading *out) {
    const uint32_t fine = 1u << FC_REALTIME | 1u << FC_MONOTONIC | 1u << FC_BOOTTIME | 1u << FC_TAI;
    const uint32_t coarse = 1u << FC_REALTIME_COARSE | 1u << FC_MONOTONIC_COARSE;
    const uint32_t number = (uint32_t)clock;
    if (FC_UNLIKELY_(number > FC_TAI))
        return false;
    if (coarse >> number & 1) {
        if (FC_UNLIKELY_(!fc_look_coarse_(number, &out->sec, &out->ns)))
            return false;
    } else if (fine >> number & 1) {
        if (FC_UNLIKELY_(!fc_look_fine_(&fc_view_v1.fine, number, counter, &out->sec, &out->ns)))
            return false;
    } else if (number == FC_RAW) {
        if (FC_UNLIKELY_(!fc_look_fine_(&fc_view_v1.raw, FC_RAW, counter, &out->sec, &out->ns)))
            return false;
    } else {
        return false;
    }
    /* Most looks fall before the second in which the page was last written is over. */
    if (FC_UNLIKELY_(out->ns >= FC_NS_PER_S)) {
        out->sec += out->ns / FC_NS_PER_S;
        out->ns %= FC_NS_PER_S;
    }
    return true;
}

/* The second of FC_REALTIME_COARSE alone: one word, which needs no second look at the sequence on a
 * machine that loads it at once. An odd sequence is a page that is being written, or no page. */
FC_INLINE_ bool fc_posix_look_second_(uint64_t *sec) {
    const unsigned char *block = FC_VIEW_(coarse);
    const uint32_t extra = __atomic_load_n(&fc_view_v1.coarse_extra, __ATOMIC_RELAXED);
    if (FC_UNLIKELY_(fc_load_sequence_(block) & 1))
        return false;
    *sec = fc_load64_(block + extra + FC_BLOCK_BASE_ + FC_REALTIME_COARSE * FC_BLOCK_BASE_SIZE_);
    return true;
}

#define fc_posix_look_ordered(clock, out) fc_posix_look_(clock, fc_cpu_counter_ordered_, out)
#define fc_posix_look_relaxed(clock, out) fc_posix_look_(clock, fc_cpu_counter_relaxed_, out)

#else /* without a counter there is nothing to look at */

#define fc_posix_look_ordered(clock, out) false
#define fc_posix_look_relaxed(clock, out) false

#endif

/* Stores what fits: time_t has 32 bits on some machines, and the C library answers EOVERFLOW there
 * too. 0 or a negative errno. */
static inline __attribute__((always_inline)) int32_t fc_posix_store(struct fc_reading r,
                                                                    struct timespec *ts) {
    const time_t sec = (time_t)r.sec;
    if (sizeof sec < sizeof r.sec && (int64_t)sec != (int64_t)r.sec)
        return -EOVERFLOW;
    ts->tv_sec = sec;
    ts->tv_nsec = (long)r.ns;
    return 0;
}

#pragma GCC visibility pop

#endif
