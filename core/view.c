/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "view.h"

#include <fastclock.h>

#include "kernel_page.h"

static atomic_uint shown;

uint32_t fc_view_shown(void) {
    return atomic_load_explicit(&shown, memory_order_relaxed);
}

#ifdef FC_MODE_COUNTER_

/* A block whose sequence is odd and stays so: every look at it ends before it has touched anything
 * else. */
static const uint32_t dead[16] = {1};

#define DEAD ((const unsigned char *)dead)

struct fc_view_v1 fc_view_v1 = {DEAD, DEAD, DEAD, 0, 0};

void fc_view_set(const struct fc_kernel_page *page, uint32_t show) {
    const struct fc_layout *layout = atomic_load_explicit(&page->layout, memory_order_acquire);
    const unsigned char *first = atomic_load_explicit(&page->first, memory_order_relaxed);
    const bool fine = layout && (show & FC_SHOW_FINE), coarse = layout && (show & FC_SHOW_COARSE);
    if (layout)
        __atomic_store_n(&fc_view_v1.extra, layout->extra, __ATOMIC_RELAXED);
    /* Release: who sees the block sees `extra` too. */
    __atomic_store_n(&fc_view_v1.fine, fine ? first : DEAD, __ATOMIC_RELEASE);
    __atomic_store_n(&fc_view_v1.raw, fine ? first + layout->raw : DEAD, __ATOMIC_RELEASE);
    __atomic_store_n(&fc_view_v1.coarse, coarse ? first : DEAD, __ATOMIC_RELEASE);
    __atomic_store_n(&fc_view_v1.counter, (show & FC_SHOW_COUNTER) != 0, __ATOMIC_RELEASE);
    atomic_store_explicit(&shown, show, memory_order_relaxed);
}

bool fc_view_counter(void) {
    return FC_VIEW_(counter) != 0;
}

#else

void fc_view_set(const struct fc_kernel_page *page, uint32_t show) {
    (void)page;
    atomic_store_explicit(&shown, show, memory_order_relaxed);
}

bool fc_view_counter(void) {
    return false;
}

#endif
