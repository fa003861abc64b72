/* SPDX-License-Identifier: MIT
 *
 * The source `kernel-page`: the page of time-keeping data that the kernel maps beside the vDSO.
 *
 * A page is recognised by its shape and proved before it is read. There is more than one way to
 * read one: which counter its mode names, and whether the process is in a time namespace, can
 * change under a running process. Each way is proved when it first appears, and each is left as
 * soon as the page says so. Never writes anything but what it has learned; never waits for the page
 * without bound.
 */
#ifndef FASTCLOCK_CORE_KERNEL_PAGE_H
#define FASTCLOCK_CORE_KERNEL_PAGE_H

#include <stdatomic.h>

#include "prove.h"

#pragma GCC visibility push(hidden)

/* Where the blocks lie in [vvar]. See docs/design.md for how these came about. */
struct fc_layout {
    char name[16];
    uint16_t block;       /* offset of the first block in the first page */
    uint16_t extra;       /* bytes that `max_cycles` adds before the mask */
    uint16_t raw;         /* offset of FC_RAW's block from the first */
    uint8_t namespace_at; /* page that is the real one in a time namespace */
    uint8_t clocks_at;    /* page of kvm-clock, followed by that of Hyper-V; 0 where they have a
                             mapping of their own */
};

/* The ways, as bits. */
enum fc_way {
    FC_WAY_COARSE = 1 << 0,
    FC_WAY_COUNTER = 1 << 1,
    FC_WAY_PVCLOCK = 1 << 2, /* by the pages of a hypervisor, see counter_pv.h */
    FC_WAY_HVCLOCK = 1 << 3,
    /* the same again, in a time namespace */
    FC_WAY_NAMESPACE_SHIFT = 4,
    FC_WAYS_NAMESPACE = 0xf << FC_WAY_NAMESPACE_SHIFT,
    FC_WAY_COARSE_NAMESPACE = FC_WAY_COARSE << FC_WAY_NAMESPACE_SHIFT,
    FC_WAY_COUNTER_NAMESPACE = FC_WAY_COUNTER << FC_WAY_NAMESPACE_SHIFT
};

/* A page and what is known of it. Several threads may open one at once: they find the same. */
struct fc_kernel_page {
    _Atomic(const unsigned char *) first;  /* the block of every clock but FC_RAW */
    _Atomic(const unsigned char *) clocks; /* the pages of the hypervisors; NULL: there are none */
    _Atomic(const struct fc_layout *) layout; /* NULL: no page; set after the others */
    atomic_uint proved, refused;              /* sets of enum fc_way */
};

/* The layout whose shape the `size` bytes at `vvar` have, or NULL. Touches the first page and, in a
 * time namespace, the real one; both are probed first. */
const struct fc_layout *fc_kernel_page_recognise(const unsigned char *vvar, uintptr_t size);

/* Whether the vDSO of this process has a page to read: FC_REASON_NO_VVAR if it has none. By what
 * lies before it, without another system call than for probing, where the layout is known; else by
 * the map of the process; FC_REASON_NONE where neither tells. */
int32_t fc_kernel_page_mapped(void);

/* Finds this process's page and proves the ways that are open now; with `counter` false, those that
 * need no counter. Returns FC_REASON_NONE if the page can be used: its coarse clocks are proved,
 * the others proved or not readable for the moment. */
int32_t fc_kernel_page_open(struct fc_kernel_page *page, bool counter);

/* Reads one clock of enum fc_clock. Returns FC_REASON_NONE, or why the page cannot serve just now.
 */
int32_t fc_kernel_page_read(struct fc_kernel_page *page, uint32_t clock, bool ordered,
                            struct fc_reading *out);

/* The same in one look and by ways that are proved; false if that does not suffice. */
bool fc_kernel_page_glance(const struct fc_kernel_page *page, uint32_t clock, bool ordered,
                           struct fc_reading *out);

/* The mode as it is now, and whether this is a time namespace; false if there is no page. */
bool fc_kernel_page_mode(const struct fc_kernel_page *page, int32_t *mode, bool *namespaced);

/* Bracketed readings that the page has passed. */
uint32_t fc_kernel_page_rounds(const struct fc_kernel_page *page);

/* mult and shift of FC_RAW, which are the counter's own; false unless the mode is the counter's. */
bool fc_kernel_page_scale(const struct fc_kernel_page *page, uint32_t *mult, uint32_t *shift);

#pragma GCC visibility pop

#endif
