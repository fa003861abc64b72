/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "view.h"

#include <fastclock.h>

#include "kernel_page.h"
#include "timekeep.h"

static atomic_uint shown;
static _Atomic(const struct fc_timekeep_hands *) shown_hands;

uint32_t fc_view_shown(void) {
    return atomic_load_explicit(&shown, memory_order_relaxed);
}

const struct fc_timekeep_hands *fc_view_hands(void) {
    return atomic_load_explicit(&shown_hands, memory_order_relaxed);
}

#ifdef FC_MODE_COUNTER_

/* A block whose sequence is odd and stays so: every look at it ends before it has touched anything
 * else. */
static const uint32_t dead[16] = {1};

#define DEAD ((const unsigned char *)dead)

struct fc_view_v1 fc_view_v1 = {DEAD, DEAD, DEAD, 0, 0, 0, 0};

/* Both pages share `extra`, which a read takes in after the pointer. The counter's clocks of a
 * kernel's page without max_cycles and those of a timekeep page are therefore never shown in one
 * process, not even one after the other: a read that is held up in between would take one with the
 * offsets of the other. Which of them came first stays; the other one is read by call. */
enum { TIMEKEEP_EXTRA = 8, KERNEL_WITHOUT = 1, TIMEKEEP = 2 };
static atomic_uint came_first;

static bool may_show(uint32_t which) {
    unsigned int none = 0;
    return atomic_compare_exchange_strong(&came_first, &none, which) || none == which;
}

void fc_view_set(const struct fc_kernel_page *page, const struct fc_timekeep_hands *hands,
                 uint32_t show) {
    const struct fc_layout *layout = atomic_load_explicit(&page->layout, memory_order_acquire);
    const unsigned char *first = atomic_load_explicit(&page->first, memory_order_relaxed);
    const unsigned char *fine = DEAD, *raw = DEAD, *coarse = DEAD;
    uint32_t extra = 0;
    if ((show & FC_SHOW_TIMEKEEP) && hands && may_show(TIMEKEEP)) {
        extra = TIMEKEEP_EXTRA;
        fine = (const unsigned char *)&hands->fine;
        raw = (const unsigned char *)&hands->raw;
    } else if (layout && (show & FC_SHOW_FINE) &&
               (layout->extra == TIMEKEEP_EXTRA || may_show(KERNEL_WITHOUT))) {
        extra = layout->extra;
        fine = first;
        raw = first + layout->raw;
    }
    if (fine != DEAD)
        __atomic_store_n(&fc_view_v1.extra, extra, __ATOMIC_RELAXED);
    if (layout && (show & FC_SHOW_COARSE)) {
        __atomic_store_n(&fc_view_v1.coarse_extra, layout->extra, __ATOMIC_RELAXED);
        coarse = first;
    }
    /* Release: who sees the block sees `extra` too, and a timehands as it was when it came. */
    __atomic_store_n(&fc_view_v1.fine, fine, __ATOMIC_RELEASE);
    __atomic_store_n(&fc_view_v1.raw, raw, __ATOMIC_RELEASE);
    __atomic_store_n(&fc_view_v1.coarse, coarse, __ATOMIC_RELEASE);
    __atomic_store_n(&fc_view_v1.counter, (show & FC_SHOW_COUNTER) != 0, __ATOMIC_RELEASE);
    atomic_store_explicit(&shown_hands, hands, memory_order_relaxed);
    atomic_store_explicit(&shown, show, memory_order_relaxed);
}

bool fc_view_counter(void) {
    return FC_VIEW_(counter) != 0;
}

#else

void fc_view_set(const struct fc_kernel_page *page, const struct fc_timekeep_hands *hands,
                 uint32_t show) {
    (void)page;
    (void)hands;
    atomic_store_explicit(&shown, show, memory_order_relaxed);
}

bool fc_view_counter(void) {
    return false;
}

#endif
