/* SPDX-License-Identifier: MIT
 *
 * How far the counters of the processors differ, measured.
 *
 * Threads on two processors pass a turn back and forth, and each notes its counter whenever it has
 * the turn. A count that was noted later, as the turn shows, is later in time also if it is another
 * counter's, so that each pass bounds the difference of the two from one side:
 *
 *     answer - after  <=  skew  <=  answer - before
 *
 * where the answer was noted on the one processor, between `before` and `after` on the reference.
 * What the bounds of many rounds have in common holds the skew, and is as wide as the quickest
 * passes both ways. If 0 is in it, no program that hands readings from one processor to the other
 * can have seen one arrive before it was taken: these counters agree, as far as anybody can tell.
 * Else the middle is taken; half a pass is what it can be wrong by.
 *
 * The common part gets smaller with every look. When there is none left a counter has moved, or
 * runs at another rate: everything has to be measured anew, and the page is out of service
 * meanwhile.
 */
#define _GNU_SOURCE
#include "timekeep_processors.h"

#include <fastclock.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "skew.h"
#include "timekeep.h"

enum {
    ROUNDS_MEASURE = 1000, /* some of them are quick on the busiest machine */
    ROUNDS_WATCH = 100,
    MEASURE_NS = 2000000000, /* until both threads have had a processor at the same time */
    WATCH_NS = 2000000,
    SPINS = 10000, /* before one of them sleeps, so that it keeps nobody from running */
    NAP_NS = 50000
};

static const char *online_path = "/sys/devices/system/cpu/online";

/* ---- Two processors ---------------------------------------------------------------------------
 */

/* A turn and the count that was noted when it was passed, on cache lines of their own. */
struct pass {
    _Alignas(128) _Atomic uint64_t count;
    atomic_uint turn;
};

struct exchange {
    struct pass there, back;
    atomic_bool over; /* one of the two has given up */
    uint32_t processor, rounds;
    uint64_t deadline_ns;
    bool stayed;
};

static uint64_t now_ns(void) {
    struct fc_reading reading;
    return fc_sys_gettime(FC_MONOTONIC, &reading) < 0 ? UINT64_MAX : fc_reading_count(reading);
}

static bool move_to(uint32_t processor) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
}

static bool is_on(uint32_t processor) {
    return sched_getcpu() == (int)processor;
}

/* False if the other one has given up, or if this one does. */
static bool wait_for(struct exchange *x, struct pass *pass, unsigned turn) {
    static const struct timespec nap = {0, NAP_NS};
    for (int spins = 0;; spins++) {
        /* Acquire: the counter is read after the other one's was. */
        if (atomic_load_explicit(&pass->turn, memory_order_acquire) == turn)
            return true;
        if (spins < SPINS)
            continue;
        if (atomic_load_explicit(&x->over, memory_order_relaxed))
            return false;
        if (now_ns() > x->deadline_ns) {
            atomic_store_explicit(&x->over, true, memory_order_relaxed);
            return false;
        }
        nanosleep(&nap, NULL);
        spins = 0;
    }
}

/* The count is stored before the turn, so that it was read before the other one sees the turn. */
static uint64_t note_and_pass(struct pass *pass, unsigned turn) {
    const uint64_t count = fc_skew_uncorrected();
    atomic_store_explicit(&pass->count, count, memory_order_relaxed);
    atomic_store_explicit(&pass->turn, turn, memory_order_release);
    return count;
}

static void *answer(void *argument) {
    struct exchange *x = argument;
    if (!move_to(x->processor)) {
        atomic_store(&x->over, true);
        return NULL;
    }
    for (uint32_t i = 1; i <= x->rounds && wait_for(x, &x->there, i); i++)
        note_and_pass(&x->back, i);
    x->stayed = is_on(x->processor);
    return NULL;
}

/* Bounds for how far the counter of x->processor is ahead of the one of `reference`. Returns how
 * many rounds they come from; 0 if one of the threads was moved. */
static uint32_t exchange(struct exchange *x, uint32_t reference, int64_t *low, int64_t *high) {
    sigset_t all, former;
    pthread_t other;
    uint32_t rounds = 0;
    bool made;
    *low = INT64_MIN;
    *high = INT64_MAX;
    /* It is there since all were measured, unless it was switched off for a while. */
    if (!is_on(reference) && !move_to(reference))
        return 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &former);
    made = pthread_create(&other, NULL, answer, x) == 0;
    pthread_sigmask(SIG_SETMASK, &former, NULL);
    if (!made)
        return 0;
    for (uint32_t i = 1; i <= x->rounds; i++) {
        const uint64_t before = note_and_pass(&x->there, i);
        uint64_t count, after;
        if (!wait_for(x, &x->back, i))
            break;
        after = fc_skew_uncorrected();
        count = atomic_load_explicit(&x->back.count, memory_order_relaxed);
        if ((int64_t)(count - after) > *low)
            *low = (int64_t)(count - after);
        if ((int64_t)(count - before) < *high)
            *high = (int64_t)(count - before);
        rounds++;
    }
    atomic_store_explicit(&x->over, true, memory_order_relaxed);
    pthread_join(other, NULL);
    return x->stayed && is_on(reference) ? rounds : 0;
}

static uint32_t compare(const struct fc_timekeep_processors *p, uint32_t processor, uint32_t rounds,
                        uint64_t patience_ns, int64_t *low, int64_t *high) {
    struct exchange x;
    memset(&x, 0, sizeof x);
    x.processor = processor;
    x.rounds = rounds;
    x.deadline_ns = now_ns() + patience_ns;
    return exchange(&x, p->reference, low, high);
}

/* ---- All of them ------------------------------------------------------------------------------
 */

/* The numbers in a list such as 0-3,5,8-11. False if it cannot be read. *beyond: whether there are
 * larger ones than are known here. */
static bool read_online(bool *online, bool *beyond) {
    char list[4096]; /* as much as the kernel shows */
    FILE *file = fopen(online_path, "re");
    const char *at = file ? fgets(list, sizeof list, file) : NULL;
    bool found = false;
    if (file)
        fclose(file);
    while (at && *at >= '0' && *at <= '9') {
        char *end;
        const unsigned long first = strtoul(at, &end, 10);
        const unsigned long last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
        for (unsigned long i = first; i <= last && i < FC_TIMEKEEP_PROCESSORS; i++)
            found = online[i] = true;
        *beyond = last >= FC_TIMEKEEP_PROCESSORS;
        at = *end == ',' ? end + 1 : NULL;
    }
    return found;
}

/* Where the kernel does not show which processors there are: those that this thread may use. */
static void find_online(bool *online, bool *beyond) {
    cpu_set_t set;
    memset(online, 0, FC_TIMEKEEP_PROCESSORS * sizeof *online);
    *beyond = false;
    if (read_online(online, beyond) || sched_getaffinity(0, sizeof set, &set) < 0)
        return;
    for (uint32_t i = 0; i < FC_TIMEKEEP_PROCESSORS; i++)
        online[i] = CPU_ISSET(i, &set) != 0;
}

/* What the table is to say of a processor: nothing new while what it says fits the bounds. */
static int64_t skew_of(const struct fc_timekeep_processor *one) {
    if (!one->measured)
        return FC_TIMEKEEP_SKEW_UNKNOWN;
    if (one->low <= 0 && one->high >= 0)
        return 0;
    if (one->low <= one->skew && one->skew <= one->high)
        return one->skew;
    return one->low + (one->high - one->low) / 2;
}

static void settle(struct fc_timekeep_processors *p) {
    p->differ = p->beyond;
    for (uint32_t i = 0; i < FC_TIMEKEEP_PROCESSORS; i++) {
        struct fc_timekeep_processor *one = &p->of[i];
        if (!one->online)
            continue;
        one->skew = skew_of(one);
        if (one->skew != 0)
            p->differ = true;
    }
}

/* The same one if it is there, since counts in the page are compared with new ones; else the one
 * that this thread happens to be on. It stays there: so it need not be moved for every look. */
static uint32_t choose_reference(const struct fc_timekeep_processors *p, const bool *online) {
    int here;
    if (p->of[p->reference].measured && online[p->reference] && move_to(p->reference))
        return p->reference;
    here = sched_getcpu();
    if (here < 0 || here >= FC_TIMEKEEP_PROCESSORS)
        return 0;
    move_to((uint32_t)here);
    return (uint32_t)here;
}

void fc_timekeep_processors_measure(struct fc_timekeep_processors *p) {
    bool online[FC_TIMEKEEP_PROCESSORS], beyond;
    uint32_t reference;
    find_online(online, &beyond);
    reference = choose_reference(p, online);
    memset(p, 0, sizeof *p);
    p->reference = reference;
    p->beyond = beyond;
    for (uint32_t i = 0; i < FC_TIMEKEEP_PROCESSORS; i++) {
        struct fc_timekeep_processor *one = &p->of[i];
        one->online = online[i];
        one->measured = i == p->reference;
        if (one->online && !one->measured)
            one->measured =
                compare(p, i, ROUNDS_MEASURE, MEASURE_NS, &one->low, &one->high) == ROUNDS_MEASURE;
    }
    settle(p);
}

static const char *look_at(struct fc_timekeep_processors *p, uint32_t processor) {
    struct fc_timekeep_processor *one = &p->of[processor];
    const bool known = one->measured;
    int64_t low, high;
    if (compare(p, processor, ROUNDS_WATCH, WATCH_NS, &low, &high) == ROUNDS_WATCH) {
        one->low = known && one->low > low ? one->low : low;
        one->high = known && one->high < high ? one->high : high;
        one->measured = true;
    }
    if (one->measured && one->low > one->high) {
        p->stale = true;
        return "the counters of two processors went apart";
    }
    if (skew_of(one) == one->skew)
        return NULL;
    return !one->measured ? "a processor has come whose counter cannot be measured"
           : !known       ? "a processor's counter, which was not known, has been measured"
                          : "a processor's counter has turned out to be further ahead or behind";
}

static const char *come_and_go(struct fc_timekeep_processors *p) {
    bool online[FC_TIMEKEEP_PROCESSORS], beyond;
    const char *why = NULL;
    find_online(online, &beyond);
    if (beyond && !p->beyond)
        why = "a processor has come whose number is too large";
    p->beyond = beyond;
    if (!online[p->reference]) {
        p->stale = true;
        return "the processor that the others are compared with was switched off";
    }
    for (uint32_t i = 0; i < FC_TIMEKEEP_PROCESSORS && !why; i++) {
        struct fc_timekeep_processor *one = &p->of[i];
        const bool has_come = online[i] && !one->online;
        one->online = online[i];
        if (!one->online)
            one->measured = false;
        if (has_come) {
            one->skew = p->differ ? FC_TIMEKEEP_SKEW_UNKNOWN : 0; /* what the page says */
            why = look_at(p, i);
        }
    }
    return why;
}

const char *fc_timekeep_processors_watch(struct fc_timekeep_processors *p) {
    const char *why = come_and_go(p);
    for (uint32_t steps = 0; steps < FC_TIMEKEEP_PROCESSORS && !why; steps++) {
        p->turn = (p->turn + 1) % FC_TIMEKEEP_PROCESSORS;
        if (p->turn != p->reference && p->of[p->turn].online) {
            why = look_at(p, p->turn);
            break;
        }
    }
    return why;
}

void fc_timekeep_processors_adopt(struct fc_timekeep_processors *p,
                                  const struct fc_timekeep *page) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
        return;
    for (uint32_t i = 0; i < page->cpus && i < FC_TIMEKEEP_CPUS; i++)
        if (page->skew[i] == 0 && CPU_ISSET(i, &allowed)) {
            p->reference = i;
            p->of[i].measured = true;
            return;
        }
}

void fc_timekeep_processors_write(struct fc_timekeep_processors *p, struct fc_timekeep *page) {
    int64_t skew[FC_TIMEKEEP_CPUS];
    uint32_t cpus = 0;
    settle(p);
    for (uint32_t i = 0; i < FC_TIMEKEEP_CPUS && p->differ; i++) {
        skew[i] = p->of[i].online ? p->of[i].skew : FC_TIMEKEEP_SKEW_UNKNOWN;
        if (p->of[i].online)
            cpus = i + 1;
    }
    if (cpus || page->cpus)
        fc_timekeep_page_skew(page, skew, cpus);
}
