/* SPDX-License-Identifier: MIT
 *
 * The questions that the kernel's own tests of its clocks ask: do all ways of reading agree, does
 * anything go back or jump, within a thread and between threads, and does the adjusted clock run at
 * the adjusted rate. Harmless, but for the rates, which are only changed in a guest.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <unistd.h>

#include "checks.h"
#include "readers.h"
#include "report.h"
#include "vdso_entry.h"

static bool is_coarse(int32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

/* ---- A rotation -------------------------------------------------------------------------------
 */

enum { LIBC, SYSCALL, VDSO, FASTCLOCK, WAYS };
static const char *const way_names[WAYS] = {"libc", "system call", "vDSO", "fastclock"};

static bool read_by(int way, int32_t clock, uint64_t *ns) {
    switch (way) {
    case LIBC: return bracket_libc_ns(clock, ns) == 0;
    case SYSCALL: return bracket_syscall_ns(clock, ns) == 0;
    case VDSO: return vdso_entry_ns(clock, ns);
    default: return fc_read_ns(clock, ns) == 0;
    }
}

/* One thread reads one clock by four ways in turn. Nothing goes back; and a round that lies between
 * two readings of the raw clock spans no more than these, whatever interrupted it: a gap is the
 * machine's own or it is a fault. */
static void rotate(int32_t clock, uint64_t rounds) {
    /* NTP and the tick may bend a clock by 10 % and 500 ppm; a coarse one moves by ticks. */
    const uint64_t tick_ns = get_info().coarse_resolution_ns;
    uint64_t previous = 0, gap_max = 0, raw_before = 0, raw_after = 0, kernels = 0;
    int previous_way = SYSCALL;
    bracket_syscall_ns(FC_RAW, &raw_before);
    for (uint64_t round = 0; round < rounds; round++) {
        uint64_t first = 0, ns = 0, bound;
        for (int i = 0; i < WAYS; i++) {
            const int way = (i + (int)(round / 7)) % WAYS; /* each follows each */
            if (!expect(read_by(way, clock, &ns), "%s by %s: no answer", clock_name(clock),
                        way_names[way]))
                return;
            if (ns < previous) {
                if (way != FASTCLOCK && previous_way != FASTCLOCK)
                    kernels++;
                else
                    fail("%s went back by %" PRIu64 " ns from %s to %s", clock_name(clock),
                         previous - ns, way_names[previous_way], way_names[way]);
            }
            if (i == 0)
                first = ns;
            if (round && ns - previous > gap_max)
                gap_max = ns - previous;
            previous = ns;
            previous_way = way;
            report->good++;
        }
        bracket_syscall_ns(FC_RAW, &raw_after);
        bound = (raw_after - raw_before) + (raw_after - raw_before) / 8 + 1;
        if (is_coarse(clock))
            bound += 2 * tick_ns;
        expect(ns - first <= bound,
               "%s: a round spans %" PRIu64 " ns, between readings of the raw clock %" PRIu64
               " ns apart",
               clock_name(clock), ns - first, raw_after - raw_before);
        raw_before = raw_after;
    }
    if (kernels)
        note_kernels("%s: %" PRIu64 " times back without fastclock", clock_name(clock), kernels);
}

void check_rotation(void) {
    if (!expect(vdso_entry_open(), "no clock function in the vDSO"))
        return;
    for (int i = 0; i < CLOCKS; i++)
        rotate(clocks[i], target / (CLOCKS * WAYS));
    report->brackets = report->good;
}

/* ---- Inconsistency ----------------------------------------------------------------------------
 */

/* Long runs of each clock, as fast as they can be had, never go back; and what one clock says
 * agrees with what the others say. */
void check_inconsistency(void) {
    enum { RUN = 4096 };
    static uint64_t run[RUN];
    const uint64_t runs = target / (RUN * CLOCKS) + 1;
    for (uint64_t k = 0; k < runs; k++) {
        for (int i = 0; i < CLOCKS; i++) {
            if (!expect(fc_fill_ns(clocks[i], run, RUN) == 0, "fc_fill_ns(%s)",
                        clock_name(clocks[i])))
                return;
            for (int j = 1; j < RUN; j++)
                expect(run[j] >= run[j - 1], "%s goes back by %" PRIu64 " ns in a run",
                       clock_name(clocks[i]), run[j - 1] - run[j]);
            report->good += RUN;
        }
    }
    for (uint64_t k = 0; k < 1000; k++) {
        const struct fc_info info = k % 100 == 0 ? get_info() : (struct fc_info){0};
        const uint64_t coarse = fc_monotonic_coarse_ns(), fine = fc_monotonic_ns(),
                       boot = fc_boottime_ns(), later = fc_monotonic_ns();
        const uint64_t real_coarse = fc_realtime_coarse_ns(), real = fc_realtime_ns(),
                       tai = fc_tai_ns();
        expect(coarse <= fine, "monotonic coarse is ahead of monotonic by %" PRIu64 " ns",
               coarse - fine);
        expect(real_coarse <= real, "realtime coarse is ahead of realtime by %" PRIu64 " ns",
               real_coarse - real);
        expect(boot >= fine && later >= fine, "boottime %" PRIu64 " is behind monotonic %" PRIu64,
               boot, fine);
        if (info.size)
            expect(tai >= real + (uint64_t)info.tai_offset_s * NS_PER_S,
                   "tai is %" PRId64 " ns from realtime, the offset is %d s", (int64_t)(tai - real),
                   info.tai_offset_s);
    }
    report->brackets = report->good;
}

/* ---- Threads ----------------------------------------------------------------------------------
 */

/* Threads put stamps onto one list in turn, under a lock: the list is in order. */
enum { THREADS = 4 };
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t list_last[CLOCKS], list_length;
static int list_last_by[CLOCKS];

static void *put_stamps(void *argument) {
    const int me = (int)(intptr_t)argument;
    for (uint64_t k = 0; k < target / (THREADS * CLOCKS); k++) {
        for (int i = 0; i < CLOCKS; i++) {
            uint64_t ns = 0;
            pthread_mutex_lock(&list_lock);
            if (fc_read_ns(clocks[i], &ns) != 0 || ns < list_last[i])
                fail("%s: thread %d read %" PRIu64 " after thread %d had read %" PRIu64,
                     clock_name(clocks[i]), me, ns, list_last_by[i], list_last[i]);
            list_last[i] = ns;
            list_last_by[i] = me;
            list_length++;
            pthread_mutex_unlock(&list_lock);
        }
    }
    return NULL;
}

void check_threads(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, put_stamps, (void *)(intptr_t)i) != 0) {
            perror("pthread_create");
            exit(2);
        }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    report->good = report->brackets = list_length;
}

/* ---- Rates ------------------------------------------------------------------------------------
 */

/* A reading of monotonic between two of raw, the narrowest of several; `width_ns` is how well the
 * two belong together. */
struct pair {
    uint64_t raw_ns, monotonic_ns, width_ns;
};

static struct pair narrowest_pair(bool ours) {
    struct pair best = {0, 0, UINT64_MAX};
    for (int i = 0; i < 200; i++) {
        uint64_t before = 0, between = 0, after = 0;
        if (ours) {
            before = fc_raw_ns();
            between = fc_monotonic_ns();
            after = fc_raw_ns();
        } else {
            bracket_syscall_ns(FC_RAW, &before);
            bracket_syscall_ns(FC_MONOTONIC, &between);
            bracket_syscall_ns(FC_RAW, &after);
        }
        if (after - before < best.width_ns)
            best = (struct pair){before + (after - before) / 2, between, after - before};
    }
    return best;
}

/* How much faster monotonic ran than raw, in parts per million, and how far that can be off. */
struct rate {
    double ppm, uncertain_ppm;
};

static struct rate rate_between(struct pair a, struct pair b) {
    const double raw = (double)(b.raw_ns - a.raw_ns);
    const double monotonic = (double)(b.monotonic_ns - a.monotonic_ns);
    return (struct rate){(monotonic - raw) / raw * 1e6,
                         (double)(a.width_ns + b.width_ns) / raw * 1e6};
}

static double distance(double a, double b) {
    return a > b ? a - b : b - a;
}

static struct rate measured_rate(const char *when) {
    const struct pair kernel0 = narrowest_pair(false), ours0 = narrowest_pair(true);
    struct pair kernel1, ours1;
    struct rate ours, kernel;
    usleep(1000000);
    ours1 = narrowest_pair(true);
    kernel1 = narrowest_pair(false);
    ours = rate_between(ours0, ours1);
    kernel = rate_between(kernel0, kernel1);
    /* Both measure the same second, give or take the pairs themselves, in which the kernel may bend
     * its clock a little: 5 ppm for that. */
    expect(distance(ours.ppm, kernel.ppm) <= ours.uncertain_ppm + kernel.uncertain_ppm + 5,
           "%s: monotonic against raw %.2f ppm by fastclock, %.2f by system call, known to %.2f",
           when, ours.ppm, kernel.ppm, ours.uncertain_ppm + kernel.uncertain_ppm);
    return ours;
}

extern bool clock_may_be_set;

void check_raw_rate(void) {
    struct rate rate = measured_rate("as it is");
    double expected;
    struct timex tx = {.modes = 0};
    adjtimex(&tx);
    report->good = report->brackets = 800;
    if (!clock_may_be_set) {
        note("%.2f ppm, known to %.2f; adjtimex has %.2f", rate.ppm, rate.uncertain_ppm,
             (double)tx.freq / 65536);
        return;
    }
    for (int i = 0; i < 2; i++) {
        tx = (struct timex){.modes = ADJ_FREQUENCY, .freq = (i ? -500 : 500) * 65536};
        expected = i ? -500 : 500;
        expect(adjtimex(&tx) >= 0, "adjtimex: %s", strerror(errno));
        usleep(50000); /* the new rate holds from the next tick on */
        rate = measured_rate(i ? "at -500 ppm" : "at +500 ppm");
        /* The kernel corrects what it has rounded before: 20 ppm for that. */
        expect(distance(rate.ppm, expected) <= rate.uncertain_ppm + 20,
               "%.2f ppm were asked for, %.2f came, known to %.2f", expected, rate.ppm,
               rate.uncertain_ppm);
        note("%+.0f: %.2f ppm", expected, rate.ppm);
    }
    tx = (struct timex){.modes = ADJ_FREQUENCY, .freq = 0};
    adjtimex(&tx);
}
