/* SPDX-License-Identifier: MIT
 *
 * What fc_get_info tells. The choice is asked for what was decided; what serves at this moment is
 * found by trying, in the order in which a read does.
 */
#include <errno.h>
#include <fastclock.h>
#include <string.h>

#include "read.h"
#include "select.h"
#include "ticks.h"
#include "timekeep.h"
#include "vdso.h"

/* Who answers a read of `clock` now, tried out, in the order of read.c. */
static int32_t serving(uint32_t clock, uint32_t page_bit, int32_t *reason) {
    const uint32_t chosen = fc_choice();
    const int32_t source = (int32_t)(chosen & FC_CHOICE_SOURCE);
    struct fc_reading reading;
    *reason = FC_REASON_NONE;
    if (chosen & page_bit) {
        *reason = fc_kernel_page_read(&fc_page, clock, true, &reading);
        if (*reason == FC_REASON_NONE)
            return FC_SOURCE_KERNEL_PAGE;
    }
    if (source == FC_SOURCE_TIMEKEEP) {
        *reason = fc_timekeep_read(clock, true, &reading);
        if (*reason == FC_REASON_NONE)
            return FC_SOURCE_TIMEKEEP;
    }
    if ((source == FC_SOURCE_KERNEL_PAGE || source == FC_SOURCE_TIMEKEEP ||
         source == FC_SOURCE_VDSO) &&
        !(source == FC_SOURCE_KERNEL_PAGE && *reason == FC_REASON_MODE_NONE) &&
        fc_vdso_gettime((int32_t)clock, &reading))
        return FC_SOURCE_VDSO;
    if (source == FC_SOURCE_LIBC || source == FC_SOURCE_NONE)
        return source;
    return fc_sys_gettime((int32_t)clock, &reading) == 0 ? FC_SOURCE_SYSCALL : FC_SOURCE_NONE;
}

static uint64_t resolution_ns(uint32_t clock) {
    struct fc_reading resolution = {0, 0};
    if (!fc_vdso_getres((int32_t)clock, &resolution))
        fc_sys_getres((int32_t)clock, &resolution);
    return fc_reading_count(resolution);
}

static int32_t tai_offset_s(void) {
    const uint64_t half_s = 500000000, s = 1000000000;
    uint64_t realtime, tai;
    if (fc_read_ns(FC_REALTIME, &realtime) < 0 || fc_read_ns(FC_TAI, &tai) < 0)
        return 0;
    return tai >= realtime ? (int32_t)((tai - realtime + half_s) / s)
                           : -(int32_t)((realtime - tai + half_s) / s);
}

static void tell_timekeep(struct fc_info *all) {
    enum fc_timekeep_kind kind;
    const struct fc_timekeep *page = fc_timekeep_page(&kind);
    if (!page || all->source != FC_SOURCE_TIMEKEEP)
        return;
    all->timekeep = (int32_t)kind;
    fc_timekeep_page_tell(page, all);
    if (all->coarse_serving == FC_SOURCE_TIMEKEEP)
        all->coarse_resolution_ns = all->timekeep_interval_ns;
}

int32_t fc_get_info(struct fc_info *info, uint32_t size) {
    struct fc_info all;
    const struct fc_layout *layout;
    bool namespaced;
    int32_t unused;
    if (!info)
        return -EFAULT;
    memset(&all, 0, sizeof all);
    all.size = size < sizeof all ? size : (uint32_t)sizeof all;
    fc_choice_tell(&all);
    all.serving = serving(FC_MONOTONIC, FC_CHOICE_PAGE_FINE, &all.serving_reason);
    all.coarse_serving = serving(FC_MONOTONIC_COARSE, FC_CHOICE_PAGE_COARSE, &unused);
    fc_choice_show(); /* the tries above may have proved a way that was not open before */
    all.mode = all.time_namespace = -1;
    if (fc_kernel_page_mode(&fc_page, &all.mode, &namespaced))
        all.time_namespace = namespaced;
    layout = atomic_load_explicit(&fc_page.layout, memory_order_acquire);
    if (layout)
        memcpy(all.layout, layout->name, sizeof all.layout);
    all.counter = fc_choice_counter();
    all.tai_offset_s = tai_offset_s();
    all.proof_rounds = all.source == FC_SOURCE_KERNEL_PAGE ? fc_kernel_page_rounds(&fc_page)
                       : all.source == FC_SOURCE_TIMEKEEP  ? FC_TIMEKEEP_PROOF_ROUNDS
                                                           : 0;
    all.counter_hz = fc_ticks_hz_known();
    all.resolution_ns = resolution_ns(FC_MONOTONIC);
    all.coarse_resolution_ns = resolution_ns(FC_MONOTONIC_COARSE);
    all.slow_reads = fc_slow_reads();
    tell_timekeep(&all);
    memcpy(info, &all, all.size);
    return 0;
}
