/* SPDX-License-Identifier: MIT
 *
 * Readings lie between two readings of the same clock by raw system call: a million of each read,
 * from each source. The C library's own readings, in the same brackets, are the control.
 */
#define _GNU_SOURCE
#include "clocks.h"

struct pair {
    const struct source *source;
    const struct clock_read *read;
};

static const uint64_t million = 1000000;

static void read_lies_in_brackets(const void *argument) {
    const struct pair *p = argument;
    const struct bracket_setup setup = {
        .clock = p->read->clock,
        .read = p->read->read,
        .early_ns = p->read->kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0};
    use_source(p->source);
    must_lie_in_brackets(p->read->name, &setup, check_rounds(million));
    CHECK(info_now().source == p->source->number, "the source changed to %s",
          fc_source_name(info_now().source));
}

static void numbers_lie_in_brackets(const void *argument) {
    use_source(argument);
    for (int i = 0; i < CLOCKS; i++) {
        const struct bracket_setup setup = {.clock = clocks[i], .read_number = fc_read_ns};
        must_lie_in_brackets("fc_read_ns", &setup, check_rounds(million / 10));
    }
}

static int32_t posix_ns(int32_t clock, uint64_t *ns) {
    struct timespec ts;
    if (fc_clock_gettime(clock, &ts) != 0)
        return -errno;
    if (ts.tv_nsec < 0 || ts.tv_nsec >= 1000000000)
        return -ERANGE;
    *ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    return 0;
}

static void posix_lies_in_brackets(const void *argument) {
    use_source(argument);
    for (int i = 0; i < CLOCKS; i++) {
        const struct bracket_setup setup = {.clock = clocks[i], .read_number = posix_ns};
        must_lie_in_brackets("fc_clock_gettime", &setup, check_rounds(million / 10));
    }
}

#if defined(__x86_64__) || defined(__i386__)

/* A fence of the caller's own makes up for the one that a relaxed read leaves out. */
#define DEFINE_FENCED(name)                                                                        \
    static uint64_t fenced_##name(void) {                                                          \
        __asm__ volatile("lfence" : : : "memory");                                                 \
        return name();                                                                             \
    }
#else
#define DEFINE_FENCED(name)                                                                        \
    static uint64_t fenced_##name(void) {                                                          \
        __asm__ volatile("isb" : : : "memory");                                                    \
        return name();                                                                             \
    }
#endif
DEFINE_FENCED(fc_realtime_relaxed_ns)
DEFINE_FENCED(fc_monotonic_relaxed_ns)
DEFINE_FENCED(fc_raw_relaxed_ns)

static void fenced_relaxed_reads_lie_in_brackets(const void *argument) {
    const struct bracket_setup setups[] = {
        {.clock = FC_REALTIME, .read = fenced_fc_realtime_relaxed_ns},
        {.clock = FC_MONOTONIC, .read = fenced_fc_monotonic_relaxed_ns},
        {.clock = FC_RAW, .read = fenced_fc_raw_relaxed_ns}};
    use_source(argument);
    for (int i = 0; i < 3; i++)
        must_lie_in_brackets("a fenced relaxed read", &setups[i], check_rounds(million));
}

/* The bracket itself: a reading that is wrong by little is seen. */
static int32_t late_by;

static uint64_t off_by_a_microsecond(void) {
    return fc_monotonic_ns() + (uint64_t)(int64_t)late_by;
}

static void wrong_readings_are_seen(const void *argument) {
    const struct bracket_setup setup = {.clock = FC_MONOTONIC, .read = off_by_a_microsecond};
    (void)argument;
    for (late_by = -100000; late_by <= 100000; late_by += 200000) {
        struct bracket b;
        memset(&b, 0, sizeof b);
        bracket_run(&b, &setup, check_rounds(10000));
        CHECK(b.ours.outside > b.rounds / 2, "%d ns off and %" PRIu64 " of %" PRIu64 " outside",
              (int)late_by, b.ours.outside, b.rounds);
        CHECK(b.control.outside == 0, "the control is outside");
    }
}

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    check_that("a reading that is wrong by 100 us is found outside its bracket",
               wrong_readings_are_seen, NULL);
    for (int s = 0; s < SOURCES; s++) {
        for (int r = 0; r < CLOCK_READS; r++) {
            const struct pair p = {&sources[s], &clock_reads[r]};
            snprintf(sentence, sizeof sentence, "%s: %s lies in its brackets", sources[s].name,
                     clock_reads[r].name);
            check_that(sentence, read_lies_in_brackets, &p);
        }
        snprintf(sentence, sizeof sentence, "%s: fc_read_ns lies in its brackets for every clock",
                 sources[s].name);
        check_that(sentence, numbers_lie_in_brackets, &sources[s]);
        snprintf(sentence, sizeof sentence,
                 "%s: fc_clock_gettime lies in its brackets for every clock", sources[s].name);
        check_that(sentence, posix_lies_in_brackets, &sources[s]);
        snprintf(sentence, sizeof sentence,
                 "%s: a relaxed read after a fence is as good as an ordered one", sources[s].name);
        check_that(sentence, fenced_relaxed_reads_lie_in_brackets, &sources[s]);
    }
    return check_end();
}
