/* SPDX-License-Identifier: MIT
 *
 * The discipline against a machine that is calculated: its counter, its clocks and what goes wrong
 * with them are known exactly, so that errors can be told to the nanosecond, in no time. What a
 * reader would be told is worked out here from the page's description, not by the library's reader.
 */
#define _GNU_SOURCE
#include <fastclock.h>
#include <math.h>

#include "../core/check.h"
#include "timekeep.h"

/* ---- The machine ------------------------------------------------------------------------------
 */

enum { CLOCKS = 12 };

static struct {
    double true_ns;          /* physical time */
    double hz, counter_base; /* the counter: counter_base + true_ns * hz */
    double ppm, slewed_ns;   /* the kernel's slewing of monotonic, and what it has added up to */
    double realtime_ns, boottime_ns, tai_ns; /* distances from monotonic */
    double call_ns, read_at; /* a system call's length; the part of it before the clock is read */
    uint32_t random;
    uint32_t interrupt_each; /* every so many calls take 100 us */
    uint32_t calls;
    double stuck_count; /* a counter that stands still shows this */
    bool stuck, refuse;
    uint32_t
        hold_at; /* so many readings of the counter from now whoever reads it is held up; 0: no */
    double hold_ns;
} machine;

static struct fc_timekeep page;
static struct fc_timekeep_discipline discipline;

static double jitter(void) {
    machine.random = machine.random * 1664525u + 1013904223u;
    return (double)(machine.random >> 8) / (double)(1u << 24);
}

static void pass(double ns) {
    machine.true_ns += ns;
    machine.slewed_ns += ns * machine.ppm * 1e-6;
}

static uint64_t sim_counter(void *context) {
    (void)context;
    pass(8);
    if (machine.hold_at && --machine.hold_at == 0)
        pass(machine.hold_ns);
    if (machine.stuck)
        return (uint64_t)machine.stuck_count;
    return (uint64_t)(machine.counter_base + machine.true_ns * machine.hz / 1e9);
}

static double monotonic_ns(void) {
    return 1e12 + machine.true_ns + machine.slewed_ns;
}

static double kernel_ns(int32_t clock) {
    switch (clock) {
    case FC_REALTIME: return monotonic_ns() + machine.realtime_ns;
    case FC_BOOTTIME: return monotonic_ns() + machine.boottime_ns;
    case FC_TAI: return monotonic_ns() + machine.tai_ns;
    case FC_RAW: return 1e12 + machine.true_ns;
    default: return monotonic_ns();
    }
}

static int32_t sim_gettime(void *context, int32_t clock, struct fc_reading *out) {
    double length = machine.call_ns * (1 + 0.2 * jitter()), ns;
    (void)context;
    if (machine.refuse)
        return -EPERM;
    if (machine.interrupt_each && ++machine.calls % machine.interrupt_each == 0)
        length += 100000 * jitter();
    pass(length * machine.read_at);
    ns = kernel_ns(clock);
    out->sec = (uint64_t)(ns / 1e9);
    out->ns = (uint64_t)(ns - (double)out->sec * 1e9);
    pass(length * (1 - machine.read_at));
    return 0;
}

static const struct fc_timekeep_ports ports = {sim_counter, sim_gettime, NULL};

static void begin_with(double hz) {
    memset(&machine, 0, sizeof machine);
    memset(&page, 0, sizeof page);
    machine.hz = hz;
    machine.counter_base = 5e12;
    machine.call_ns = 300;
    machine.read_at = 0.5;
    machine.realtime_ns = 4e14; /* small, so that a double holds its nanoseconds */
    machine.boottime_ns = 7e9;
    machine.tai_ns = 4e14 + 37e9;
    machine.random = 1;
    fc_timekeep_discipline_init(&discipline, FC_TIMEKEEP_INTERVAL_NS);
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
}

/* ---- What a reader is told --------------------------------------------------------------------
 */

/* The timehands that hold at `count`, or NULL. */
static const struct fc_timekeep_hands *in_force(uint64_t count) {
    for (uint32_t back = 0; back < 2; back++) {
        const struct fc_timekeep_hands *h = &page.hands[(page.current - back) % FC_TIMEKEEP_HANDS];
        if (!page.enabled || h->fine.mode != FC_TIMEKEEP_MODE_COUNTER)
            return NULL;
        if (count >= h->fine.last)
            return count - h->fine.last <= h->valid_cycles ? h : NULL;
    }
    return NULL;
}

/* In units of 2^-shift nanoseconds would be exact; a double of nanoseconds since the base's second
 * is within a thousandth. */
static double told_by(const struct fc_timekeep_hands *h, uint32_t clock, uint64_t count) {
    const struct fc_timekeep_block *b = clock == FC_RAW ? &h->raw : &h->fine;
    const double unit = ldexp(1, -(int)b->shift);
    return (double)b->base[clock].sec * 1e9 + (double)b->base[clock].nsec * unit +
           (double)(count - b->last) * (double)b->mult * unit;
}

static bool told(uint32_t clock, double *ns) {
    const uint64_t count = sim_counter(NULL);
    const struct fc_timekeep_hands *h = in_force(count);
    if (h)
        *ns = told_by(h, clock, count);
    return h != NULL;
}

/* The kernel's answer as the library gives it where the page does not serve. */
static double lifted_kernel_ns(void) {
    struct fc_reading floor;
    const double kernel = monotonic_ns();
    if (fc_timekeep_page_floor(&page, FC_MONOTONIC, sim_counter(NULL), &floor)) {
        const double ns = (double)floor.sec * 1e9 + (double)floor.ns;
        if (ns > kernel && ns - kernel < FC_TIMEKEEP_HOLD_NS)
            return ns;
    }
    return kernel;
}

static enum fc_timekeep_end update(void) {
    return fc_timekeep_update(&discipline, &page, &ports, false);
}

/* Updates until the page serves. */
static void settle(void) {
    for (int i = 0; i < 20; i++) {
        if (update() == FC_TIMEKEEP_SERVES)
            return;
        pass(FC_TIMEKEEP_INTERVAL_NS);
    }
    FAIL("it does not serve after 20 updates: %s", discipline.outage ? discipline.outage : "?");
}

/* Lets some time pass, looking at all clocks every 10 us. Returns the largest error of monotonic,
 * and fails if one that never steps goes back. */
static double look_for(double length_ns, double *previous_monotonic, double *previous_raw) {
    double worst = 0;
    for (double passed = 0; passed < length_ns; passed += 10000) {
        double ns, raw;
        pass(10000);
        if (!told(FC_MONOTONIC, &ns) || !told(FC_RAW, &raw))
            continue;
        CHECK(ns >= *previous_monotonic, "monotonic went back by %.3f ns",
              *previous_monotonic - ns);
        CHECK(raw >= *previous_raw, "raw went back by %.3f ns", *previous_raw - raw);
        *previous_monotonic = ns;
        *previous_raw = raw;
        if (fabs(ns - monotonic_ns()) > worst)
            worst = fabs(ns - monotonic_ns());
    }
    return worst;
}

static double interval(double *previous_monotonic, double *previous_raw) {
    return look_for(FC_TIMEKEEP_INTERVAL_NS, previous_monotonic, previous_raw);
}

/* ---- Claims -----------------------------------------------------------------------------------
 */

static void steady(const void *argument) {
    const double hz = *(const double *)argument;
    double monotonic = 0, raw = 0, worst = 0;
    begin_with(hz);
    machine.ppm = 12;
    settle();
    for (int i = 0; i < 20; i++) {
        interval(&monotonic, &raw);
        update();
    }
    for (int i = 0; i < 500; i++) {
        const double error = interval(&monotonic, &raw);
        if (error > worst)
            worst = error;
        CHECK(update() == FC_TIMEKEEP_SERVES, "%s", discipline.outage);
    }
    /* A bracket is 300 ns wide and up to 60 ns of it vary; 1000 ns of a count at 1 MHz. */
    CHECK(worst < 40 + 2e9 / hz, "%.1f ns from the kernel", worst);
    CHECK(discipline.outages == 0, "%" PRIu64 " outages", discipline.outages);
}

/* The kernel's slewing changes over its whole range, each FLIP_NS or so, and updates are late by up
 * to LATE times the time that they should come after. */
struct bending {
    double flip_ns, late;
};

static void bent(const void *argument) {
    const struct bending *bending = argument;
    const double bound_ns = (double)FC_TIMEKEEP_INTERVAL_NS / FC_TIMEKEEP_BOUND;
    double monotonic = 0, raw = 0, worst = 0, next_flip, next_update = 0, now = 0;
    uint64_t served = 0;
    begin_with(2.6e9);
    settle();
    next_flip = bending->flip_ns;
    for (int i = 0; i < 20000; i++) {
        const double until = next_flip < next_update ? next_flip : next_update;
        const double error = look_for(until - now, &monotonic, &raw);
        now = until;
        if (error > worst)
            worst = error;
        if (until == next_flip) {
            machine.ppm = jitter() < 0.5 ? 500 * (2 * jitter() - 1) : machine.ppm > 0 ? -500 : 500;
            next_flip += bending->flip_ns * (0.5 + jitter());
        } else {
            served += update() == FC_TIMEKEEP_SERVES;
            CHECK(page.outages == 0, "%s", discipline.outage);
            next_update += (double)discipline.next_ns * (1 + bending->late * jitter());
        }
    }
    CHECK(worst < bound_ns, "%.1f ns from the kernel", worst);
    CHECK(worst > bound_ns / 10, "the flips do not show: %.1f ns", worst);
    CHECK(served > 300, "%" PRIu64 " updates served", served);
}

static void joints(const void *argument) {
    static const uint32_t clocks[] = {FC_MONOTONIC, FC_REALTIME, FC_BOOTTIME, FC_TAI, FC_RAW};
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 300; i++) {
        const struct fc_timekeep_hands *former, *next;
        uint64_t end;
        machine.ppm = 500 * (2 * jitter() - 1);
        pass((double)discipline.next_ns * (0.5 + jitter()));
        former = &page.hands[page.current % FC_TIMEKEEP_HANDS];
        CHECK(update() == FC_TIMEKEEP_SERVES, "%s", discipline.outage);
        next = &page.hands[page.current % FC_TIMEKEEP_HANDS];
        end = former->fine.last + former->valid_cycles;
        CHECK(next->fine.last == end, "the next begins %" PRId64 " counts off",
              (int64_t)(next->fine.last - end));
        for (size_t k = 0; k < sizeof clocks / sizeof *clocks; k++) {
            const double gap = told_by(next, clocks[k], end) - told_by(former, clocks[k], end);
            CHECK(fabs(gap) < 0.5, "clock %u jumps by %.3f ns", clocks[k], gap);
        }
    }
}

static void slopes(const void *argument) {
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 300; i++) {
        const struct fc_timekeep_hands *h;
        double ppm;
        machine.ppm = i % 2 ? 500 : -500;
        pass(FC_TIMEKEEP_INTERVAL_NS * (1 + 5 * jitter()));
        update();
        h = &page.hands[page.current % FC_TIMEKEEP_HANDS];
        ppm = ((double)h->fine.mult * ldexp(1, -(int)h->fine.shift) * machine.hz / 1e9 - 1) * 1e6;
        CHECK(fabs(ppm) < 1600, "a slope of %.1f ppm", ppm);
    }
}

static void realtime_step(const void *argument) {
    const double by_ns = *(const double *)argument;
    double monotonic = 0, raw = 0, before = 0, after = 0, error;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 20; i++) {
        interval(&monotonic, &raw);
        update();
    }
    CHECK(told(FC_REALTIME, &before), "it does not serve");
    machine.realtime_ns += by_ns;
    machine.tai_ns += by_ns;
    error = interval(&monotonic, &raw);
    CHECK(error < 100, "monotonic is %.1f ns off", error);
    CHECK(update() == FC_TIMEKEEP_SERVES, "the page went out of service: %s", discipline.outage);
    error = interval(&monotonic, &raw);
    CHECK(error < 100, "monotonic is %.1f ns off after it", error);
    CHECK(told(FC_REALTIME, &after) && fabs(after - kernel_ns(FC_REALTIME)) < 400,
          "realtime is %.1f ns off", after - kernel_ns(FC_REALTIME));
    CHECK(told(FC_TAI, &after) && fabs(after - kernel_ns(FC_TAI)) < 400, "tai is %.1f ns off",
          after - kernel_ns(FC_TAI));
    CHECK(told(FC_BOOTTIME, &after) && fabs(after - kernel_ns(FC_BOOTTIME)) < 400,
          "boottime is %.1f ns off", after - kernel_ns(FC_BOOTTIME));
    CHECK(page.steps == 1, "%" PRIu64 " steps are counted", page.steps);
    CHECK(page.outages == 0, "%" PRIu64 " outages", page.outages);
}

static void realtime_stays(const void *argument) {
    double previous = 0, ns = 0;
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 400; i++) {
        for (int k = 0; k < 100; k++) {
            pass(100000);
            if (told(FC_REALTIME, &ns)) {
                CHECK(ns >= previous, "realtime went back by %.3f ns", previous - ns);
                previous = ns;
            }
        }
        machine.ppm = 500 * (2 * jitter() - 1);
        update();
    }
    CHECK(page.steps == 0, "%" PRIu64 " steps are counted", page.steps);
}

static void interruptions(const void *argument) {
    double monotonic = 0, raw = 0, worst = 0;
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 20; i++) {
        interval(&monotonic, &raw);
        update();
    }
    machine.interrupt_each = 4; /* no sweep of six calls is free of them */
    for (int i = 0; i < 300; i++) {
        const double error = interval(&monotonic, &raw);
        if (error > worst)
            worst = error;
        CHECK(update() == FC_TIMEKEEP_SERVES, "%s", discipline.outage);
    }
    CHECK(worst < 200, "%.1f ns from the kernel", worst);
}

static void wide_samples(const void *argument) {
    double monotonic = 0, raw = 0, error;
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 20; i++) {
        interval(&monotonic, &raw);
        update();
    }
    machine.interrupt_each = 1; /* every single call */
    for (int i = 0; i < 20; i++) {
        error = look_for((double)discipline.next_ns, &monotonic, &raw);
        CHECK(error < 500, "%.1f ns from the kernel", error);
        update();
    }
    CHECK(page.dropped >= 19, "only %" PRIu64 " samples were dropped", page.dropped);
    CHECK(page.outages == 0 && !told(FC_MONOTONIC, &error), "told without a sample");
    machine.interrupt_each = 0;
    CHECK(update() == FC_TIMEKEEP_SERVES, "%s", discipline.outage);
    error = interval(&monotonic, &raw);
    CHECK(error < 500, "%.1f ns from the kernel", error);
}

/* What takes the page out of service at the next update. */
static void counter_back(void) {
    machine.counter_base -= 1e9;
}
static void counter_stands(void) {
    machine.stuck_count = (double)sim_counter(NULL);
    machine.stuck = true;
}
static void counter_jumps(void) {
    machine.counter_base += 2.6e7;
}
static void counter_slows(void) {
    machine.counter_base += machine.true_ns * machine.hz / 1e9 * 0.5;
    machine.hz *= 0.5;
}
static void suspends(void) {
    machine.true_ns += 3e9; /* the counter goes on, the kernel's clocks stand still */
    machine.slewed_ns -= 3e9;
    machine.boottime_ns += 3e9;
}
static void tick_changes(void) {
    machine.ppm = 100000;
}

struct fault {
    const char *name;
    void (*happen)(void);
};

static void outage(const void *argument) {
    const struct fault *fault = argument;
    double monotonic = 0, raw = 0, ns = 0;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 20; i++) {
        interval(&monotonic, &raw);
        update();
    }
    pass(FC_TIMEKEEP_INTERVAL_NS);
    fault->happen();
    pass(FC_TIMEKEEP_INTERVAL_NS);
    CHECK(update() != FC_TIMEKEEP_SERVES, "it serves at the next update");
    CHECK(!told(FC_MONOTONIC, &ns), "a reader is told %.0f", ns);
    CHECK(page.in_service == 0 && page.outages == 1, "in_service %u, %" PRIu64 " outages",
          page.in_service, page.outages);
    CHECK(discipline.outage != NULL, "nothing says why");
    if (machine.stuck) {
        for (int i = 0; i < 20; i++, pass(FC_TIMEKEEP_INTERVAL_NS))
            CHECK(update() != FC_TIMEKEEP_SERVES, "it serves with a counter that stands still");
        machine.stuck = false;
    }
    pass(FC_TIMEKEEP_INTERVAL_NS);
    settle();
    pass((double)discipline.next_ns);
    CHECK(told(FC_MONOTONIC, &ns) && fabs(ns - monotonic_ns()) < 20000, "%.1f ns off after it",
          ns - monotonic_ns());
}

static void one_contradiction(const void *argument) {
    double monotonic = 0, raw = 0, error;
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 20; i++) {
        interval(&monotonic, &raw);
        update();
    }
    interval(&monotonic, &raw);
    machine.slewed_ns += 300000; /* 30,000 ppm of an interval: no slewing does that */
    CHECK(update() == FC_TIMEKEEP_SERVES, "%s", discipline.outage);
    machine.slewed_ns -= 300000;
    CHECK(page.dropped == 1, "%" PRIu64 " samples were dropped", page.dropped);
    error = interval(&monotonic, &raw);
    CHECK(error < 500, "%.1f ns from the kernel", error);
    CHECK(update() == FC_TIMEKEEP_SERVES && page.outages == 0, "%s", discipline.outage);
}

static void late(const void *argument) {
    double monotonic = 0, raw = 0, ns = 0;
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 200; i++) {
        /* The line is used to its very end, with a rate that has changed meanwhile. */
        machine.ppm = i % 2 ? 500 : -500;
        while (told(FC_MONOTONIC, &ns)) {
            monotonic = ns;
            pass(2000);
        }
        /* Then readers have the kernel's answers, lifted to where the page has been. */
        ns = lifted_kernel_ns();
        if (ns > monotonic)
            monotonic = ns;
        CHECK(update() == FC_TIMEKEEP_SERVES, "%s", discipline.outage);
        CHECK(told(FC_MONOTONIC, &ns), "it does not serve after an update");
        CHECK(ns >= monotonic, "went back by %.1f ns", monotonic - ns);
        for (int k = 0; k < 3; k++) {
            interval(&monotonic, &raw);
            update();
        }
    }
}

/* A reading as the library gives it. */
static void read_on(double *previous) {
    double ns;
    if (!told(FC_MONOTONIC, &ns))
        ns = lifted_kernel_ns();
    CHECK(ns >= *previous, "went back by %.1f ns", *previous - ns);
    *previous = ns;
}

/* The kernel's clock stands still for a while, as when its clocksource is changed. */
static void loses(const void *argument) {
    const double lost_ns = *(const double *)argument;
    double monotonic = 0;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 50; i++) {
        machine.ppm = -1e6;
        for (int k = 0; k < 10; k++, read_on(&monotonic))
            pass(lost_ns / 10);
        machine.ppm = 0;
        for (int k = 0; k < 5; k++, update())
            for (int look = 0; look < 100; look++, read_on(&monotonic))
                pass(FC_TIMEKEEP_INTERVAL_NS / 100);
    }
    for (int i = 0; i < 200; i++, update(), read_on(&monotonic))
        pass(FC_TIMEKEEP_INTERVAL_NS);
    CHECK(page.in_service && fabs(monotonic - monotonic_ns()) < 1000,
          "in_service %u, %.1f ns from the kernel", page.in_service, monotonic - monotonic_ns());
}

static void off_and_on(const void *argument) {
    double monotonic = 0, raw = 0, ns = 0;
    (void)argument;
    begin_with(2.6e9);
    settle();
    for (int i = 0; i < 200; i++) {
        machine.ppm = i % 2 ? 500 : -500;
        interval(&monotonic, &raw);
        update();
        interval(&monotonic, &raw);
        fc_timekeep_page_enable(&page, false);
        CHECK(!told(FC_MONOTONIC, &ns), "a reader is told %.0f", ns);
        for (int k = 0; k < 3; k++) {
            ns = lifted_kernel_ns();
            CHECK(ns >= monotonic, "the kernel's answer is %.1f ns before the page's",
                  monotonic - ns);
            monotonic = ns;
            pass(FC_TIMEKEEP_INTERVAL_NS);
            update();
            CHECK(!told(FC_MONOTONIC, &ns), "a reader is told %.0f", ns);
        }
        fc_timekeep_page_enable(&page, true);
        CHECK(!told(FC_MONOTONIC, &ns), "what was off before holds again");
        monotonic = lifted_kernel_ns();
        CHECK(update() == FC_TIMEKEEP_SERVES, "%s", discipline.outage);
        CHECK(told(FC_MONOTONIC, &ns) && ns >= monotonic, "went back by %.1f ns", monotonic - ns);
    }
}

/* A publisher that is late begins a new line, and is held up on the way to it, while the kernel
 * slews its clock. */
static void held_up(const void *argument) {
    const double *hold_ns = argument;
    for (uint32_t at = 1; at <= 60; at++) {
        double ns = 0;
        begin_with(2.6e9);
        for (int i = 0; i < 20; i++, pass(FC_TIMEKEEP_INTERVAL_NS))
            update();
        pass(30e6);
        machine.ppm = 500;
        machine.hold_at = at;
        machine.hold_ns = *hold_ns;
        update();
        machine.hold_at = 0;
        for (int i = 0; i < 100; i++, pass(1e6))
            CHECK(!told(FC_MONOTONIC, &ns) || fabs(ns - monotonic_ns()) <= 10e3,
                  "held up at %u, %d ms later: %.1f ns from the kernel", at, i,
                  ns - monotonic_ns());
        settle();
        CHECK(told(FC_MONOTONIC, &ns), "held up at %u: the page does not come back", at);
    }
}

static void refused(const void *argument) {
    (void)argument;
    begin_with(2.6e9);
    settle();
    pass(FC_TIMEKEEP_INTERVAL_NS);
    machine.refuse = true;
    CHECK(update() == FC_TIMEKEEP_FAILS, "it goes on");
    CHECK(page.in_service == 0, "the page is in service");
}

static void steered(const void *argument) {
    double monotonic = 0, raw = 0, ns = 0;
    (void)argument;
    begin_with(2.6e9);
    machine.ppm = 400;
    settle();
    for (int i = 0; i < 100; i++) {
        interval(&monotonic, &raw);
        update();
        CHECK(told(FC_RAW, &ns) && fabs(ns - kernel_ns(FC_RAW)) < 200, "raw is %.1f ns off",
              ns - kernel_ns(FC_RAW));
    }
}

int main(int argc, char **argv) {
    static const double hz[] = {1e6, 24e6, 1e9, 2.6e9, 5.2e9};
    static const struct bending bendings[] = {{70e6, 0},  {70e6, 20}, {10e6, 0}, {10e6, 3},
                                              {10e6, 20}, {3e6, 0},   {3e6, 20}};
    static const double steps[] = {3600e9, -3600e9, 1e6, -1e6, 2000};
    static const double holds[] = {1e6, 8e6, 25e6, 42e6, 500e6, 5e9};
    static const double lost[] = {10e3, 300e3, 900e3, 6.4e6, 90e6};
    static const struct fault faults[] = {
        {"a counter that goes back takes the page out of service at once", counter_back},
        {"a counter that stands still takes the page out of service at once", counter_stands},
        {"a counter that jumps takes the page out of service at once", counter_jumps},
        {"a counter that halves its rate takes the page out of service at once", counter_slows},
        {"a suspend takes the page out of service at once", suspends},
        {"a tick changed by a tenth takes the page out of service at once", tick_changes},
    };
    char sentence[128];
    check_begin(argc, argv);
    for (size_t i = 0; i < sizeof hz / sizeof *hz; i++) {
        snprintf(sentence, sizeof sentence, "a counter of %.0f kHz is followed closely",
                 hz[i] / 1e3);
        check_that(sentence, steady, &hz[i]);
    }
    for (size_t i = 0; i < sizeof bendings / sizeof *bendings; i++) {
        snprintf(sentence, sizeof sentence,
                 "slewed anew each %.0f ms, updates late by up to %.0f: within 10 us or not served",
                 bendings[i].flip_ns / 1e6, bendings[i].late);
        check_that(sentence, bent, &bendings[i]);
    }
    check_that("each timehands ends where the next begins, for every clock", joints, NULL);
    check_that("no slope leaves the kernel's rate by more than 1000 ppm", slopes, NULL);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        snprintf(sentence, sizeof sentence,
                 "a step of realtime by %.0f us is a step and touches nothing else",
                 steps[i] / 1e3);
        check_that(sentence, realtime_step, &steps[i]);
    }
    check_that("realtime does not go back unless it is set", realtime_stays, NULL);
    check_that("raw is not slewed", steered, NULL);
    check_that("interrupted brackets do not move the clock", interruptions, NULL);
    check_that("samples that are all wide are dropped, until the page is left", wide_samples, NULL);
    check_that("one sample out of bounds is dropped", one_contradiction, NULL);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        check_that(faults[i].name, outage, &faults[i]);
    check_that("after a publisher that was late nobody sees time go back", late, NULL);
    for (size_t i = 0; i < sizeof holds / sizeof *holds; i++) {
        snprintf(
            sentence, sizeof sentence,
            "a publisher that is held up for %.0f ms on the way to a new line tells nobody wrong",
            holds[i] / 1e6);
        check_that(sentence, held_up, &holds[i]);
    }
    for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
        snprintf(sentence, sizeof sentence,
                 "where the kernel loses %.0f us at a time nobody sees time go back",
                 lost[i] / 1e3);
        check_that(sentence, loses, &lost[i]);
    }
    check_that("switching off and on does not let time go back", off_and_on, NULL);
    check_that("a refused system call ends the service", refused, NULL);
    return check_end();
}
