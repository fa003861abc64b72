/* SPDX-License-Identifier: MIT
 *
 * Threads that read all the while: every clock, by call, by number and inlined, each reading in a
 * bracket of two raw system calls, with the vDSO as a control in the same one; and readings handed
 * from thread to thread, which must not go back.
 */
#ifndef FASTCLOCK_TESTS_KERNELS_READERS_H
#define FASTCLOCK_TESTS_KERNELS_READERS_H

#include <stdbool.h>
#include <stdint.h>

#include "../bracket.h"

enum { CLOCKS = 7, READERS = 3 };
extern const int32_t clocks[CLOCKS];
const char *clock_name(int32_t clock);

struct readers_setup {
    /* Below the smallest step that the check makes, and below the time between two of them, so that
     * no bracket holds a step unseen. 0: no clock is set. */
    uint64_t limit_ns;
    bool realtime_steps; /* realtime and TAI may go back */
    bool no_control;     /* no vDSO here */
};

void readers_start(const struct readers_setup *setup);

/* Good brackets by now, and reads of the clocks that need the counter. */
uint64_t readers_good(void);
uint64_t readers_fine(void);

/* Whether a check is to go on disturbing: until `good` brackets are there. Fails the check if that
 * takes too long, or if a reader hangs. */
bool readers_go_on(uint64_t good);

/* Ends the threads and judges what they have seen. */
void readers_stop(void);

/* The same from this thread alone: `rounds` brackets for each clock. For a process that must be
 * single-threaded, and for signal handlers. */
struct reader;
struct reader *reader_alone(const struct readers_setup *setup);
void reader_run(struct reader *reader, uint64_t rounds);
void reader_judge(struct reader *reader);
/* The brackets alone, for readings between which the clocks may go back. */
void reader_judge_brackets(struct reader *reader);

/* Starts the threads, waits for `good` brackets and stops them. */
void read_for(const struct readers_setup *setup, uint64_t good);

#endif
