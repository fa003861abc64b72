/* SPDX-License-Identifier: MIT
 *
 * The timekeep page where it is meant for: on a kernel whose clocksource is hpet. Its readings
 * follow the kernel's clocks from samples, so that they may lie outside a bracket by a little: how
 * far, is what is claimed here, while the kernel's clock is bent and set; and that what may not go
 * back does not.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

#include "checks.h"
#include "readers.h"
#include "report.h"

/* The page's slope may be off by the kernel's whole range, 1000 ppm, until the next update: 10 ms
 * after the last one where its readers get their turn, but here two processors take turns on a busy
 * machine, and it is valid for ten times that. */
enum { IDLE_MAX_NS = 100000, BENT_MAX_NS = 150000, LOST_MAX_NS = 1000000000 };

/* Of the clocksource: some in a thousand cost the kernel time that the page had told already. */
enum { CHANGES = 600 };

enum { FOLLOWERS = 2, FOLLOWED = 3, BRACKET_MAX_NS = 200000, FASTER_MIN = 5 };
static const int32_t followed[FOLLOWED] = {FC_MONOTONIC, FC_RAW, FC_BOOTTIME};

static atomic_bool follow_stop;
static _Atomic uint64_t seen[FOLLOWED], worst_ns[FOLLOWED], backs[FOLLOWED], kernel_seen[FOLLOWED],
    kernel_backs[FOLLOWED], follow_good, follow_void;

/* The first reading below one that had been seen before. */
static struct back { uint64_t by, before, ours, after; } back_first[FOLLOWED];

static void raise_to(_Atomic uint64_t *high, uint64_t value) {
    uint64_t old = atomic_load(high);
    while (value > old && !atomic_compare_exchange_weak(high, &old, value))
        ;
}

/* Each reading between two system calls; one wide bracket says little and is left out. */
static void *follow(void *unused) {
    (void)unused;
    while (!atomic_load(&follow_stop)) {
        for (int i = 0; i < FOLLOWED; i++) {
            uint64_t before = 0, ours = 0, after = 0, highest = atomic_load(&kernel_seen[i]);
            bracket_syscall_ns(followed[i], &before);
            atomic_fetch_add(&kernel_backs[i], before < highest);
            raise_to(&kernel_seen[i], before);
            highest = atomic_load(&seen[i]);
            if (!expect(fc_read_ns(followed[i], &ours) == 0, "%s: no time",
                        clock_name(followed[i])))
                return NULL;
            bracket_syscall_ns(followed[i], &after);
            if (ours < highest && atomic_fetch_add(&backs[i], 1) == 0) {
                back_first[i] = (struct back){highest - ours, before, ours, after};
            }
            raise_to(&seen[i], ours);
            if (after - before > BRACKET_MAX_NS) {
                atomic_fetch_add(&follow_void, 1);
                continue;
            }
            raise_to(&worst_ns[i], ours < before ? before - ours : ours > after ? ours - after : 0);
            atomic_fetch_add(&follow_good, 1);
        }
    }
    return NULL;
}

/* Disturbs for a while, and says how far the readings were from the kernel's. */
static void followed_while(const char *what, void (*disturb)(int turn), int turns,
                           uint64_t bound_ns) {
    pthread_t threads[FOLLOWERS];
    for (int i = 0; i < FOLLOWED; i++)
        worst_ns[i] = 0;
    atomic_store(&follow_stop, false);
    for (int i = 0; i < FOLLOWERS; i++)
        if (pthread_create(&threads[i], NULL, follow, NULL) != 0) {
            perror("pthread_create");
            exit(2);
        }
    for (int turn = 0; turn < turns && !report->failed; turn++)
        disturb(turn);
    atomic_store(&follow_stop, true);
    for (int i = 0; i < FOLLOWERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < FOLLOWED; i++) {
        const struct back *b = &back_first[i];
        expect(backs[i] == 0,
               "%s: %s went back %" PRIu64 " times (kernel: %" PRIu64 "), first by %" PRIu64
               " ns to %" PRId64 " ns after its bracket's beginning, %" PRId64 " before its end",
               what, clock_name(followed[i]), backs[i], kernel_backs[i], b->by,
               (int64_t)(b->ours - b->before), (int64_t)(b->after - b->ours));
        expect(worst_ns[i] <= bound_ns, "%s: %s was off by %" PRIu64 " ns", what,
               clock_name(followed[i]), worst_ns[i]);
    }
    note("%s: at most %" PRIu64 " ns off, the kernel went back %" PRIu64 " times", what,
         worst_ns[0] > worst_ns[2] ? worst_ns[0] : worst_ns[2],
         kernel_backs[0] + kernel_backs[1] + kernel_backs[2]);
}

static void disturb_idle(int turn) {
    (void)turn;
    usleep(3000);
}

static void disturb_frequency(int turn) {
    struct timex tx = {.modes = ADJ_FREQUENCY, .freq = (turn % 2 ? -500 : 500) * 65536};
    expect(adjtimex(&tx) >= 0, "adjtimex: %s", strerror(errno));
    usleep(3000);
}

static void disturb_steps(int turn) {
    struct timex tx = {.modes = ADJ_SETOFFSET | ADJ_NANO};
    tx.time.tv_sec = turn % 2 ? -3600 : 3600;
    expect(adjtimex(&tx) >= 0, "adjtimex: %s", strerror(errno));
    usleep(3000);
}

/* In some of the changes the kernel's clock loses time, up to some milliseconds. */
static void disturb_clocksource(int turn) {
    const char *name = turn % 2 ? "hpet" : "acpi_pm";
    const int error = clocksource_set(name);
    expect(error == 0, "clocksource %s: %s", name, strerror(-error));
    usleep(20000);
}

static uint64_t raw_now(void) {
    uint64_t ns = 0;
    bracket_syscall_ns(FC_RAW, &ns);
    return ns;
}

/* Rounds of each in turn; the minimum counts. */
static double times_faster(void) {
    enum { ROUNDS = 30, READS = 200 };
    uint64_t ours = UINT64_MAX, libc = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = raw_now(), ns, took;
        for (int i = 0; i < READS; i++)
            (void)fc_monotonic_ns();
        took = raw_now() - start;
        ours = took < ours ? took : ours;
        start = raw_now();
        for (int i = 0; i < READS; i++)
            bracket_libc_ns(FC_MONOTONIC, &ns);
        took = raw_now() - start;
        libc = took < libc ? took : libc;
    }
    return (double)libc / (double)(ours ? ours : 1);
}

void check_timekeep_hpet(void) {
    struct fc_info info = {0};
    double faster;
    expect(clocksource_is("hpet"), "the clocksource is not hpet");
    setenv("FASTCLOCK_SOURCE", "timekeep", 1); /* as a user would, before the first read */
    expect(fc_init() == 0, "fc_init: no source");
    /* Only reads that come often bring an own page up to date. */
    for (int tries = 0; tries < 2000; tries++) {
        for (int i = 0; i < 100; i++)
            (void)fc_monotonic_ns();
        info = get_info();
        if (info.serving == FC_SOURCE_TIMEKEEP)
            break;
    }
    if (!expect(info.source == FC_SOURCE_TIMEKEEP && info.serving == FC_SOURCE_TIMEKEEP,
                "source %s, serving %s (%s)", fc_source_name(info.source),
                fc_source_name(info.serving), fc_reason_text(info.serving_reason)))
        return;
    faster = times_faster();
    /* An emulated hpet costs a fraction of one behind a hypervisor. */
    expect(faster >= FASTER_MIN, "only %.1f times faster than clock_gettime", faster);
    note("%.0f times faster than clock_gettime", faster);
    followed_while("idle", disturb_idle, 150, IDLE_MAX_NS);
    followed_while("frequency", disturb_frequency, 150, BENT_MAX_NS);
    followed_while("steps", disturb_steps, 150, BENT_MAX_NS);
    followed_while("clocksource", disturb_clocksource, CHANGES, LOST_MAX_NS);
    info = get_info();
    note("%" PRIu64 " outages, %" PRIu64 " steps, serving %s", info.timekeep_outages,
         info.timekeep_steps, fc_source_name(info.serving));
    report->brackets = follow_good + follow_void;
    report->good = follow_good;
    report->voided = follow_void;
}
