/* SPDX-License-Identifier: MIT
 *
 * The bracket: the claim that every test of a clock comes down to. A reading lies between two
 * readings of the same clock by raw system call, one before it and one after:
 *
 *     before <= ours <= after
 *
 * The end of one bracket is the beginning of the next, so that nothing falls between two. A
 * control, the C library's clock_gettime and so the vDSO, runs in the same brackets: what goes
 * wrong for both is the kernel's doing.
 *
 * Needs a C library and nothing else: no thread, no allocation, no output unless asked for; right
 * in 64-bit and 32-bit programs. Works for any function without arguments that returns nanoseconds,
 * and for fc_read_ns by number.
 *
 *     struct bracket_setup setup = {.clock = FC_MONOTONIC, .read = fc_monotonic_ns};
 *     struct bracket b = {0};
 *     if (!bracket_run(&b, &setup, 1000000) || b.ours.outside)
 *         bracket_print(stderr, "fc_monotonic_ns", &b);
 *
 * A bracket is void, and says nothing, if its own ends go back (the clock was set) or lie further
 * apart than the limit (choose it below the smallest step that the test makes). A step back that is
 * shorter than its bracket can put a right reading outside without being seen; then the control is
 * outside about as often.
 *
 * What a bracket can claim of a relaxed read: the upper end holds as it is, since the system call
 * after it reads the counter behind a fence. The lower end does not, since the processor may read
 * the counter before the system call's return has completed. `early_ns` lowers it by what a
 * pipeline can hold at the very most; a caller who puts a fence of his own before the relaxed read
 * may claim 0.
 */
#ifndef FASTCLOCK_TESTS_BRACKET_H
#define FASTCLOCK_TESTS_BRACKET_H

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    BRACKET_LIMIT_NS = 100000000,   /* where nothing is set meanwhile: an interruption, no more */
    BRACKET_RELAXED_EARLY_NS = 1000 /* some hundred instructions in flight take a fraction of it */
};

struct bracket_setup {
    int32_t clock;                                       /* the kernel's number */
    uint64_t (*read)(void);                              /* what is tested; or NULL, and then: */
    int32_t (*read_number)(int32_t clock, uint64_t *ns); /* fc_read_ns, or its like */
    uint64_t limit_ns;                                   /* 0: BRACKET_LIMIT_NS */
    uint64_t early_ns; /* how far before the bracket a reading may lie: 0 unless relaxed */
    int no_control;    /* where the vDSO must not be called: the counter is disabled */
};

struct bracket_tally {
    uint64_t good;
    uint64_t outside;
    uint64_t back;   /* readings below the one before, in void brackets too */
    uint64_t errors; /* no reading: an error, or UINT64_MAX */
    int32_t error;   /* the first one, negative */
    struct {
        uint64_t round, before, ours, after;
    } first; /* the first outside */
    uint64_t previous;
};

/* All zero to begin with; several runs add up. */
struct bracket {
    uint64_t rounds;
    uint64_t voided;
    struct bracket_tally ours, control;
    int32_t refused; /* the error by which the raw system call ended a run, negative */
};

/* clock_gettime by raw system call, with 64-bit times also where `long` has 32 bits. Returns 0 or a
 * negative errno; errno itself is left as it was. */
static inline int32_t bracket_syscall_ns(int32_t clock, uint64_t *ns) {
    const int saved = errno;
    struct {
        long sec, nsec;
    } narrow;
    long result;
#ifdef SYS_clock_gettime64
    struct {
        int64_t sec, nsec;
    } wide;
    result = syscall(SYS_clock_gettime64, clock, &wide);
    if (result == 0 || errno != ENOSYS) { /* kernels before 5.1 do not have it */
        if (result == 0)
            *ns = (uint64_t)wide.sec * 1000000000u + (uint64_t)wide.nsec;
        result = result == 0 ? 0 : -errno;
        errno = saved;
        return (int32_t)result;
    }
#endif
    result = syscall(SYS_clock_gettime, clock, &narrow);
    if (result == 0)
        *ns = (uint64_t)narrow.sec * 1000000000u + (uint64_t)narrow.nsec;
    result = result == 0 ? 0 : -errno;
    errno = saved;
    return (int32_t)result;
}

/* The C library's reading: the control. */
static inline int32_t bracket_libc_ns(int32_t clock, uint64_t *ns) {
    const int saved = errno;
    struct timespec ts;
    const int error = clock_gettime((clockid_t)clock, &ts) == 0 ? 0 : -errno;
    errno = saved;
    if (error == 0)
        *ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    return error;
}

static inline int32_t bracket_read_ns_(const struct bracket_setup *setup, uint64_t *ns) {
    if (!setup->read)
        return setup->read_number(setup->clock, ns);
    *ns = setup->read();
    return *ns == UINT64_MAX ? -ENOTSUP : 0;
}

static inline void bracket_judge_(struct bracket_tally *tally, int is_void, uint64_t round,
                                  uint64_t before, uint64_t ours, uint64_t after,
                                  uint64_t early_ns) {
    if (ours < tally->previous)
        tally->back++;
    tally->previous = ours;
    if (is_void)
        return;
    if (ours + early_ns >= before && ours <= after) {
        tally->good++;
        return;
    }
    if (tally->outside++ == 0) {
        tally->first.round = round;
        tally->first.before = before;
        tally->first.ours = ours;
        tally->first.after = after;
    }
}

static inline void bracket_note_error_(struct bracket_tally *tally, int32_t error) {
    if (tally->errors++ == 0)
        tally->error = error;
}

/* Makes `rounds` brackets, void ones included. Returns 1; or 0 if the raw system call was refused,
 * with the error in `refused`. */
static inline int bracket_run(struct bracket *b, const struct bracket_setup *setup,
                              uint64_t rounds) {
    const uint64_t limit_ns = setup->limit_ns ? setup->limit_ns : BRACKET_LIMIT_NS;
    uint64_t before = 0, ours = 0, control = 0, after = 0;

    b->refused = bracket_syscall_ns(setup->clock, &before);
    for (uint64_t i = 0; i < rounds && b->refused == 0; i++) {
        const int32_t error = bracket_read_ns_(setup, &ours);
        const int32_t control_error =
            setup->no_control ? -ENODATA : bracket_libc_ns(setup->clock, &control);
        int is_void;

        b->refused = bracket_syscall_ns(setup->clock, &after);
        if (b->refused != 0)
            break;
        is_void = after < before || after - before > limit_ns;
        b->voided += (uint64_t)is_void;
        if (error == 0)
            bracket_judge_(&b->ours, is_void, b->rounds, before, ours, after, setup->early_ns);
        else
            bracket_note_error_(&b->ours, error);
        if (control_error == 0)
            bracket_judge_(&b->control, is_void, b->rounds, before, control, after, 0);
        else if (!setup->no_control)
            bracket_note_error_(&b->control, control_error);
        b->rounds++;
        before = after;
    }
    return b->refused == 0;
}

/* Adds `other`, say another thread's, to `b`. The first offender is the one of `b` if it has any.
 */
static inline void bracket_add(struct bracket *b, const struct bracket *other) {
    const struct bracket_tally *from[] = {&other->ours, &other->control};
    struct bracket_tally *to[] = {&b->ours, &b->control};
    for (int i = 0; i < 2; i++) {
        if (to[i]->outside == 0)
            to[i]->first = from[i]->first;
        if (to[i]->errors == 0)
            to[i]->error = from[i]->error;
        to[i]->good += from[i]->good;
        to[i]->outside += from[i]->outside;
        to[i]->back += from[i]->back;
        to[i]->errors += from[i]->errors;
    }
    b->rounds += other->rounds;
    b->voided += other->voided;
    if (b->refused == 0)
        b->refused = other->refused;
}

static inline void bracket_print_tally_(FILE *to, const char *who, const struct bracket_tally *t) {
    fprintf(to, "  %-8s good %" PRIu64 ", outside %" PRIu64 ", back %" PRIu64, who, t->good,
            t->outside, t->back);
    if (t->errors)
        fprintf(to, ", errors %" PRIu64 " (first: %d)", t->errors, (int)t->error);
    if (t->outside)
        fprintf(to,
                "; first outside in round %" PRIu64 ": before %" PRIu64 " ns, read %" PRIu64
                " (%+" PRId64 " from before, %+" PRId64 " from after), after %" PRIu64,
                t->first.round, t->first.before, t->first.ours,
                (int64_t)(t->first.ours - t->first.before),
                (int64_t)(t->first.ours - t->first.after), t->first.after);
    fprintf(to, "\n");
}

/* Says in a few lines what was found. */
static inline void bracket_print(FILE *to, const char *name, const struct bracket *b) {
    fprintf(to, "%s: %" PRIu64 " brackets, %" PRIu64 " void", name, b->rounds, b->voided);
    if (b->refused)
        fprintf(to, ", ended by error %d of the system call", (int)b->refused);
    fprintf(to, "\n");
    bracket_print_tally_(to, "ours", &b->ours);
    if (b->control.good + b->control.outside + b->control.errors)
        bracket_print_tally_(to, "control", &b->control);
}

#endif /* FASTCLOCK_TESTS_BRACKET_H */
