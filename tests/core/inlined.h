/* SPDX-License-Identifier: MIT
 *
 * The reads that inline.h compiles into the caller, in the order of clocks.h.
 */
#ifndef FASTCLOCK_TESTS_INLINED_H
#define FASTCLOCK_TESTS_INLINED_H

#include <stdint.h>

#define INLINED_NAMES(each)                                                                        \
    each(vtime64) each(fc_realtime_ns) each(fc_monotonic_ns) each(fc_raw_ns) each(fc_boottime_ns)  \
        each(fc_tai_ns) each(fc_realtime_relaxed_ns) each(fc_monotonic_relaxed_ns)                 \
            each(fc_raw_relaxed_ns) each(fc_realtime_coarse_ns) each(fc_monotonic_coarse_ns)

#ifdef __cplusplus
extern "C" {
#endif

extern uint64_t (*const inlined_from_cxx[])(void);

#ifdef __cplusplus
}
#endif

#endif /* FASTCLOCK_TESTS_INLINED_H */
