/* SPDX-License-Identifier: MIT
 *
 * What a check has found: one line of JSON on standard output, for the runner.
 *
 * The report lies in memory that children share, so that a check which forks adds to the same one.
 */
#ifndef FASTCLOCK_TESTS_KERNELS_REPORT_H
#define FASTCLOCK_TESTS_KERNELS_REPORT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct report {
    atomic_int failed, impossible;
    atomic_int kernels; /* what is off is off for the vDSO in the same brackets too */
    _Atomic uint64_t brackets, good, voided, outside, control_outside, back, control_back;
    char note[2048]; /* what went wrong first, or what is worth knowing */
};

extern struct report *report;

void report_begin(void);
/* Prints the line. */
void report_end(const char *check);

/* The first failure's words are kept. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool expect(bool held, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The kernel lacks what the check needs; the words say how that was found out. */
void impossible(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds to the note unless something has failed. */
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* As note, and the cell says that the kernel itself is off. */
void note_kernels(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
