/* SPDX-License-Identifier: MIT
 *
 * The counter: its rate and its conversion to nanoseconds, against 128-bit arithmetic and against
 * the kernel's own clock.
 */
#define _GNU_SOURCE
#include "../../core/ticks.h"

#include "clocks.h"

#ifdef __SIZEOF_INT128__

/* The numbers around every power of two, where carries and saturation begin. */
static uint64_t sample(int index) {
    return ((uint64_t)1 << (index / 5 % 64)) * (index < 320 ? 1 : 3) + (uint64_t)(index % 5) - 2;
}
enum { SAMPLES = 640 };

static void scaling_is_128_bit_arithmetic(const void *argument) {
    static const uint32_t mults[] = {1, 2, 3, 1000, 4194304, 0x7fffffff, 0x80000000, 0xffffffff};
    (void)argument;
    for (unsigned m = 0; m < sizeof mults / sizeof *mults; m++)
        for (uint32_t shift = 0; shift <= 40; shift++)
            for (int i = 0; i < SAMPLES; i++) {
                const unsigned __int128 exact = (unsigned __int128)sample(i) * mults[m] >> shift;
                const uint64_t expected = exact > UINT64_MAX ? UINT64_MAX : (uint64_t)exact;
                const uint64_t ours = fc_ticks_scaled(sample(i), mults[m], shift);
                CHECK(ours == expected, "%" PRIu64 " * %u >> %u: %" PRIu64 ", not %" PRIu64,
                      sample(i), (unsigned)mults[m], (unsigned)shift, ours, expected);
            }
}

#else

static void scaling_is_128_bit_arithmetic(const void *argument) {
    (void)argument;
    CANNOT("this compiler has no 128-bit integers to compare with");
}

#endif

/* Saturation at the one end, rounding down at the other; never a step back between. */
static void conversion_is_monotone(const void *argument) {
    uint64_t previous = 0;
    use_source(argument);
    for (int bit = 7; bit < 64; bit++)
        for (uint64_t low = 0; low < 100; low++) {
            const uint64_t ns = fc_ticks_to_ns(((uint64_t)1 << bit) + low);
            CHECK(ns >= previous, "2^%d + %" PRIu64 ": %" PRIu64 " after %" PRIu64, bit, low, ns,
                  previous);
            previous = ns;
        }
    CHECK(fc_ticks_to_ns(0) == 0, "%" PRIu64, fc_ticks_to_ns(0));
    CHECK(fc_ticks_to_ns(UINT64_MAX) >= previous, "%" PRIu64, fc_ticks_to_ns(UINT64_MAX));
}

static void hz_ticks_are_a_second(const void *argument) {
    uint64_t ns;
    use_source(argument);
    ns = fc_ticks_to_ns(fc_ticks_hz());
    /* hz is rounded to the nearest whole number, and the result down. */
    CHECK(ns > 1000000000 - 1000 && ns < 1000000000 + 1000, "%" PRIu64 " ns", ns);
    CHECK(info_now().counter_hz == fc_ticks_hz(), "%" PRIu64 " and %" PRIu64, info_now().counter_hz,
          fc_ticks_hz());
}

static void wait_ns(uint64_t ns) {
    uint64_t start = 0, now = 0;
    CHECK(bracket_syscall_ns(FC_RAW, &start) == 0, "the system call was refused");
    do
        CHECK(bracket_syscall_ns(FC_RAW, &now) == 0, "the system call was refused");
    while (now - start < ns);
}

/* A span of ticks, converted, against the span of FC_RAW around it and the one within it. */
static void span_of_ticks_is_a_span_of_raw(const void *argument) {
    uint64_t outer0 = 0, inner0 = 0, inner1 = 0, outer1 = 0, ticks0, ticks1, ns, slack;
    use_source(argument);
    fc_ticks_hz(); /* measured, where the page does not tell it */
    CHECK(bracket_syscall_ns(FC_RAW, &outer0) == 0, "the system call was refused");
    ticks0 = fc_ticks_ordered();
    CHECK(bracket_syscall_ns(FC_RAW, &inner0) == 0, "the system call was refused");
    wait_ns(50000000);
    CHECK(bracket_syscall_ns(FC_RAW, &inner1) == 0, "the system call was refused");
    ticks1 = fc_ticks_ordered();
    CHECK(bracket_syscall_ns(FC_RAW, &outer1) == 0, "the system call was refused");
    ns = fc_ticks_to_ns(ticks1 - ticks0);
    /* From the page the rate is the kernel's own, and only roundings differ. Measured over 20 ms,
     * to the width of a system call, it is right to a thousandth. */
    slack = ((const struct source *)argument)->number == FC_SOURCE_KERNEL_PAGE
                ? 2 + (outer1 - outer0) / 10000000
                : (outer1 - outer0) / 1000;
    CHECK(inner1 - inner0 <= ns + slack && ns <= outer1 - outer0 + slack,
          "%" PRIu64 " ns, not %" PRIu64 " to %" PRIu64, ns, inner1 - inner0, outer1 - outer0);
}

static void ordered_ticks_advance(const void *argument) {
    uint64_t previous = fc_ticks_ordered();
    (void)argument;
    for (uint64_t i = 0; i < check_rounds(1000000); i++) {
        const uint64_t ticks = fc_ticks_ordered();
        CHECK(ticks >= previous, "%" PRIu64 " after %" PRIu64, ticks, previous);
        previous = ticks;
    }
}

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    check_that("scaling agrees with 128-bit arithmetic and saturates",
               scaling_is_128_bit_arithmetic, NULL);
    check_that("ordered ticks never go back in one thread", ordered_ticks_advance, NULL);
    for (int s = 0; s < SOURCES; s++) {
        snprintf(sentence, sizeof sentence, "%s: more ticks are never fewer nanoseconds",
                 sources[s].name);
        check_that(sentence, conversion_is_monotone, &sources[s]);
        snprintf(sentence, sizeof sentence, "%s: as many ticks as fc_ticks_hz says are a second",
                 sources[s].name);
        check_that(sentence, hz_ticks_are_a_second, &sources[s]);
        snprintf(sentence, sizeof sentence, "%s: a span of ticks is as long as it is by FC_RAW",
                 sources[s].name);
        check_that(sentence, span_of_ticks_is_a_span_of_raw, &sources[s]);
    }
    return check_end();
}
