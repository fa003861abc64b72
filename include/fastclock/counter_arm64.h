/* SPDX-License-Identifier: MIT
 *
 * The counter of 64-bit Arm: the virtual count of the generic timer, CNTVCT_EL0.
 *
 * Provides what inline.h asks of an architecture. Relies on a kernel of 5.7 or later, whose page
 * says with mode 1 that the count is the clocksource; earlier ones used 0, and the prover refuses
 * them.
 */
#ifndef FASTCLOCK_COUNTER_ARM64_H
#define FASTCLOCK_COUNTER_ARM64_H

#include <stdint.h>

/* VDSO_CLOCKMODE_ARCHTIMER. */
#define FC_MODE_COUNTER_ 1u

/* The count may be narrower than 64 bits, 56 have been seen: every difference is masked. */
#define FC_COUNTER_MASKED_ 1

static inline uint64_t fc_counter_relaxed_(void) {
    uint64_t cycles;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(cycles) : : "memory");
    return cycles;
}

/* ISB: the count is not read before earlier instructions are done. */
static inline uint64_t fc_counter_ordered_(void) {
    uint64_t cycles;
    __asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(cycles) : : "memory");
    return cycles;
}

/* The system register is not memory, so that no load barrier orders it against the second look at
 * the sequence. A load from the stack whose address depends on the count does: the DMB that follows
 * waits for that load, and the load for the count. */
static inline void fc_counter_before_recheck_(uint64_t cycles) {
    uint64_t scratch;
    __asm__ volatile("eor %0, %1, %1\n\tadd %0, sp, %0\n\tldr xzr, [%0]"
                     : "=&r"(scratch)
                     : "r"(cycles)
                     : "memory");
}

#endif /* FASTCLOCK_COUNTER_ARM64_H */
