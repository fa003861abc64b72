/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "check.h"

#include <fastclock.h>

uint64_t check_monotonic_ns(void) {
    return fc_monotonic_ns();
}

uint64_t check_read_ns(int32_t clock) {
    uint64_t ns;
    return fc_read_ns(clock, &ns) == 0 ? ns : FC_NO_TIME;
}
