/* SPDX-License-Identifier: MIT
 *
 * A thread for each processor that this process may use, pinned to it, and the question that they
 * answer together: whether a time that one of them has read and handed over can be after one that
 * another reads next.
 */
#ifndef FASTCLOCK_CLI_THREADS_H
#define FASTCLOCK_CLI_THREADS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Runs body(state of thread i) in `count` threads and waits for them. `states` are `count` elements
 * of `size` bytes. Two threads at least, also on one processor. False if they cannot be made. */
uint32_t threads_wanted(void);
bool threads_run(void (*body)(void *), void *states, uint32_t count, uint64_t size);

/* The latest reading that any thread has made. */
struct handover {
    _Atomic uint64_t latest;
};

/* Takes the latest reading, makes one by `read`, and hands on the later. Returns how far time went
 * back in between, 0 if it did not. The acquire and the release are what a program that hands over
 * a reading has as well; the rest is the clock's affair. */
static inline uint64_t handover_step(struct handover *h, uint64_t (*read)(void)) {
    uint64_t seen = atomic_load_explicit(&h->latest, memory_order_acquire);
    const uint64_t now = read();
    if (now < seen)
        return seen - now;
    while (seen < now && !atomic_compare_exchange_weak_explicit(
                             &h->latest, &seen, now, memory_order_release, memory_order_relaxed))
        ;
    return 0;
}

/* Hands readings over between all processors for `duration_ns`. `steps`: how many; `back`: the
 * largest step back. False if the threads cannot be made. */
bool handover_test(uint64_t (*read)(void), uint64_t duration_ns, uint64_t *steps, uint64_t *back);

#endif
