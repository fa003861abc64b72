/* SPDX-License-Identifier: MIT
 *
 * What it costs to take a count that belongs to the processor whose skew is subtracted: RDTSCP,
 * user restart and kernel restart side by side, as ratios to a fence and the counter alone behind
 * the same kind of call. Rounds of all kinds alternate; the least and the median of each count.
 */
#define FASTCLOCK_INLINE
#include <fastclock.h>
#include <stdio.h>
#include <stdlib.h>

#include "skew.h"

enum { ROUNDS = 2000, READS = 200 };

static __attribute__((noinline)) int counter_alone(const void *page, uint64_t *cycles) {
    (void)page;
    *cycles = fc_counter_ordered_();
    return 1;
}

static struct way {
    const char *name;
    int (*counter)(const void *, uint64_t *);
    uint64_t cycles[ROUNDS];
} ways[] = {
    {"counter alone", counter_alone, {0}},
    {"rdtscp", fc_skew_rdtscp, {0}},
    {"user restart", fc_skew_user_restart, {0}},
    {"kernel restart", fc_skew_kernel_restart, {0}},
};

enum { WAYS = sizeof ways / sizeof *ways };

static struct fc_timekeep page;

static uint64_t round_cycles(const struct way *way) {
    const uint64_t began = fc_counter_ordered_();
    for (int i = 0; i < READS; i++) {
        uint64_t cycles;
        way->counter(&page, &cycles);
        __asm__ volatile("" : : "r"((uintptr_t)cycles));
    }
    return fc_counter_ordered_() - began;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(void) {
    uint64_t count;
    page.cpus = FC_TIMEKEEP_CPUS;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < WAYS; i++) {
            struct way *way = &ways[(i + round) % WAYS];
            if (way->counter(&page, &count))
                way->cycles[round] = round_cycles(way);
        }
    for (int i = 0; i < WAYS; i++)
        qsort(ways[i].cycles, ROUNDS, sizeof *ways[i].cycles, by_size);
    printf("%-15s %9s %9s\n", "", "least", "median");
    for (int i = 0; i < WAYS; i++) {
        const int middle = ROUNDS / 2;
        if (ways[i].cycles[0] == 0)
            printf("%-15s does not exist here\n", ways[i].name);
        else
            printf("%-15s %9.2f %9.2f\n", ways[i].name,
                   (double)ways[i].cycles[0] / (double)ways[0].cycles[0],
                   (double)ways[i].cycles[middle] / (double)ways[0].cycles[middle]);
    }
    return 0;
}
