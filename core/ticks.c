/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "ticks.h"

#include <fastclock.h>

#include "select.h"

static const uint64_t ns_per_s = 1000000000;

/* The rate, ns = ticks * mult >> shift, as one word: mult in the low half, shift above it. 0: not
 * known yet. It holds for the choice under which it was found, by that one's number. */
static _Atomic uint64_t scale;
static atomic_uint scale_choice;

static uint64_t pack(uint32_t mult, uint32_t shift) {
    return (uint64_t)shift << 32 | mult;
}

#ifdef FC_MODE_COUNTER_

/* A reading of FC_RAW and the counter at that moment: between two readings of the counter, the
 * narrowest pair of several, so that an interruption in between does not count. */
static bool pair(uint64_t *ticks, uint64_t *ns) {
    enum { TRIES = 32 };
    uint64_t narrowest = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        struct fc_reading reading;
        const uint64_t before = fc_counter_ordered_();
        if (fc_sys_gettime(FC_RAW, &reading) < 0)
            return false;
        const uint64_t after = fc_counter_ordered_();
        if (after > before && after - before < narrowest) {
            narrowest = after - before;
            *ticks = before + narrowest / 2;
            *ns = fc_reading_count(reading);
        }
    }
    return narrowest != UINT64_MAX;
}

/* Measures over 20 ms. 0 if what comes out belongs to no counter. */
static uint64_t measure(void) {
    const uint64_t long_enough_ns = 20000000, hz_min = 500000, hz_max = 100 * ns_per_s;
    uint64_t ticks0 = 0, ticks1 = 0, ns0 = 0, ns1 = 0, hz, mult;
    uint32_t shift = 32;
    if (!pair(&ticks0, &ns0))
        return 0;
    do {
        if (!pair(&ticks1, &ns1))
            return 0;
    } while (ns1 - ns0 < long_enough_ns);
    if (ticks1 <= ticks0)
        return 0;
    /* The measured span is a fraction of a second up to one interruption: no overflow below 18 s.
     */
    hz = (ticks1 - ticks0) * ns_per_s / (ns1 - ns0);
    if (ns1 - ns0 > 4 * ns_per_s || hz < hz_min || hz > hz_max)
        return 0;
    /* mult = ns * 2^shift / ticks, with the largest shift that leaves it below 2^32 */
    for (; shift > 0; shift--) {
        mult = ((ns1 - ns0) << shift) / (ticks1 - ticks0);
        if ((ns1 - ns0) <= UINT64_MAX >> shift && mult <= UINT32_MAX)
            return pack((uint32_t)mult, shift);
    }
    return 0;
}

/* The kernel's own scale, if its page is trusted and means this counter. */
static uint64_t kernel_scale(void) {
    uint32_t mult, shift;
    if ((fc_choice() & FC_CHOICE_PAGE_FINE) &&
        (atomic_load(&fc_page.proved) & (FC_WAY_COUNTER | FC_WAY_COUNTER_NAMESPACE)) &&
        fc_kernel_page_scale(&fc_page, &mult, &shift))
        return pack(mult, shift);
    return 0;
}

/* Release: who sees the rate sees its number or a later one, which costs a second look at most. */
static void keep(uint64_t s, unsigned int number) {
    atomic_store_explicit(&scale_choice, number, memory_order_relaxed);
    atomic_store_explicit(&scale, s, memory_order_release);
}

static uint64_t known_scale(void) {
    unsigned int number;
    uint64_t s;
    if (!fc_choice_counter())
        return pack(1, 0); /* the ticks are nanoseconds */
    number = fc_choice_count();
    s = atomic_load_explicit(&scale, memory_order_acquire);
    if (!s || atomic_load_explicit(&scale_choice, memory_order_relaxed) != number) {
        s = kernel_scale();
        keep(s, number);
    }
    return s;
}

static uint64_t any_scale(void) {
    const unsigned int number = fc_choice_count();
    uint64_t s = known_scale();
    if (!s) {
        s = measure();
        keep(s, number);
    }
    if (!s) { /* no rate, no counter: from here on the ticks are nanoseconds */
        fc_choice_refuse_counter();
        s = pack(1, 0);
    }
    return s;
}

#else

static uint64_t known_scale(void) {
    return pack(1, 0);
}

static uint64_t any_scale(void) {
    return known_scale();
}

#endif

static uint64_t scale_hz(uint64_t s) {
    const uint32_t mult = (uint32_t)s, shift = (uint32_t)(s >> 32);
    return s ? ((ns_per_s << shift) + mult / 2) / mult : 0;
}

uint64_t fc_ticks_hz(void) {
    return scale_hz(any_scale());
}

uint64_t fc_ticks_hz_known(void) {
    return scale_hz(known_scale());
}

uint64_t fc_ticks_to_ns(uint64_t ticks) {
    const uint64_t s = any_scale();
    return fc_ticks_scaled(ticks, (uint32_t)s, (uint32_t)(s >> 32));
}
