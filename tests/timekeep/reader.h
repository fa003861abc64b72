/* SPDX-License-Identifier: MIT
 *
 * A reader: the library itself, with the timekeep page as its source, whose every reading is held
 * against the kernel's.
 */
#ifndef FASTCLOCK_TESTS_READER_H
#define FASTCLOCK_TESTS_READER_H

#include <fastclock.h>

#include "../bracket.h"
#include "../core/check.h"
#include "read.h"
#include "timekeep.h"

enum { NEAR_NS = 100000 }; /* a page whose publisher is not there follows that well */

static inline uint64_t kernel_now_ns(int32_t clock) {
    uint64_t ns = 0;
    if (bracket_syscall_ns(clock, &ns) != 0)
        FAIL("clock %d cannot be read by system call", clock);
    return ns;
}

/* Asks for the page as a user does, before the first read, and claims of which kind it is. */
static inline struct fc_info choose_timekeep(enum fc_timekeep_kind kind) {
    struct fc_info info;
    setenv("FASTCLOCK_SOURCE", "timekeep", 1);
    CHECK(fc_init() == 0, "no source serves");
    fc_get_info(&info, sizeof info);
    CHECK(info.source == FC_SOURCE_TIMEKEEP && info.timekeep == (int32_t)kind,
          "source %d, page %d, reason %d", info.source, info.timekeep,
          info.reason[FC_SOURCE_TIMEKEEP]);
    return info;
}

static inline uint64_t read_near_kernel(int32_t clock) {
    const uint64_t before = kernel_now_ns(clock);
    uint64_t ns = 0, after;
    CHECK(fc_read_ns(clock, &ns) == 0, "clock %d is not read", clock);
    after = kernel_now_ns(clock);
    CHECK(ns + NEAR_NS > before && ns < after + NEAR_NS,
          "clock %d: %" PRIu64 " is not near [%" PRIu64 ", %" PRIu64 "]", clock, ns, before, after);
    return ns;
}

static inline void near_kernel(uint64_t rounds) {
    static const int32_t clocks[] = {FC_MONOTONIC, FC_REALTIME, FC_RAW, FC_BOOTTIME, FC_TAI};
    for (uint64_t i = 0; i < rounds; i++)
        read_near_kernel(clocks[i % 5]);
}

/* Of the clocks that never go back, in turn, from the host's page. */
struct reader {
    const struct fc_timekeep *page;
    uint64_t previous_ns[3];
    uint64_t from_page, from_kernel;
};

static inline void attach(struct reader *reader) {
    enum fc_timekeep_kind kind;
    choose_timekeep(FC_TIMEKEEP_HOST);
    reader->page = fc_timekeep_page(&kind);
}

static inline void read_and_check(struct reader *reader) {
    static const int32_t clocks[] = {FC_MONOTONIC, FC_RAW, FC_BOOTTIME};
    const int i = (int)((reader->from_page + reader->from_kernel) % 3);
    const uint64_t slow = fc_slow_reads(), ns = read_near_kernel(clocks[i]);
    enum fc_timekeep_kind kind;
    CHECK(ns >= reader->previous_ns[i], "clock %d went back by %" PRIu64 " ns", clocks[i],
          reader->previous_ns[i] - ns);
    reader->previous_ns[i] = ns;
    if (fc_slow_reads() == slow)
        reader->from_page++;
    else
        reader->from_kernel++;
    CHECK(fc_timekeep_page(&kind) == reader->page && kind == FC_TIMEKEEP_HOST,
          "the reader has left the host's page");
}

static inline void read_for(struct reader *reader, uint64_t ns) {
    const uint64_t end = kernel_now_ns(FC_MONOTONIC) + ns;
    while (kernel_now_ns(FC_MONOTONIC) < end)
        read_and_check(reader);
}

/* The claim's deadline ends it. */
static inline void read_until_page(struct reader *reader) {
    const uint64_t had = reader->from_page;
    while (reader->from_page == had)
        read_and_check(reader);
}

#endif
