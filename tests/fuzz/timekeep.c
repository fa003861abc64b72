/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the readers of a timekeep page. An input is a byte of flags, what stands in the page, and
 * changes that are made to it between the readings. Nothing may fault, trap or look without end;
 * and what is read is never above the floor that is asked for afterwards, unless a sum overflows.
 */
#define FASTCLOCK_INLINE
#include "../../core/timekeep.h"

#include <fastclock.h>

#include "input.h"

enum {
    /* The first byte. */
    REBASED = 0x01, /* `last` counts from the counter of now, which no input can know */
    ORDERED = 0x02,
    /* A change: a place in 2 bytes, in units of 4 bytes, and the 4 bytes. */
    CHANGE_BYTES = 6,
    CHANGES_MAX = 64
};

static const uint32_t clocks[] = {FC_REALTIME,         FC_MONOTONIC, FC_RAW, FC_REALTIME_COARSE,
                                  FC_MONOTONIC_COARSE, FC_BOOTTIME,  FC_TAI};
enum { CLOCKS = sizeof clocks / sizeof *clocks };

static bool is_coarse(uint32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

/* Whether all that can be read from the page is linear: nothing overflows within the counts that it
 * holds for; and whether it says that it has told what it holds for. */
static bool is_plausible(const struct fc_timekeep *page) {
    for (int i = 0; i < FC_TIMEKEEP_HANDS; i++) {
        const struct fc_timekeep_hands *hands = &page->hands[i];
        const struct fc_timekeep_block *blocks[] = {&hands->fine, &hands->raw};
        if (hands->valid_cycles > INT32_MAX || hands->told_cycles > INT32_MAX ||
            hands->told_cycles < hands->valid_cycles || hands->fine.last != hands->raw.last)
            return false;
        for (int k = 0; k < 2; k++)
            for (int c = 0; c < FC_TIMEKEEP_CLOCKS; c++)
                if (blocks[k]->base[c].nsec > (uint64_t)1 << 62 ||
                    blocks[k]->base[c].sec > UINT32_MAX || blocks[k]->mask != UINT64_MAX)
                    return false;
    }
    return true;
}

static void read_all(const struct fc_timekeep *page, bool ordered, bool plausible) {
    for (int i = 0; i < CLOCKS; i++) {
        struct fc_reading reading = {0, 0}, floor = {0, 0};
        int32_t hands = 99;
        const int32_t reason = fc_timekeep_page_read(page, clocks[i], ordered, &reading, &hands);
        const bool found = fc_timekeep_page_floor(page, clocks[i], fc_counter_ordered_(), &floor);
        REQUIRE(hands >= -1 && hands < FC_TIMEKEEP_HANDS);
        REQUIRE(reason == FC_REASON_NONE ||
                (hands == -1 && (reason == FC_REASON_BUSY || reason == FC_REASON_SWITCHED_OFF ||
                                 reason == FC_REASON_OUT_OF_SERVICE)));
        if (reason == FC_REASON_NONE && plausible && !is_coarse(clocks[i]))
            REQUIRE(found && fc_reading_count(reading) <= fc_reading_count(floor));
        /* Counts that lie anywhere. */
        fc_timekeep_page_floor(page, clocks[i], page->heartbeat, &floor);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input input = {data, size};
    struct fc_timekeep *page;
    struct fc_info info;
    bool ordered;
    uint8_t flags, change[CHANGE_BYTES];
    if (take(&input, &flags, 1) == 0)
        return 0;
    page = aligned_alloc(4096, sizeof *page); /* of its own, so that its end is watched */
    REQUIRE(page);
    memset(page, 0, sizeof *page);
    take(&input, page, sizeof *page);
    ordered = flags & ORDERED;
    if (flags & REBASED) {
        const uint64_t now = fc_counter_ordered_();
        for (int i = 0; i < FC_TIMEKEEP_HANDS; i++) {
            page->hands[i].fine.last += now;
            page->hands[i].raw.last += now;
        }
    }
    for (size_t short_of = 0; short_of < sizeof *page; short_of += 4095)
        REQUIRE(!fc_timekeep_is_page(page, short_of));
    if (fc_timekeep_is_page(page, sizeof *page))
        REQUIRE(page->version == FC_TIMEKEEP_VERSION && page->cpus <= FC_TIMEKEEP_CPUS);
    /* Also of a page that was refused: it may have turned into this afterwards. */
    read_all(page, ordered, is_plausible(page));
    for (int i = 0; i < CHANGES_MAX && take(&input, change, CHANGE_BYTES) == CHANGE_BYTES; i++) {
        const size_t place = (size_t)(change[0] | change[1] << 8) * 4 % sizeof *page;
        memcpy((unsigned char *)page + place, change + 2, 4);
        read_all(page, ordered, is_plausible(page));
    }
    memset(&info, 0, sizeof info);
    fc_timekeep_page_tell(page, &info);
    free(page);
    return 0;
}
