/* SPDX-License-Identifier: MIT
 *
 * Counter and processor together; see skew.h.
 *
 * An interrupt comes between two instructions, and what the processor has executed ahead of it is
 * executed again: no fence is needed to keep number and counter in the order of the program.
 */
#define FASTCLOCK_INLINE
#include "skew.h"

#include <fastclock.h>

#include "processor.h"

enum {
    TRIES_MAX = 16
}; /* a thread that is moved that often within some cycles is being attacked */

#if defined(FC_MODE_COUNTER_) && defined(FC_HAVE_PROCESSOR_REGISTER)

/* ---- The counter that is corrected ------------------------------------------------------------
 * A test makes it a skewed one, on a machine whose own counters agree: RDTSCP tells which processor
 * this one count came from, whatever number the way under test takes for it. And there is room for
 * a move before it, since two instructions that follow each other are seldom parted. */

#ifdef FC_SKEW_INJECTED

int64_t fc_skew_injected[FC_TIMEKEEP_CPUS];
void (*fc_skew_counted)(void);

#define ROOM ".rept 16\n\tpause\n\t.endr\n\t"

static uint64_t skewed(uint64_t cycles, uint32_t value) {
    const uint32_t cpu = value & FC_PROCESSOR_MASK & (FC_TIMEKEEP_CPUS - 1);
    return cycles + (uint64_t)__atomic_load_n(&fc_skew_injected[cpu], __ATOMIC_RELAXED);
}

static uint64_t counter(void) {
    uint32_t value;
    uint64_t cycles;
    __asm__ volatile(ROOM : : : "memory");
    cycles = fc_rdtscp(&value);
    return skewed(cycles, value);
}

static uint64_t counter_and_value(uint32_t *value) {
    const uint64_t cycles = fc_rdtscp(value);
    return skewed(cycles, *value);
}

#define COUNTER_IN_SEQUENCE "mov %%ecx, %[scratch]\n\t" ROOM "rdtscp"

#else

static uint64_t counter(void) {
    return fc_counter_ordered_();
}

static uint64_t counter_and_value(uint32_t *value) {
    return fc_rdtscp(value);
}

#define COUNTER_IN_SEQUENCE "lfence\n\trdtsc"

#endif

/* ---- The three ways ---------------------------------------------------------------------------
 */

static int subtract(const struct fc_timekeep *page, uint32_t cpu, uint64_t *cycles) {
    uint64_t skew;
    /* The page is another process's, so that its own number is not taken for granted. */
    if (FC_UNLIKELY_(cpu >= fc_load32_((const unsigned char *)&page->cpus) ||
                     cpu >= FC_TIMEKEEP_CPUS))
        return 0;
    skew = fc_load64_((const unsigned char *)&page->skew[cpu]);
    if (FC_UNLIKELY_((int64_t)skew == FC_TIMEKEEP_SKEW_UNKNOWN))
        return 0;
    *cycles -= skew;
    return 1;
}

int fc_skew_rdtscp(const void *page, uint64_t *cycles) {
    uint32_t value;
    if (FC_UNLIKELY_(!fc_rdtscp_works()))
        return 0;
    *cycles = counter_and_value(&value);
    return subtract(page, value & FC_PROCESSOR_MASK, cycles);
}

static bool processor(uint32_t *cpu) {
    if (fc_rseq_works()) {
        *cpu = fc_rseq_field(FC_RSEQ_CPU_ID);
        return true;
    }
    if (!fc_rdpid_works())
        return false;
    *cpu = fc_rdpid() & FC_PROCESSOR_MASK;
    return true;
}

int fc_skew_user_restart(const void *page, uint64_t *cycles) {
    uint32_t before, after;
    for (int tries = 0; tries < TRIES_MAX; tries++) {
        if (FC_UNLIKELY_(!processor(&before)))
            return 0;
        *cycles = counter();
        if (FC_UNLIKELY_(!processor(&after)))
            return 0;
        if (before == after)
            return subtract(page, before, cycles);
    }
    return 0;
}

#ifdef FC_SKEW_INJECTED
int fc_skew_no_restart(const void *page, uint64_t *cycles) {
    uint32_t cpu;
    if (!processor(&cpu))
        return 0;
    *cycles = counter();
    return subtract(page, cpu, cycles);
}
#endif

#if defined(FC_HAVE_SEQUENCE) && defined(__x86_64__)

FC_SEQUENCE_DECLARE(fc_skew)

FC_SEQUENCE_ONCE int fc_skew_kernel_restart(const void *page, uint64_t *cycles) {
    const uint16_t segment = 0; /* no LSL here */
    uint32_t low, high, number, scratch;
    int tries = TRIES_MAX;
    if (FC_UNLIKELY_(!fc_rseq_works()))
        return 0;
    FC_SEQUENCE_READ(fc_skew, "movl 4(%[area]), %%ecx", COUNTER_IN_SEQUENCE, low, high, number,
                     tries, scratch, segment);
    if (FC_UNLIKELY_(tries == 0))
        return 0;
    *cycles = ((uint64_t)high << 32) + low;
#ifdef FC_SKEW_INJECTED
    *cycles = skewed(*cycles, number);
    number = scratch;
#endif
    return subtract(page, number, cycles);
}

#else

int fc_skew_kernel_restart(const void *page, uint64_t *cycles) {
    (void)page;
    (void)cycles;
    return 0;
}

#endif

bool fc_skew_count(const struct fc_timekeep *page, uint64_t *cycles) {
    /* In the order of what they cost (bench/skew.c). User restart is not among them: a thread that
     * was moved away and back would be told a wrong time. */
    const int had = fc_skew_kernel_restart(page, cycles) || fc_skew_rdtscp(page, cycles);
#ifdef FC_SKEW_INJECTED
    if (fc_skew_counted)
        fc_skew_counted();
#endif
    return had;
}

#else

bool fc_skew_count(const struct fc_timekeep *page, uint64_t *cycles) {
    (void)page;
    (void)cycles;
    return false;
}

#endif

#ifdef FC_MODE_COUNTER_

uint64_t fc_skew_uncorrected(void) {
#if defined(FC_SKEW_INJECTED) && defined(FC_HAVE_PROCESSOR_REGISTER)
    uint32_t value;
    if (fc_rdtscp_works())
        return counter_and_value(&value);
#endif
    return fc_counter_ordered_();
}

#endif
