/* SPDX-License-Identifier: MIT
 *
 * What the inlined reads look at: fc_view_v1, which is turned to the kernel's page, to a timehands
 * of the timekeep page, or dead.
 */
#ifndef FASTCLOCK_CORE_VIEW_H
#define FASTCLOCK_CORE_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct fc_kernel_page;
struct fc_timekeep_hands;

/* What of the page may be read by one look without asking anybody: a set of bits. */
enum {
    FC_SHOW_FINE = 1,
    FC_SHOW_COARSE = 2,
    FC_SHOW_COUNTER = 4,
    FC_SHOW_TIMEKEEP = 8 /* the clocks that need the counter come from `hands` */
};

/* Turns the view to `page`, as far as `show` goes, and to `hands`, which may be NULL. Stores alone;
 * readers need no notice. */
void fc_view_set(const struct fc_kernel_page *page, const struct fc_timekeep_hands *hands,
                 uint32_t show);

/* What is shown now. */
uint32_t fc_view_shown(void);
const struct fc_timekeep_hands *fc_view_hands(void);

/* Whether the counter may be read, as fc_view_set was last told. */
bool fc_view_counter(void);

#pragma GCC visibility pop

#endif
