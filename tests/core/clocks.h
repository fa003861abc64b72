/* SPDX-License-Identifier: MIT
 *
 * Every read of a clock that abi.h has, once, with what a test has to know of it; and the sources
 * that a process on Linux can be made to use.
 */
#ifndef FASTCLOCK_TESTS_CLOCKS_H
#define FASTCLOCK_TESTS_CLOCKS_H

#include <fastclock.h>

#include "../bracket.h"
#include "check.h"

enum kind { ORDERED, RELAXED, COARSE };

struct clock_read {
    const char *name;
    uint64_t (*read)(void);
    int32_t clock;
    enum kind kind;
};

static const struct clock_read clock_reads[] = {
    {"vtime64", vtime64, FC_REALTIME, ORDERED},
    {"fc_realtime_ns", fc_realtime_ns, FC_REALTIME, ORDERED},
    {"fc_monotonic_ns", fc_monotonic_ns, FC_MONOTONIC, ORDERED},
    {"fc_raw_ns", fc_raw_ns, FC_RAW, ORDERED},
    {"fc_boottime_ns", fc_boottime_ns, FC_BOOTTIME, ORDERED},
    {"fc_tai_ns", fc_tai_ns, FC_TAI, ORDERED},
    {"fc_realtime_relaxed_ns", fc_realtime_relaxed_ns, FC_REALTIME, RELAXED},
    {"fc_monotonic_relaxed_ns", fc_monotonic_relaxed_ns, FC_MONOTONIC, RELAXED},
    {"fc_raw_relaxed_ns", fc_raw_relaxed_ns, FC_RAW, RELAXED},
    {"fc_realtime_coarse_ns", fc_realtime_coarse_ns, FC_REALTIME_COARSE, COARSE},
    {"fc_monotonic_coarse_ns", fc_monotonic_coarse_ns, FC_MONOTONIC_COARSE, COARSE},
};
enum { CLOCK_READS = sizeof clock_reads / sizeof *clock_reads };

static const int32_t clocks[] = {FC_REALTIME,         FC_MONOTONIC, FC_RAW, FC_REALTIME_COARSE,
                                 FC_MONOTONIC_COARSE, FC_BOOTTIME,  FC_TAI};
enum { CLOCKS = sizeof clocks / sizeof *clocks };

static inline bool is_coarse(int32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

/* Whether nobody may set it: then it never goes back. */
static inline bool is_steady(int32_t clock) {
    return clock != FC_REALTIME && clock != FC_REALTIME_COARSE && clock != FC_TAI;
}

/* By number, as FASTCLOCK_SOURCE names them. */
static const struct source {
    int32_t number;
    const char *name;
} sources[] = {{FC_SOURCE_KERNEL_PAGE, "kernel-page"},
               {FC_SOURCE_VDSO, "vdso"},
               {FC_SOURCE_SYSCALL, "syscall"},
               {FC_SOURCE_LIBC, "off"}};
enum { SOURCES = sizeof sources / sizeof *sources };

static inline struct fc_info info_now(void) {
    struct fc_info info;
    CHECK(fc_get_info(&info, sizeof info) == 0, "fc_get_info failed");
    return info;
}

/* Makes this process use `source`, by the environment, before its first read. */
static inline void use_source(const struct source *source) {
    MUST(setenv("FASTCLOCK_SOURCE", source->name, 1));
    CHECK(fc_init() == 0, "%s: %s", source->name,
          fc_reason_text(info_now().reason[source->number]));
    CHECK(info_now().source == source->number, "asked for %s, got %s: %s", source->name,
          fc_source_name(info_now().source), fc_reason_text(info_now().reason[source->number]));
}

/* Fails the claim unless `rounds` readings lie in their brackets, none outside and none in error;
 * void brackets are repeated. */
static inline void must_lie_in_brackets(const char *name, const struct bracket_setup *setup,
                                        uint64_t rounds) {
    struct bracket b;
    memset(&b, 0, sizeof b);
    while (b.ours.good < rounds) {
        bracket_run(&b, setup, rounds - b.ours.good);
        if (b.refused || b.ours.outside || b.ours.errors || b.control.outside ||
            (is_steady(setup->clock) && !setup->early_ns && b.ours.back)) {
            bracket_print(stdout, name, &b);
            FAIL("%s: %" PRIu64 " of %" PRIu64 " outside, %" PRIu64 " errors, %" PRIu64 " back",
                 name, b.ours.outside, b.rounds, b.ours.errors, b.ours.back);
        }
        CHECK(b.voided <= rounds + 1000, "%s: %" PRIu64 " of %" PRIu64 " brackets are void", name,
              b.voided, b.rounds);
    }
}

/* The same for every read of abi.h and for fc_read_ns with every clock, `rounds` each. */
static inline void all_must_lie_in_brackets(uint64_t rounds, bool control) {
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct clock_read *c = &clock_reads[i];
        const struct bracket_setup setup = {.clock = c->clock,
                                            .read = c->read,
                                            .early_ns =
                                                c->kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0,
                                            .no_control = !control};
        must_lie_in_brackets(c->name, &setup, rounds);
    }
    for (int i = 0; i < CLOCKS; i++) {
        const struct bracket_setup setup = {
            .clock = clocks[i], .read_number = fc_read_ns, .no_control = !control};
        must_lie_in_brackets("fc_read_ns", &setup, rounds);
    }
}

#endif /* FASTCLOCK_TESTS_CLOCKS_H */
