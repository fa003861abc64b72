/* SPDX-License-Identifier: MIT
 *
 * The counters that a hypervisor lends its guests on x86: a page says how to turn the time-stamp
 * counter into the hypervisor's own count. kvm-clock (the page of the first virtual processor, a
 * count of nanoseconds) and the reference time of Hyper-V (a count of 100 ns).
 *
 * Each function reads the count once, from a page that is known to be readable, and returns 0 where
 * the page is not marked as usable, is being written at every look, or would make the count run
 * back. Bounded; relies on inline.h.
 */
#ifndef FASTCLOCK_CORE_COUNTER_PV_H
#define FASTCLOCK_CORE_COUNTER_PV_H

#include <fastclock/inline.h>
#include <stdbool.h>

/* Modes of the kernel's page: VDSO_CLOCKMODE_PVCLOCK and VDSO_CLOCKMODE_HVCLOCK. */
#define FC_MODE_PVCLOCK 2u
#define FC_MODE_HVCLOCK 3u

enum {
    /* struct pvclock_vcpu_time_info, by KVM_FEATURE_CLOCKSOURCE2 */
    FC_PVCLOCK_VERSION = 0,      /* u32, odd while the hypervisor writes */
    FC_PVCLOCK_TIMESTAMP = 8,    /* u64, the time-stamp counter at the last update */
    FC_PVCLOCK_SYSTEM_TIME = 16, /* u64, nanoseconds at that moment */
    FC_PVCLOCK_MULT = 24,        /* u32, nanoseconds a (shifted) tick, times 2^32 */
    FC_PVCLOCK_SHIFT = 28,       /* s8, of the ticks, to the left; to the right if negative */
    FC_PVCLOCK_FLAGS = 29,       /* u8 */
    FC_PVCLOCK_STABLE = 1,       /* flag: the page holds for every virtual processor */
    /* the reference TSC page of the Hyper-V specification */
    FC_HVCLOCK_SEQUENCE = 0, /* u32, 0 while the page is not valid */
    FC_HVCLOCK_SCALE = 8,    /* u64, hypervisor's ticks a tick, times 2^64 */
    FC_HVCLOCK_OFFSET = 16,  /* s64 */
    FC_PV_LOOKS_MAX = 64     /* an update takes the hypervisor a fraction of these */
};

/* The upper half of a product of 128 bits. */
static inline uint64_t fc_product_high_(uint64_t a, uint64_t b) {
#ifdef __SIZEOF_INT128__
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)a * b >> 64);
#else
    const uint64_t a0 = a & UINT32_MAX, a1 = a >> 32, b0 = b & UINT32_MAX, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32); /* cannot overflow */
    return a1 * b1 + (middle >> 32) + ((a0 * b1 + (middle & UINT32_MAX)) >> 32);
#endif
}

FC_INLINE_ int fc_pvclock_(const void *page, bool ordered, uint64_t *cycles) {
    const unsigned char *p = (const unsigned char *)page;
    for (int looks = 0; looks < FC_PV_LOOKS_MAX; looks++) {
        const uint32_t version = fc_load_sequence_(p + FC_PVCLOCK_VERSION);
        const uint8_t flags = __atomic_load_n(p + FC_PVCLOCK_FLAGS, __ATOMIC_RELAXED);
        const int8_t shift =
            __atomic_load_n((const int8_t *)p + FC_PVCLOCK_SHIFT, __ATOMIC_RELAXED);
        const uint64_t mult = fc_load32_(p + FC_PVCLOCK_MULT);
        const uint64_t system_time = fc_load64_(p + FC_PVCLOCK_SYSTEM_TIME);
        const uint64_t timestamp = fc_load64_(p + FC_PVCLOCK_TIMESTAMP);
        uint64_t delta = (ordered ? fc_counter_ordered_() : fc_counter_relaxed_()) - timestamp;
        if (FC_UNLIKELY_((version & 1) || fc_sequence_moved_(p + FC_PVCLOCK_VERSION, version))) {
            __builtin_ia32_pause();
            continue;
        }
        /* A difference below zero: the counter is behind the page, on a machine whose counters
         * differ, or because a relaxed read was early. */
        if (FC_UNLIKELY_(!(flags & FC_PVCLOCK_STABLE) || (int64_t)delta < 0 || shift <= -64 ||
                         shift >= 64))
            return 0;
        delta = shift < 0 ? delta >> -shift : delta << shift;
        /* delta * mult >> 32, of which the kernel keeps 64 bits too */
        *cycles = system_time + (delta >> 32) * mult + ((delta & UINT32_MAX) * mult >> 32);
        return (int64_t)*cycles >= 0;
    }
    return 0;
}

FC_INLINE_ int fc_hvclock_(const void *page, bool ordered, uint64_t *cycles) {
    const unsigned char *p = (const unsigned char *)page;
    for (int looks = 0; looks < FC_PV_LOOKS_MAX; looks++) {
        const uint32_t sequence = fc_load_sequence_(p + FC_HVCLOCK_SEQUENCE);
        const uint64_t scale = fc_load64_(p + FC_HVCLOCK_SCALE);
        const uint64_t offset = fc_load64_(p + FC_HVCLOCK_OFFSET);
        const uint64_t ticks = ordered ? fc_counter_ordered_() : fc_counter_relaxed_();
        if (FC_UNLIKELY_(sequence == 0))
            return 0;
        if (FC_UNLIKELY_(fc_sequence_moved_(p + FC_HVCLOCK_SEQUENCE, sequence))) {
            __builtin_ia32_pause();
            continue;
        }
        *cycles = fc_product_high_(ticks, scale) + offset;
        return (int64_t)*cycles >= 0;
    }
    return 0;
}

/* As fc_try_fine_ of inline.h takes them. */
static inline int fc_pvclock_ordered_(const void *page, uint64_t *cycles) {
    return fc_pvclock_(page, true, cycles);
}

static inline int fc_pvclock_relaxed_(const void *page, uint64_t *cycles) {
    return fc_pvclock_(page, false, cycles);
}

static inline int fc_hvclock_ordered_(const void *page, uint64_t *cycles) {
    return fc_hvclock_(page, true, cycles);
}

static inline int fc_hvclock_relaxed_(const void *page, uint64_t *cycles) {
    return fc_hvclock_(page, false, cycles);
}

/* Whether the hypervisor marks the page of `mode` as usable at this moment. */
static inline bool fc_pv_usable_(const void *page, uint32_t mode) {
    const unsigned char *p = (const unsigned char *)page;
    if (mode == FC_MODE_PVCLOCK)
        return __atomic_load_n(p + FC_PVCLOCK_FLAGS, __ATOMIC_RELAXED) & FC_PVCLOCK_STABLE;
    return fc_load32_(p + FC_HVCLOCK_SEQUENCE) != 0;
}

#endif
