/* SPDX-License-Identifier: MIT
 *
 * The seam: found before the real header of this name, it puts a counter that a test sets in the
 * place of the processor's. Nothing of it is in the library that is shipped.
 */
#ifndef FASTCLOCK_COUNTER_X86_H
#define FASTCLOCK_COUNTER_X86_H

#include <stdint.h>

#define FC_MODE_COUNTER_ 1u

/* Both kinds of architecture are tried: those that mask the count, and x86, which does not. */
#define FC_COUNTER_MASKED_ WORLD_MASKED

#ifdef __cplusplus
extern "C"
#endif
    uint64_t
    world_counter(void);

static inline uint64_t fc_counter_relaxed_(void) {
    return world_counter();
}

static inline uint64_t fc_counter_ordered_(void) {
    return world_counter();
}

static inline void fc_counter_before_recheck_(uint64_t cycles) {
    (void)cycles;
    __asm__ volatile("" : : : "memory");
}

#endif /* FASTCLOCK_COUNTER_X86_H */
