/* SPDX-License-Identifier: MIT
 *
 * Fuzzes what looks at the kernel's pages: recogniser, prover, reader and the inlined look, in the
 * made-up world of tests/pages. An input is a byte that says which kernel it is, and what stands in
 * the pages from their beginnings on. Nothing may fault, trap or take long; and what passes the
 * proof is read within the brackets, give or take what a proof can tell.
 */
#include "../pages/world.h"

#define FASTCLOCK_INLINE
#include <fastclock.h>

#include "../../core/kernel_page.h"
#include "../../core/view.h"
#include "input.h"

enum {
    /* The first byte. */
    SHAPE = 0x07,      /* which of the shapes; those beyond the last begin again */
    MODE_SHIFT = 3,    /* the clocksource: two bits */
    NAMESPACED = 0x20, /* in a time namespace */
    LATER = 0x40,      /* the pages turn into this after a proof that they passed */
    /* How much of each page is in the input: every field, and little else. */
    BLOCKS_BYTES = 640,
    HYPERVISOR_BYTES = 32,
    /* The width of a bracket in this world is a fraction of it. */
    TOLERANCE_NS = 300,
    COUNTER_READS_MAX = 70000
};

static const int32_t clocks[] = {FC_REALTIME,         FC_MONOTONIC, FC_RAW, FC_REALTIME_COARSE,
                                 FC_MONOTONIC_COARSE, FC_BOOTTIME,  FC_TAI};
enum { CLOCKS = sizeof clocks / sizeof *clocks };

/* Over pages that the process may read; the kernel's are there. */
static void cover_all(struct input *input) {
    take(input, world.vvar, BLOCKS_BYTES);
    if (world.namespaced)
        take(input, world.vvar + world.shape->namespace_at * (unsigned)PAGE, BLOCKS_BYTES);
    for (int i = 0; i < 2; i++)
        if (world.used[i])
            take(input, world.vclock + i * PAGE, HYPERVISOR_BYTES);
}

static bool look(int32_t clock, struct fc_reading *out) {
    if (clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE)
        return fc_look_coarse_((uint32_t)clock, &out->sec, &out->ns);
    return fc_look_fine_(clock == FC_RAW ? &fc_view_v1.raw : &fc_view_v1.fine, (uint32_t)clock,
                         fc_cpu_counter_ordered_, &out->sec, &out->ns);
}

/* By each way that there is; `judged` where a reading has to be right. */
static void read_all(struct fc_kernel_page *page, bool judged) {
    for (int i = 0; i < CLOCKS; i++)
        for (int how = 0; how < 4; how++) {
            const uint64_t looks = world.counter_reads, before = world_ns(clocks[i]);
            struct fc_reading reading;
            uint64_t ours, after;
            bool done;
            if (how == 3)
                done = look(clocks[i], &reading);
            else if (how == 2)
                done = fc_kernel_page_glance(page, (uint32_t)clocks[i], true, &reading);
            else
                done = fc_kernel_page_read(page, (uint32_t)clocks[i], how == 0, &reading) ==
                       FC_REASON_NONE;
            after = world_ns(clocks[i]);
            REQUIRE(world.counter_reads - looks <= COUNTER_READS_MAX);
            if (!done || !judged)
                continue;
            ours = fc_reading_count(reading);
            REQUIRE(ours + TOLERANCE_NS >= before && ours <= after + TOLERANCE_NS);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    struct fc_kernel_page page;
    const struct shape *shape;
    bool later, namespaced;
    uint32_t mult, shift;
    int32_t mode;
    uint8_t flags;
    if (take(&input, &flags, 1) == 0)
        return 0;
    shape = &shapes[(flags & SHAPE) % SHAPES];
    later = flags & LATER;
    world_as_captured();
    world_build(shape, flags >> MODE_SHIFT & 3, (flags & NAMESPACED) && shape->namespace_at);
    memset(&page, 0, sizeof page);
    if (!later)
        cover_all(&input);
    if (fc_kernel_page_open(&page, true) == FC_REASON_NONE) {
        fc_view_set(&page, NULL,
                    FC_SHOW_COARSE | (page.proved & FC_WAY_COUNTER ? FC_SHOW_FINE : 0));
        if (later)
            cover_all(&input);
        read_all(&page, !later);
        fc_kernel_page_mode(&page, &mode, &namespaced);
        fc_kernel_page_scale(&page, &mult, &shift);
        fc_view_set(&page, NULL, 0);
    } else {
        REQUIRE(!later); /* the truth is proved */
    }
    return 0;
}
