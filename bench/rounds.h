/* SPDX-License-Identifier: MIT
 *
 * How the programs in C measure. Every row is a loop of a few hundred reads. A round runs each row
 * once, in a new order each time, so that whatever disturbs the machine meets all of them alike;
 * the minimum and the median over thousands of rounds are the result. The rounds are measured with
 * the ordered counter, not with a system call, whose own cost and jitter would be those of a dozen
 * reads; what the two readings at the ends of a round cost is measured by rounds without reads, and
 * taken off. Each reading goes into a register that the compiler believes is used, so that no read
 * is dropped or moved out of the loop.
 */
#ifndef FASTCLOCK_BENCH_ROUNDS_H
#define FASTCLOCK_BENCH_ROUNDS_H

#include <stdint.h>

enum { ROWS_MAX = 64, ROUNDS = 2000, ROUNDS_MAX = 1000000 };

/* The compiler believes that the value is used, and that the variable may have changed. */
#define USE(value) __asm__ volatile("" : : "r"(value))
#define HIDE(variable) __asm__ volatile("" : "+r"(variable))

#define ROW(name, before, read)                                                                    \
    static void name(uint32_t reads) {                                                             \
        before;                                                                                    \
        for (uint32_t i = 0; i < reads; i++)                                                       \
            USE(read);                                                                             \
    }

/* `baseline` is the row to which the ratio is taken: the least that could do the same. */
struct row {
    const char *name;
    const char *baseline;
    void (*run)(uint32_t reads);
    uint32_t reads;   /* in a round */
    double *costs_ns; /* of a read, for each round; sorted in the end */
};

/* Fills in each row's costs; `count` is at most ROWS_MAX. Ends the program if there is no memory
 * for them. */
void measure_rows(struct row *rows, uint32_t count, uint32_t rounds);

/* The members "compiler", "rounds", "round_ns" and "rows" of a JSON object. */
void print_rows(const struct row *rows, uint32_t count);

/* A whole number from 1 to `limit`, or 0 if it is none. */
uint64_t parse_whole(const char *text, uint64_t limit);

#endif
