/* SPDX-License-Identifier: MIT
 *
 * What the Python tests need done in C, as pure declarations: probe.c includes them and CFFI reads
 * them as they are. A function is handed over as its address, since the library under test is known
 * to CFFI twice over, in API and in ABI mode.
 */

/* struct bracket of tests/bracket.h, as far as the tests look at it. */
struct probe_brackets {
    uint64_t rounds, voided;
    uint64_t good, outside, back, errors;
    uint64_t control_good, control_outside;
    uint64_t first_round, first_before, first_ours, first_after; /* of the first outside */
    int32_t first_error;
    int32_t refused; /* the error by which the raw system call ended the run, or 0 */
};

/* Brackets `rounds` readings of `clock`, by uint64_t read(void) or, if that is 0, by
 * int32_t read_number(int32_t, uint64_t *). early_ns: see bracket.h. control: 0 where the vDSO must
 * not be called. */
void probe_brackets(int32_t clock, uintptr_t read, uintptr_t read_number, uint64_t rounds,
                    uint64_t early_ns, int32_t control, struct probe_brackets *out);

/* clock_gettime by raw system call: 0 and the nanoseconds, or a negative errno. */
int32_t probe_syscall_ns(int32_t clock, uint64_t *ns);

/* What one call of uint64_t read(void) executed, instruction by instruction. */
struct probe_steps {
    uint64_t instructions;
    uint64_t counter;  /* reads of the counter outside the vDSO */
    uint64_t syscalls; /* system calls */
    uint64_t vdso;     /* instructions in the vDSO */
    uint64_t libc;     /* entries into the C library's clock_gettime */
};

/* Forks, calls `read` once in the child to warm up and once more under ptrace, step by step.
 * Returns 0 or a negative errno. */
int32_t probe_steps(uintptr_t read, struct probe_steps *out);

/* Makes the counter readable (1) or deadly to read (0) for this thread, by prctl(PR_SET_TSC).
 * Returns 0 or a negative errno. */
int32_t probe_counter(int32_t readable);

/* From here on clock_gettime answers `error` (by seccomp). Returns 0 or a negative errno. */
int32_t probe_refuse_clock_gettime(int32_t error);
