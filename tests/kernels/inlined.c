/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "inlined.h"

#include <fastclock.h>

#define DEFINE(clock)                                                                              \
    static uint64_t clock(void) {                                                                  \
        return fc_##clock##_ns();                                                                  \
    }

DEFINE(realtime)
DEFINE(monotonic)
DEFINE(raw)
DEFINE(boottime)
DEFINE(tai)
DEFINE(realtime_coarse)
DEFINE(monotonic_coarse)

uint64_t (*const inlined[])(void) = {realtime,        monotonic,       raw, boottime, tai,
                                     realtime_coarse, monotonic_coarse};
