/* SPDX-License-Identifier: MIT
 *
 * The choice of a source for the process: made once, at the first read or when asked for.
 */
#ifndef FASTCLOCK_CORE_SELECT_H
#define FASTCLOCK_CORE_SELECT_H

#include "kernel_page.h"

#pragma GCC visibility push(hidden)

/* A choice is one word, so that it changes at once: a source, and what is read from the page. */
enum {
    FC_CHOICE_SOURCE = 0xff, /* mask of enum fc_source */
    FC_CHOICE_MADE = 0x100,
    FC_CHOICE_PAGE_FINE = 0x200,
    FC_CHOICE_PAGE_COARSE = 0x400
};

/* The choice in force; makes it if nobody has. */
uint32_t fc_choice(void);

/* The kernel's page, of which a choice says whether it is read. */
extern struct fc_kernel_page fc_page;

/* Whether this process is in another time namespace than when the choice was made, as far as the
 * kernel's page can tell; a few loads. */
bool fc_choice_namespace_moved(void);

/* Turns the inlined reads to what is chosen and proved, if they are not; to be called when either
 * may have changed. */
void fc_choice_show(void);

/* Whether the counter may be read, for its own sake: asks the kernel if nobody has. */
bool fc_choice_counter(void);

/* Takes the counter out of use for fc_ticks: it turned out to have no rate. */
void fc_choice_refuse_counter(void);

/* How often a choice was begun in this process: what was learnt under one may not hold under the
 * next, as in a process that was restored on another machine. */
uint32_t fc_choice_count(void);

/* Fills in `source`, `wanted`, `wanted_reason` and `reason`; makes the choice if nobody has. */
struct fc_info;
void fc_choice_tell(struct fc_info *info);

#pragma GCC visibility pop

#endif
