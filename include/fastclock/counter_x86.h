/* SPDX-License-Identifier: MIT
 *
 * The counter of x86: the time-stamp counter (TSC), in 64-bit and 32-bit code.
 *
 * Provides what inline.h asks of an architecture. Relies on a TSC that the kernel trusts, which the
 * caller has to know from the page's mode. Never reads anything else.
 */
#ifndef FASTCLOCK_COUNTER_X86_H
#define FASTCLOCK_COUNTER_X86_H

#include <stdint.h>

/* The page's mode in which this counter is the kernel's own (VDSO_CLOCKMODE_TSC). */
#define FC_MODE_COUNTER_ 1u

/* The kernel declares the TSC with a mask of 64 bits, and the prover insists on it: no masking. */
#define FC_COUNTER_MASKED_ 0

/* The two halves are added, not or-ed: the compiler then takes `last` from the low half while the
 * high one is still being shifted, which makes an ordered read a cycle shorter. */

/* Relaxed: the processor may read the counter before earlier instructions are done. "memory" keeps
 * the compiler, not the processor, from moving accesses to the page across the read. */
static inline uint64_t fc_counter_relaxed_(void) {
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high) : : "memory");
    return ((uint64_t)high << 32) + low;
}

/* Ordered: LFENCE does not let RDTSC start before every earlier instruction has completed. It is
 * what the kernel's vDSO executes; RDTSCP gives the same order but is absent in some guests. */
static inline uint64_t fc_counter_ordered_(void) {
    uint32_t low, high;
    __asm__ volatile("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
    return ((uint64_t)high << 32) + low;
}

/* Between reading the counter and looking at the sequence again x86 needs no instruction: loads are
 * not reordered with loads, and RDTSC that completes a few cycles late can only see a later count,
 * by less than the slope can change. */
static inline void fc_counter_before_recheck_(uint64_t cycles) {
    (void)cycles;
    __asm__ volatile("" : : : "memory");
}

#endif /* FASTCLOCK_COUNTER_X86_H */
