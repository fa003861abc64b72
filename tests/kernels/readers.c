/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "readers.h"

#include <fastclock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "inlined.h"
#include "report.h"

const int32_t clocks[CLOCKS] = {FC_REALTIME,        FC_MONOTONIC,       FC_RAW, FC_BOOTTIME, FC_TAI,
                                FC_REALTIME_COARSE, FC_MONOTONIC_COARSE};

const char *clock_name(int32_t clock) {
    switch (clock) {
    case FC_REALTIME: return "realtime";
    case FC_MONOTONIC: return "monotonic";
    case FC_RAW: return "raw";
    case FC_BOOTTIME: return "boottime";
    case FC_TAI: return "tai";
    case FC_REALTIME_COARSE: return "realtime_coarse";
    default: return "monotonic_coarse";
    }
}

typedef uint64_t read_function(void);

/* In the order of `clocks`. */
static read_function *const called[CLOCKS] = {
    fc_realtime_ns,        fc_monotonic_ns,       fc_raw_ns, fc_boottime_ns, fc_tai_ns,
    fc_realtime_coarse_ns, fc_monotonic_coarse_ns};
static read_function *const relaxed[] = {fc_realtime_relaxed_ns, fc_monotonic_relaxed_ns,
                                         fc_raw_relaxed_ns};
enum {
    FIRST_COARSE = 5,
    RELAXED = 3,
    BATCH = 16,
    HANG_S = 30,
    TOO_LONG_S = 75,
    BRACKETS_PER_S_MIN = 400000
};

/* The highest reading that any of those who read together has seen, by our read and by the C
 * library's. */
struct highest {
    _Atomic uint64_t ours[CLOCKS], control[CLOCKS];
};

struct reader {
    struct readers_setup setup;
    struct highest *highest;
    struct highest own; /* of one who reads alone */
    struct bracket bracket[CLOCKS];
    struct bracket relaxed[RELAXED];
    uint64_t crossed[CLOCKS], control_crossed[CLOCKS];
    uint64_t pass;
    _Atomic uint64_t progress, good, fine;
    atomic_bool done;
};

/* ---- One reader -------------------------------------------------------------------------------
 */

static void raise_to(_Atomic uint64_t *high, uint64_t value) {
    uint64_t old = atomic_load_explicit(high, memory_order_relaxed);
    while (value > old && !atomic_compare_exchange_weak_explicit(
                              high, &old, value, memory_order_release, memory_order_relaxed))
        ;
}

/* A reading made after another thread's was seen is not below it. */
static void cross(struct reader *r, int i) {
    uint64_t seen = atomic_load_explicit(&r->highest->ours[i], memory_order_acquire), now;
    now = called[i]();
    r->crossed[i] += now < seen;
    raise_to(&r->highest->ours[i], now);
    if (r->setup.no_control)
        return;
    seen = atomic_load_explicit(&r->highest->control[i], memory_order_acquire);
    if (bracket_libc_ns(clocks[i], &now) == 0) {
        r->control_crossed[i] += now < seen;
        raise_to(&r->highest->control[i], now);
    }
}

static void run(struct reader *r, struct bracket *b, int i, read_function *read, uint64_t early_ns,
                uint64_t rounds) {
    const struct bracket_setup setup = {.clock = clocks[i],
                                        .read = read,
                                        .read_number = fc_read_ns,
                                        .limit_ns = r->setup.limit_ns,
                                        .early_ns = early_ns,
                                        .no_control = r->setup.no_control};
    const uint64_t good = b->ours.good;
    bracket_run(b, &setup, rounds);
    atomic_fetch_add(&r->good, b->ours.good - good);
    if (i < FIRST_COARSE)
        atomic_fetch_add(&r->fine, rounds);
    atomic_fetch_add(&r->progress, 1);
}

void reader_run(struct reader *r, uint64_t rounds) {
    for (int i = 0; i < CLOCKS; i++) {
        read_function *const ways[] = {called[i], NULL, inlined[i]};
        run(r, &r->bracket[i], i, ways[r->pass % 3], 0, rounds);
        cross(r, i);
    }
    if (r->pass++ % 4 == 0)
        for (int i = 0; i < RELAXED; i++)
            run(r, &r->relaxed[i], i, relaxed[i], BRACKET_RELAXED_EARLY_NS, rounds / 2 + 1);
}

/* ---- Judging ----------------------------------------------------------------------------------
 */

/* Whether `ours` faults are no more than the kernel's own, seen by the control beside them. */
static bool kernels_own(uint64_t ours, uint64_t control) {
    return control > 0 && ours <= 4 * control + 4;
}

static bool may_go_back(const struct readers_setup *setup, int32_t clock) {
    return setup->realtime_steps &&
           (clock == FC_REALTIME || clock == FC_TAI || clock == FC_REALTIME_COARSE);
}

static void judge_outside(const char *name, const struct bracket *b) {
    const struct bracket_tally *t = &b->ours;
    expect(b->refused == 0, "%s: the system call ended with %d", name, (int)b->refused);
    expect(t->errors == 0, "%s: %" PRIu64 " reads had no answer, first %d", name, t->errors,
           (int)t->error);
    if (t->outside == 0)
        return;
    if (kernels_own(t->outside, b->control.outside))
        note_kernels("%s: %" PRIu64 " outside, the vDSO %" PRIu64, name, t->outside,
                     b->control.outside);
    else
        fail("%s: %" PRIu64 " outside (vDSO: %" PRIu64 "), first %" PRId64
             " ns from before, %" PRId64 " ns from after",
             name, t->outside, b->control.outside, (int64_t)(t->first.ours - t->first.before),
             (int64_t)(t->first.ours - t->first.after));
}

static void judge_back(const char *name, const char *where, uint64_t back, uint64_t control) {
    report->back += back;
    report->control_back += control;
    if (back == 0)
        return;
    if (kernels_own(back, control))
        note_kernels("%s %s: %" PRIu64 " times back, the vDSO %" PRIu64, name, where, back,
                     control);
    else
        fail("%s %s: %" PRIu64 " times back (vDSO: %" PRIu64 ")", name, where, back, control);
}

static void judge(const struct readers_setup *setup, const struct bracket *b, int32_t clock,
                  const char *name) {
    report->brackets += b->rounds;
    report->good += b->ours.good;
    report->voided += b->voided;
    report->outside += b->ours.outside;
    report->control_outside += b->control.outside;
    judge_outside(name, b);
    if (!may_go_back(setup, clock))
        judge_back(name, "in a thread", b->ours.back, b->control.back);
}

void reader_judge_brackets(struct reader *r) {
    const struct readers_setup any = {.realtime_steps = true};
    for (int i = 0; i < CLOCKS; i++)
        judge(&any, &r->bracket[i], FC_REALTIME, clock_name(clocks[i]));
}

void reader_judge(struct reader *r) {
    for (int i = 0; i < CLOCKS; i++) {
        const char *name = clock_name(clocks[i]);
        judge(&r->setup, &r->bracket[i], clocks[i], name);
        if (!may_go_back(&r->setup, clocks[i]))
            judge_back(name, "across threads", r->crossed[i], r->control_crossed[i]);
    }
    for (int i = 0; i < RELAXED; i++) {
        /* Relaxed reads may change places with what surrounds them: only the bracket counts. */
        const struct readers_setup any = {.realtime_steps = true};
        char name[32];
        snprintf(name, sizeof name, "%s relaxed", clock_name(clocks[i]));
        judge(&any, &r->relaxed[i], FC_REALTIME, name);
    }
}

struct reader *reader_alone(const struct readers_setup *setup) {
    struct reader *r = calloc(1, sizeof *r);
    if (!r) {
        perror("calloc");
        exit(2);
    }
    r->setup = *setup;
    r->highest = &r->own;
    return r;
}

/* ---- Several at once --------------------------------------------------------------------------
 */

static struct highest together;
static struct reader *readers[READERS];
static pthread_t threads[READERS];
static atomic_bool stop;
static uint64_t started_ns, watched[READERS], watched_ns[READERS];

/* What no check here changes. */
static uint64_t now_ns(void) {
    uint64_t ns = 0;
    bracket_syscall_ns(FC_RAW, &ns);
    return ns;
}

static void *read_on(void *argument) {
    struct reader *r = argument;
    while (!atomic_load(&stop))
        reader_run(r, BATCH);
    atomic_store(&r->done, true);
    return NULL;
}

void readers_start(const struct readers_setup *setup) {
    atomic_store(&stop, false);
    started_ns = now_ns();
    for (int i = 0; i < CLOCKS; i++) {
        atomic_store(&together.ours[i], 0);
        atomic_store(&together.control[i], 0);
    }
    for (int i = 0; i < READERS; i++) {
        readers[i] = reader_alone(setup);
        readers[i]->highest = &together;
        watched[i] = 0;
        watched_ns[i] = started_ns;
        if (pthread_create(&threads[i], NULL, read_on, readers[i]) != 0) {
            perror("pthread_create");
            exit(2);
        }
    }
}

static uint64_t sum(size_t offset) {
    uint64_t total = 0;
    for (int i = 0; i < READERS; i++)
        total += atomic_load((_Atomic uint64_t *)(void *)((char *)readers[i] + offset));
    return total;
}

uint64_t readers_good(void) {
    return sum(offsetof(struct reader, good));
}

uint64_t readers_fine(void) {
    return sum(offsetof(struct reader, fine));
}

/* False, and a failure, if a reader has made no progress for long. */
static bool alive(void) {
    const uint64_t now = now_ns(), second = 1000000000;
    for (int i = 0; i < READERS; i++) {
        const uint64_t progress = atomic_load(&readers[i]->progress);
        if (progress != watched[i] || atomic_load(&readers[i]->done)) {
            watched[i] = progress;
            watched_ns[i] = now;
        } else if (now - watched_ns[i] > HANG_S * second) {
            fail("reader %d hangs after %" PRIu64 " batches", i, progress);
            return false;
        }
    }
    return true;
}

bool readers_go_on(uint64_t good) {
    uint64_t too_long_s;
    if (!alive())
        return false;
    if (readers_good() >= good)
        return false;
    /* For long runs as much again as a slow machine needs. */
    too_long_s = TOO_LONG_S + good / BRACKETS_PER_S_MIN;
    return expect(now_ns() - started_ns < too_long_s * 1000000000,
                  "only %" PRIu64 " of %" PRIu64 " good brackets in %" PRIu64 " s", readers_good(),
                  good, too_long_s);
}

/* Adds up what the threads have seen: the report has one number for each clock. */
static void add(struct reader *to, const struct reader *from) {
    for (int i = 0; i < CLOCKS; i++) {
        bracket_add(&to->bracket[i], &from->bracket[i]);
        to->crossed[i] += from->crossed[i];
        to->control_crossed[i] += from->control_crossed[i];
    }
    for (int i = 0; i < RELAXED; i++)
        bracket_add(&to->relaxed[i], &from->relaxed[i]);
}

void readers_stop(void) {
    atomic_store(&stop, true);
    for (int i = 0; i < READERS; i++) {
        while (!atomic_load(&readers[i]->done)) {
            if (!alive())
                return; /* it cannot be joined; the process ends soon */
            usleep(1000);
        }
        pthread_join(threads[i], NULL);
        if (i > 0)
            add(readers[0], readers[i]);
    }
    reader_judge(readers[0]);
    for (int i = 0; i < READERS; i++) {
        free(readers[i]);
        readers[i] = NULL;
    }
}

void read_for(const struct readers_setup *setup, uint64_t good) {
    readers_start(setup);
    while (readers_go_on(good))
        usleep(2000);
    readers_stop();
}
