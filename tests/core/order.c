/* SPDX-License-Identifier: MIT
 *
 * Threads that pass readings to each other never see time go back: the guarantee of the ordered
 * reads, and of the coarse ones.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "clocks.h"

/* So that the other thread gets on where there is one processor for both. */
static void wait_a_little(int *spins) {
    if (++*spins % 1000 == 0)
        sched_yield();
}

/* Each thread on a processor of its own, as far as there are any. */
static void pin(int index) {
    cpu_set_t allowed, one;
    int count, seen = 0;
    MUST(sched_getaffinity(0, sizeof allowed, &allowed));
    count = CPU_COUNT(&allowed);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == index % count) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            MUST(sched_setaffinity(0, sizeof one, &one));
            return;
        }
}

/* ---- Two threads take turns --------------------------------------------------------------------
 */

/* Where two processors are free, all turns are played in a fraction of a second; where they are
 * not, each can take as long as the scheduler lets another process run. */
enum { TURNS_MIN = 1000, TURNS_S = 1 };

struct turns {
    const struct clock_read *read;
    uint64_t rounds;
    _Atomic uint64_t turn;
    uint64_t stamp; /* handed over with the turn */
    uint64_t until; /* no more than TURNS_MIN turns beyond this time */
};

struct player {
    struct turns *turns;
    unsigned index;
};

static void *play(void *argument) {
    const struct player *player = argument;
    struct turns *t = player->turns;
    int spins = 0;
    pin((int)player->index);
    for (uint64_t turn = player->index;;
         turn += 2) { /* all else in `t` belongs to whose turn it is */
        uint64_t ns, now = 0;
        bool last;
        while (atomic_load_explicit(&t->turn, memory_order_acquire) != turn)
            wait_a_little(&spins);
        if (turn >= TURNS_MIN && turn % 1024 < 2 && bracket_libc_ns(FC_MONOTONIC, &now) == 0 &&
            now > t->until)
            t->rounds = 0;
        last = turn >= t->rounds;
        ns = t->read->read();
        CHECK(ns >= t->stamp, "%s: turn %" PRIu64 ": %" PRIu64 " after %" PRIu64, t->read->name,
              turn, ns, t->stamp);
        t->stamp = ns;
        atomic_store_explicit(&t->turn, turn + 1, memory_order_release);
        if (last)
            break;
    }
    return NULL;
}

struct order_case {
    const struct source *source;
    const struct clock_read *read;
};

static void two_threads_take_turns(const void *argument) {
    const struct order_case *c = argument;
    struct turns turns = {c->read, check_rounds(200000), 0, 0, 0};
    struct player players[2] = {{&turns, 0}, {&turns, 1}};
    pthread_t threads[2];
    use_source(c->source);
    CHECK(bracket_libc_ns(FC_MONOTONIC, &turns.until) == 0, "no clock");
    turns.until += TURNS_S * (uint64_t)1000000000;
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, play, &players[i]) == 0, "thread %d", i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

/* ---- Many threads share the latest -------------------------------------------------------------
 */

static _Atomic uint64_t latest;

static void *overtake(void *argument) {
    const struct order_case *c = argument;
    for (uint64_t i = 0; i < check_rounds(100000); i++) {
        uint64_t seen = atomic_load_explicit(&latest, memory_order_acquire);
        const uint64_t ns = c->read->read();
        CHECK(ns >= seen, "%s: %" PRIu64 " after %" PRIu64, c->read->name, ns, seen);
        while (seen < ns && !atomic_compare_exchange_weak(&latest, &seen, ns))
            continue;
    }
    return NULL;
}

static void many_threads_share_the_latest(const void *argument) {
    enum { THREADS = 4 };
    const struct order_case *c = argument;
    struct order_case copy = *c;
    pthread_t threads[THREADS];
    use_source(c->source);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, overtake, &copy) == 0, "thread %d", i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    char sentence[160];
    check_begin(argc, argv);
    for (int s = 0; s < SOURCES; s++)
        for (int r = 0; r < CLOCK_READS; r++) {
            const struct order_case c = {&sources[s], &clock_reads[r]};
            if (c.read->kind == RELAXED || !is_steady(c.read->clock))
                continue;
            if (c.source->number != FC_SOURCE_KERNEL_PAGE && c.read->clock != FC_MONOTONIC)
                continue; /* what the kernel answers, it answers in order or not at all */
            snprintf(sentence, sizeof sentence,
                     "%s: two threads that pass %s to and fro never see it go back", c.source->name,
                     c.read->name);
            check_that(sentence, two_threads_take_turns, &c);
            snprintf(sentence, sizeof sentence,
                     "%s: no thread reads %s below the latest that any has seen", c.source->name,
                     c.read->name);
            check_that(sentence, many_threads_share_the_latest, &c);
        }
    return check_end();
}
