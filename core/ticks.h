/* SPDX-License-Identifier: MIT
 *
 * The counter as a clock of its own: its rate.
 */
#ifndef FASTCLOCK_CORE_TICKS_H
#define FASTCLOCK_CORE_TICKS_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* fc_ticks_hz if it is known without measuring, else 0. */
uint64_t fc_ticks_hz_known(void);

#pragma GCC visibility pop

/* ticks * mult >> shift for a shift up to 63: rounded down, UINT64_MAX where it does not fit. */
static inline uint64_t fc_ticks_scaled(uint64_t ticks, uint32_t mult, uint32_t shift) {
    /* 96 bits, in two parts: high * 2^32 + the low half of low */
    const uint64_t low = (ticks & UINT32_MAX) * mult;
    const uint64_t high = (ticks >> 32) * mult + (low >> 32);
    if (shift >= 32)
        return high >> (shift - 32);
    if (high >> (32 + shift))
        return UINT64_MAX;
    return high << (32 - shift) | (low & UINT32_MAX) >> shift;
}

#endif
