/* SPDX-License-Identifier: MIT
 *
 * Reads that are compiled into the caller, from C and from C++, agree with those by call and are
 * made by the caller itself.
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include "clocks.h"
#include "inlined.h"
#include "step.h"

#define DEFINE_INLINED(name)                                                                       \
    static uint64_t inlined_##name(void) {                                                         \
        return name();                                                                             \
    }
INLINED_NAMES(DEFINE_INLINED)

#define NAME_INLINED(name) inlined_##name,
static uint64_t (*const from_c[])(void) = {INLINED_NAMES(NAME_INLINED)};

struct language {
    const char *name;
    uint64_t (*const *reads)(void);
};

/* call <= inlined <= call, and the other way round. The tables have the same order. */
static void inlined_reads_agree_with_calls(const void *argument) {
    const struct language *language = argument;
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct clock_read *c = &clock_reads[i];
        const uint64_t early_ns = c->kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0;
        uint64_t before = c->read();
        for (uint64_t k = 0; k < check_rounds(100000); k++) {
            const uint64_t inlined = language->reads[i](), after = c->read();
            CHECK(inlined + early_ns >= before && inlined <= after + early_ns,
                  "%s inlined: %" PRIu64 ", not %" PRIu64 " to %" PRIu64, c->name, inlined, before,
                  after);
            before = after;
        }
    }
}

static void inlined_reads_lie_in_brackets(const void *argument) {
    const struct language *language = argument;
    for (int s = 0; s < SOURCES; s++) {
        CHECK(fc_select(sources[s].number) == 0, "%s", sources[s].name);
        for (int i = 0; i < CLOCK_READS; i++) {
            const struct bracket_setup setup = {
                .clock = clock_reads[i].clock,
                .read = language->reads[i],
                .early_ns = clock_reads[i].kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0};
            must_lie_in_brackets(clock_reads[i].name, &setup, check_rounds(20000));
        }
    }
}

static void inlined_reads_call_nobody(const void *argument) {
#if !defined(__OPTIMIZE__) || defined(CHECK_SANITIZER)
    (void)argument;
    CANNOT("this build does not inline, or calls a sanitizer");
#else
    const struct language *language = argument;
    CHECK(fc_select(FC_SOURCE_KERNEL_PAGE) == 0, "no page");
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct clock_read *c = &clock_reads[i];
        struct step_seen seen = {0};
        step_watch = c->read;
        for (int k = 0; k < 10;
             k++) { /* the page may be written amid the look, and then it calls */
            language->reads[i]();
            step_begin();
            language->reads[i]();
            seen = step_end();
            if (seen.watched == 0)
                break;
        }
        CHECK(seen.watched == 0 && seen.system_calls == 0 && seen.in_vdso == 0,
              "%s: %u instructions, %u calls of the library", c->name, seen.instructions,
              seen.watched);
        CHECK(seen.counter_reads == (c->kind == COARSE ? 0 : 1), "%s: %u counter reads", c->name,
              seen.counter_reads);
        CHECK(seen.fences == (c->kind == ORDERED ? 1 : 0), "%s: %u fences", c->name, seen.fences);
    }
#endif
}

int main(int argc, char **argv) {
    const struct language languages[] = {{"C", from_c},
#ifdef FASTCLOCK_TESTS_CXX
                                         {"C++", inlined_from_cxx}
#endif
    };
    char sentence[128];
    check_begin(argc, argv);
    for (unsigned i = 0; i < sizeof languages / sizeof *languages; i++) {
        snprintf(sentence, sizeof sentence, "%s: reads inlined and by call bracket each other",
                 languages[i].name);
        check_that(sentence, inlined_reads_agree_with_calls, &languages[i]);
        snprintf(sentence, sizeof sentence,
                 "%s: inlined reads lie in their brackets for every source", languages[i].name);
        check_that(sentence, inlined_reads_lie_in_brackets, &languages[i]);
        snprintf(sentence, sizeof sentence, "%s: inlined reads call nobody", languages[i].name);
        check_that(sentence, inlined_reads_call_nobody, &languages[i]);
    }
    return check_end();
}
