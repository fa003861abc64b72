/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "threads.h"

#include <fastclock.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

enum { PROCESSORS_MAX = 1024 };

/* The processors that this process may use. */
static uint32_t allowed(uint32_t *processors) {
    cpu_set_t set;
    uint32_t count = 0;
    if (sched_getaffinity(0, sizeof set, &set) < 0) {
        processors[0] = 0;
        return 1;
    }
    for (uint32_t i = 0; i < CPU_SETSIZE && count < PROCESSORS_MAX; i++)
        if (CPU_ISSET(i, &set))
            processors[count++] = i;
    return count;
}

uint32_t threads_wanted(void) {
    uint32_t processors[PROCESSORS_MAX];
    const uint32_t count = allowed(processors);
    return count < 2 ? 2 : count;
}

struct start {
    void (*body)(void *);
    void *state;
    uint32_t processor;
};

static void *begin(void *argument) {
    const struct start *start = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(start->processor, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set); /* a wish: it tests less without */
    start->body(start->state);
    return NULL;
}

bool threads_run(void (*body)(void *), void *states, uint32_t count, uint64_t size) {
    uint32_t processors[PROCESSORS_MAX], made = 0;
    const uint32_t available = allowed(processors);
    pthread_t *threads = calloc(count, sizeof *threads);
    struct start *starts = calloc(count, sizeof *starts);
    if (threads && starts) {
        for (; made < count; made++) {
            starts[made] =
                (struct start){body, (char *)states + made * size, processors[made % available]};
            if (pthread_create(&threads[made], NULL, begin, &starts[made]) != 0)
                break;
        }
        for (uint32_t i = 0; i < made; i++)
            pthread_join(threads[i], NULL);
    }
    free(starts);
    free(threads);
    return made == count;
}

/* ---- Handing over -----------------------------------------------------------------------------
 */

struct runner {
    struct handover *handover;
    uint64_t (*read)(void);
    uint64_t end_ns, steps, back;
};

static void hand_over(void *state) {
    struct runner *r = state;
    do {
        for (int i = 0; i < 1000; i++) {
            const uint64_t back = handover_step(r->handover, r->read);
            if (back > r->back)
                r->back = back;
        }
        r->steps += 1000;
    } while (fc_monotonic_ns() < r->end_ns);
}

bool handover_test(uint64_t (*read)(void), uint64_t duration_ns, uint64_t *steps, uint64_t *back) {
    const uint32_t count = threads_wanted();
    struct handover handover = {0};
    struct runner *runners = calloc(count, sizeof *runners);
    bool done = false;
    *steps = *back = 0;
    if (runners) {
        const uint64_t end_ns = fc_monotonic_ns() + duration_ns;
        for (uint32_t i = 0; i < count; i++)
            runners[i] = (struct runner){&handover, read, end_ns, 0, 0};
        done = threads_run(hand_over, runners, count, sizeof *runners);
        for (uint32_t i = 0; i < count; i++) {
            *steps += runners[i].steps;
            if (runners[i].back > *back)
                *back = runners[i].back;
        }
    }
    free(runners);
    return done;
}
