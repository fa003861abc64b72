/* SPDX-License-Identifier: MIT
 *
 * What is done to the clocks while threads read them: steps, slews, leap seconds, far years. Only
 * for guests: the clock is set.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "checks.h"
#include "readers.h"
#include "report.h"

/* Between two steps; brackets must be shorter. */
enum { STEP_EVERY_US = 3000, STEP_LIMIT_NS = 500000 };

/* However quickly the brackets are there. */
enum { TIMES_MIN = 100 };

static const struct readers_setup with_steps = {.limit_ns = STEP_LIMIT_NS, .realtime_steps = true};
static const struct readers_setup without_steps = {.limit_ns = 0};

void check_idle(void) {
    read_for(&without_steps, target);
}

/* ---- Steps ------------------------------------------------------------------------------------
 */

static bool set_realtime(int64_t sec, long nsec) {
    const struct timespec ts = {.tv_sec = (time_t)sec, .tv_nsec = nsec};
    return expect(clock_settime(CLOCK_REALTIME, &ts) == 0, "clock_settime(%" PRId64 "): %s", sec,
                  strerror(errno));
}

static bool move_realtime(int64_t sec) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return set_realtime(ts.tv_sec + sec, ts.tv_nsec);
}

static bool adjust(struct timex *tx, const char *what) {
    return expect(adjtimex(tx) >= 0, "adjtimex, %s: %s", what, strerror(errno));
}

void check_set_hour(void) {
    int64_t step = 3600;
    uint64_t steps = 0;
    readers_start(&with_steps);
    while ((readers_go_on(target) || steps < TIMES_MIN) && move_realtime(step)) {
        if (steps++ % 16 == 0 && !expect_fast("after the clock was set by an hour"))
            break;
        step = -step;
        usleep(STEP_EVERY_US);
    }
    readers_stop();
    if (steps % 2)
        move_realtime(step);
    note("%" PRIu64 " steps", steps);
}

/* Relative, by adjtimex: a step that was computed from an old reading could come out as small as
 * its bracket, and then nothing could be said. */
static bool inject(int64_t ns) {
    struct timex tx = {.modes = ADJ_SETOFFSET | ADJ_NANO};
    tx.time.tv_sec = ns < 0 ? -1 : 0;
    tx.time.tv_usec = ns < 0 ? NS_PER_S + ns : ns;
    return adjust(&tx, "ADJ_SETOFFSET");
}

void check_set_millisecond(void) {
    int64_t step = NS_PER_MS;
    uint64_t steps = 0;
    readers_start(&with_steps);
    while ((readers_go_on(target) || steps < TIMES_MIN) && inject(step)) {
        if (steps++ % 16 == 0 && !expect_fast("after the clock was set by a millisecond"))
            break;
        step = -step;
        usleep(STEP_EVERY_US);
    }
    readers_stop();
    if (steps % 2)
        inject(step);
    note("%" PRIu64 " steps", steps);
}

/* ---- Slews ------------------------------------------------------------------------------------
 */

static bool set_frequency(long ppm) {
    struct timex tx = {.modes = ADJ_FREQUENCY, .freq = ppm * 65536};
    return adjust(&tx, "ADJ_FREQUENCY");
}

void check_frequency(void) {
    long ppm = 500;
    uint64_t flips = 0;
    readers_start(&without_steps);
    while ((readers_go_on(target) || flips < TIMES_MIN) && set_frequency(ppm)) {
        if (flips++ % 16 == 0 && !expect_fast("after the frequency was changed"))
            break;
        ppm = -ppm;
        usleep(STEP_EVERY_US);
    }
    readers_stop();
    set_frequency(0);
    note("%" PRIu64 " flips", flips);
}

static bool set_tick(long us) {
    struct timex tx = {.modes = ADJ_TICK, .tick = us};
    return adjust(&tx, "ADJ_TICK");
}

void check_tick(void) {
    enum { TICK_US = 10000, CHANGE_US = 900 };
    long change = CHANGE_US;
    uint64_t changes = 0;
    readers_start(&without_steps);
    while ((readers_go_on(target) || changes < TIMES_MIN) && set_tick(TICK_US + change)) {
        if (changes++ % 16 == 0 && !expect_fast("after the tick was changed"))
            break;
        change = -change;
        usleep(STEP_EVERY_US);
    }
    readers_stop();
    set_tick(TICK_US);
    note("%" PRIu64 " changes", changes);
}

/* ---- Leap seconds and TAI ---------------------------------------------------------------------
 */

/* What the clocks themselves say, by system call. */
static int tai_by_clocks(void) {
    uint64_t realtime = 0, tai = 0;
    bracket_syscall_ns(FC_REALTIME, &realtime);
    bracket_syscall_ns(FC_TAI, &tai);
    return (int)((tai - realtime + NS_PER_S / 2) / NS_PER_S);
}

static bool set_tai(int seconds) {
    struct timex tx = {.modes = ADJ_TAI, .constant = seconds};
    return adjust(&tx, "ADJ_TAI");
}

static bool set_status(int status) {
    struct timex tx = {.modes = ADJ_STATUS, .status = status};
    return adjust(&tx, "ADJ_STATUS");
}

/* Asks for a leap second and sets the clock to shortly before midnight, again and again until the
 * brackets are there. */
static void leap(int status, int tai_change) {
    enum { DAY_S = 86400, DAY = 20000, TAI_S = 37, PATIENCE_MS = 10000 };
    const struct readers_setup setup = {.limit_ns = 100 * NS_PER_MS, .realtime_steps = true};
    uint64_t leaps = 0;
    struct timespec before;
    clock_gettime(CLOCK_REALTIME, &before);
    readers_start(&setup);
    do {
        int waited = 0;
        /* Leaving STA_PLL sets the kernel's state of leap seconds back. It needs two whole seconds
         * to see one coming. */
        if (!set_tai(TAI_S) || !set_status(STA_PLL) || !set_status(0) ||
            !set_realtime((int64_t)DAY * DAY_S - 4, 900 * NS_PER_MS) || !set_status(status))
            break;
        /* Not by adjtimex, which tells of it up to a tick before the clocks do. */
        while (tai_by_clocks() == TAI_S && waited < PATIENCE_MS) {
            usleep(1000);
            waited++;
        }
        if (!expect(tai_by_clocks() == TAI_S + tai_change,
                    "no leap second came: TAI offset %d, wanted %d", tai_by_clocks(),
                    TAI_S + tai_change))
            break;
        expect(get_info().tai_offset_s == TAI_S + tai_change,
               "after the leap second fc_get_info has a TAI offset of %d, wanted %d",
               get_info().tai_offset_s, TAI_S + tai_change);
        expect_fast("after the leap second");
        leaps++;
        usleep(500000); /* TIME_OOP lasts a second: half of it is read */
    } while (readers_go_on(target));
    readers_stop();
    set_status(0);
    set_tai(0);
    set_realtime(before.tv_sec, before.tv_nsec);
    note("%" PRIu64 " leap seconds", leaps);
}

void check_leap_inserted(void) {
    leap(STA_INS, 1);
}

void check_leap_deleted(void) {
    leap(STA_DEL, -1);
}

void check_tai_offset(void) {
    static const int offsets[] = {37, 10, 36, 0};
    uint64_t changes = 0;
    readers_start(&with_steps);
    while (readers_go_on(target) || changes < TIMES_MIN) {
        const int offset = offsets[changes % 4];
        const uint64_t half_s = NS_PER_S / 2;
        uint64_t realtime, tai;
        if (!set_tai(offset))
            break;
        if (!expect(get_info().tai_offset_s == offset, "fc_get_info has a TAI offset of %d, not %d",
                    get_info().tai_offset_s, offset))
            break;
        realtime = fc_realtime_ns();
        tai = fc_tai_ns();
        expect(tai >= realtime + (uint64_t)offset * NS_PER_S &&
                   tai < realtime + (uint64_t)offset * NS_PER_S + half_s,
               "fc_tai_ns is %" PRId64 " ns ahead of fc_realtime_ns, not %d s",
               (int64_t)(tai - realtime), offset);
        changes++;
        usleep(STEP_EVERY_US);
    }
    readers_stop();
    set_tai(0);
    note("%" PRIu64 " changes", changes);
}

/* ---- Far years --------------------------------------------------------------------------------
 */

static void cross_second(int64_t second) {
    const struct readers_setup setup = {.limit_ns = 100 * NS_PER_MS, .realtime_steps = true};
    const uint64_t boundary_ns = (uint64_t)second * NS_PER_S;
    struct timespec before;
    uint64_t crossings = 0;
    clock_gettime(CLOCK_REALTIME, &before);
    readers_start(&setup);
    do {
        if (!set_realtime(second - 1, 500 * NS_PER_MS))
            break;
        expect(fc_realtime_ns() < boundary_ns, "already past the second %" PRId64, second);
        for (int waited = 0; waited < 4000 && fc_realtime_ns() < boundary_ns; waited++)
            usleep(1000);
        usleep(200000);
        expect(fc_realtime_ns() >= boundary_ns && fc_realtime_ns() < boundary_ns + 60ull * NS_PER_S,
               "fc_realtime_ns is %" PRIu64 " after second %" PRId64, fc_realtime_ns(), second);
        expect(fc_time(NULL) == (time_t)(fc_realtime_coarse_ns() / NS_PER_S) ||
                   fc_time(NULL) == (time_t)(fc_realtime_coarse_ns() / NS_PER_S),
               "fc_time is not the second of the coarse clock");
        expect_fast("past the boundary");
        crossings++;
    } while (readers_go_on(target));
    readers_stop();
    set_realtime(before.tv_sec, before.tv_nsec);
    note("%" PRIu64 " crossings", crossings);
}

/* 2^31 seconds: the end of a signed 32-bit count. */
void check_year_2038(void) {
    cross_second((int64_t)1 << 31);
}

/* 2^32 seconds. */
void check_year_2106(void) {
    cross_second((int64_t)1 << 32);
}
