/* SPDX-License-Identifier: MIT
 *
 * The reads of abi.h, compiled into the caller.
 *
 * Opt in with FASTCLOCK_INLINE defined; fc_monotonic_ns() and its like then expand in place, and
 * every one of them still exists as a function of the library. What is compiled in relies on
 * fc_view_v1 alone, an object that the library exports under a version: as long as a library keeps
 * that name the inlined reads are fast; a library whose pages look otherwise leaves the view dead,
 * and the same code goes on by calls. Names that end in an underscore are internal.
 *
 * The read loop is written here, once, for the library too. The algorithm is the kernel's own
 * (Linux, lib/vdso/gettimeofday.c): the page holds a sequence, the mode of the clocksource, the
 * count at the last update, the scale and a base for each clock;
 *
 *     time = base.sec * 10^9 + (((counter - last) * mult + base.nsec) >> shift)
 *
 * holds if the sequence was even and the same before and after. Here one look is made and no loop:
 * whatever stands in the way, the call of the library sorts it out, within bounds.
 */
#ifndef FASTCLOCK_INLINE_H
#define FASTCLOCK_INLINE_H

#ifndef FASTCLOCK_INLINE
#error "define FASTCLOCK_INLINE to opt in to reads that are compiled into the caller"
#endif

#include <fastclock.h>

#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#include <fastclock/counter_x86.h>
#elif defined(__GNUC__) && defined(__aarch64__) && defined(__AARCH64EL__)
#include <fastclock/counter_arm64.h>
#endif

#ifdef FC_MODE_COUNTER_ /* without a counter every name stays a call */

#ifdef __cplusplus
extern "C" {
#endif

/* Where to read. A pointer that must not be followed points to a block whose sequence stays odd
 * (`fine`, `raw`, `coarse` are never NULL), so that a read needs no test of its own for it. */
struct fc_view_v1 {
    const unsigned char *fine;   /* block of the clocks that need the counter */
    const unsigned char *raw;    /* block of FC_RAW, with a scale of its own */
    const unsigned char *coarse; /* block of the coarse clocks: `fine`, but for a dead counter */
    uint32_t extra;              /* bytes that a `max_cycles` puts before the mask: 0 or 8 */
    uint32_t counter;            /* 1: the counter may be read */
    uint32_t coarse_extra;       /* as `extra`, in the block of the coarse clocks */
    uint32_t unused;
};

extern FC_EXPORTED_ struct fc_view_v1 fc_view_v1;

/* Offsets in a block; those from the mask on are moved by `extra`. */
enum {
    FC_BLOCK_SEQUENCE_ = 0,
    FC_BLOCK_MODE_ = 4,
    FC_BLOCK_LAST_ = 8,
    FC_BLOCK_LIMIT_ = 16, /* max_cycles, or the mask where there is none: no delta goes beyond it */
    FC_BLOCK_MASK_ = 16,
    FC_BLOCK_MULT_ = 24,
    FC_BLOCK_SHIFT_ = 28,
    FC_BLOCK_BASE_ = 32, /* {u64 sec, u64 nsec} for each clock by its number */
    FC_BLOCK_BASE_SIZE_ = 16
};

/* How one look at a block ended. */
enum fc_try_ {
    FC_TRY_OK_ = 0,
    FC_TRY_AGAIN_ = 1, /* it was being written */
    FC_TRY_LEAVE_ = 2  /* it cannot be read this way: another mode, or the sum would overflow */
};

#define FC_INLINE_ static inline __attribute__((always_inline))
#define FC_UNLIKELY_(x) __builtin_expect(!!(x), 0)

FC_INLINE_ uint32_t fc_load32_(const unsigned char *at) {
    return __atomic_load_n((const uint32_t *)(const void *)at, __ATOMIC_RELAXED);
}

/* The 64-bit fields are guarded by the sequence, so that a 32-bit machine may read them in halves.
 */
FC_INLINE_ uint64_t fc_load64_(const unsigned char *at) {
#if UINTPTR_MAX > 0xffffffffu
    return __atomic_load_n((const uint64_t *)(const void *)at, __ATOMIC_RELAXED);
#else
    return fc_load32_(at) | ((uint64_t)fc_load32_(at + 4) << 32);
#endif
}

/* Acquire: the fields are not read before the sequence is. */
FC_INLINE_ uint32_t fc_load_sequence_(const unsigned char *block) {
    return __atomic_load_n((const uint32_t *)(const void *)(block + FC_BLOCK_SEQUENCE_),
                           __ATOMIC_ACQUIRE);
}

/* Whether the fields read since `sequence` belong together. The fence keeps the second look at the
 * sequence behind the reads of the fields; on x86 it binds the compiler only. */
FC_INLINE_ int fc_sequence_moved_(const unsigned char *block, uint32_t sequence) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return fc_load32_(block + FC_BLOCK_SEQUENCE_) != sequence;
}

/* One look at a clock that needs the counter. `mode` is what the block must say; `counter` reads
 * the counter of that mode from `page`, returning 0 if it cannot be had. On FC_TRY_OK_ the time is
 * *sec seconds and *ns nanoseconds, which may be more than a second. */
FC_INLINE_ enum fc_try_ fc_try_fine_(const unsigned char *block, uint32_t extra, uint32_t clock,
                                     uint32_t mode, int (*counter)(const void *, uint64_t *),
                                     const void *page, uint64_t *sec, uint64_t *ns) {
    const unsigned char *scaled = block + extra;
    const unsigned char *base = scaled + FC_BLOCK_BASE_ + clock * FC_BLOCK_BASE_SIZE_;
    const uint32_t sequence = fc_load_sequence_(block);
    uint64_t cycles, delta, mult, shifted;

    if (FC_UNLIKELY_(sequence & 1))
        return FC_TRY_AGAIN_;
    /* The mode comes before the counter: where the kernel has left it, the counter is not trusted,
     * and on some machines not even readable. */
    if (FC_UNLIKELY_(fc_load32_(block + FC_BLOCK_MODE_) != mode))
        return FC_TRY_LEAVE_;
    if (FC_UNLIKELY_(!counter(page, &cycles)))
        return FC_TRY_LEAVE_;
    delta = cycles - fc_load64_(block + FC_BLOCK_LAST_);
#if FC_COUNTER_MASKED_
    delta &= fc_load64_(scaled + FC_BLOCK_MASK_);
#endif
    /* Behind the last count (the difference is then huge), or past what the page vouches for. The
     * limit is looked at after the counter: a publisher that takes a timehands out of use does so
     * by lowering it to a count that is still to come. */
    if (FC_UNLIKELY_(delta > fc_load64_(block + FC_BLOCK_LIMIT_)))
        return FC_TRY_LEAVE_;
    /* A page without a limit that was not updated for very long, or one that makes no sense. A
     * scale of 0, at which time stands still, is a test that costs nothing measurable; a bound on
     * the shift or on the result would cost. */
    mult = fc_load32_(scaled + FC_BLOCK_MULT_);
    if (FC_UNLIKELY_(mult == 0))
        return FC_TRY_LEAVE_;
    if (FC_UNLIKELY_(__builtin_mul_overflow(delta, mult, &shifted)))
        return FC_TRY_LEAVE_;
    if (FC_UNLIKELY_(__builtin_add_overflow(shifted, fc_load64_(base + 8), &shifted)))
        return FC_TRY_LEAVE_;
    *ns = shifted >> (fc_load32_(scaled + FC_BLOCK_SHIFT_) & 63);
    *sec = fc_load64_(base);
    fc_counter_before_recheck_(cycles);
    return FC_UNLIKELY_(fc_sequence_moved_(block, sequence)) ? FC_TRY_AGAIN_ : FC_TRY_OK_;
}

/* One look at a coarse clock: the base alone, right in every mode. */
FC_INLINE_ enum fc_try_ fc_try_coarse_(const unsigned char *block, uint32_t extra, uint32_t clock,
                                       uint64_t *sec, uint64_t *ns) {
    const unsigned char *base = block + extra + FC_BLOCK_BASE_ + clock * FC_BLOCK_BASE_SIZE_;
    const uint32_t sequence = fc_load_sequence_(block);

    if (FC_UNLIKELY_(sequence & 1))
        return FC_TRY_AGAIN_;
    *sec = fc_load64_(base);
    *ns = fc_load64_(base + 8);
    return FC_UNLIKELY_(fc_sequence_moved_(block, sequence)) ? FC_TRY_AGAIN_ : FC_TRY_OK_;
}

FC_INLINE_ int fc_cpu_counter_ordered_(const void *page, uint64_t *cycles) {
    (void)page;
    *cycles = fc_counter_ordered_();
    return 1;
}

FC_INLINE_ int fc_cpu_counter_relaxed_(const void *page, uint64_t *cycles) {
    (void)page;
    *cycles = fc_counter_relaxed_();
    return 1;
}

/* The one look at whatever the view shows in `which`. Acquire: `extra` was set before the pointer
 * that needs it, and so has to be read after it. */
#define FC_VIEW_(which) __atomic_load_n(&fc_view_v1.which, __ATOMIC_ACQUIRE)

FC_INLINE_ int fc_look_fine_(const unsigned char *const *which, uint32_t clock,
                             int (*counter)(const void *, uint64_t *), uint64_t *sec,
                             uint64_t *ns) {
    const unsigned char *block = __atomic_load_n(which, __ATOMIC_ACQUIRE);
    const uint32_t extra = __atomic_load_n(&fc_view_v1.extra, __ATOMIC_RELAXED);
    return fc_try_fine_(block, extra, clock, FC_MODE_COUNTER_, counter, 0, sec, ns) == FC_TRY_OK_;
}

FC_INLINE_ int fc_look_coarse_(uint32_t clock, uint64_t *sec, uint64_t *ns) {
    const unsigned char *block = FC_VIEW_(coarse);
    const uint32_t extra = __atomic_load_n(&fc_view_v1.coarse_extra, __ATOMIC_RELAXED);
    return fc_try_coarse_(block, extra, clock, sec, ns) == FC_TRY_OK_;
}

/* Defines fc_inline_NAME: one look, and otherwise the call. The multiplication cannot overflow
 * before the year 2554. */
#define FC_DEFINE_FINE_(name, which, clock, counter)                                               \
    FC_INLINE_ uint64_t fc_inline_##name(void) {                                                   \
        uint64_t sec, ns;                                                                          \
        if (FC_UNLIKELY_(!fc_look_fine_(&fc_view_v1.which, clock, counter, &sec, &ns)))            \
            return name();                                                                         \
        return sec * 1000000000u + ns;                                                             \
    }

#define FC_DEFINE_COARSE_(name, clock)                                                             \
    FC_INLINE_ uint64_t fc_inline_##name(void) {                                                   \
        uint64_t sec, ns;                                                                          \
        if (FC_UNLIKELY_(!fc_look_coarse_(clock, &sec, &ns)))                                      \
            return name();                                                                         \
        return sec * 1000000000u + ns;                                                             \
    }

FC_DEFINE_FINE_(vtime64, fine, FC_REALTIME, fc_cpu_counter_ordered_)
FC_DEFINE_FINE_(fc_realtime_ns, fine, FC_REALTIME, fc_cpu_counter_ordered_)
FC_DEFINE_FINE_(fc_monotonic_ns, fine, FC_MONOTONIC, fc_cpu_counter_ordered_)
FC_DEFINE_FINE_(fc_raw_ns, raw, FC_RAW, fc_cpu_counter_ordered_)
FC_DEFINE_FINE_(fc_boottime_ns, fine, FC_BOOTTIME, fc_cpu_counter_ordered_)
FC_DEFINE_FINE_(fc_tai_ns, fine, FC_TAI, fc_cpu_counter_ordered_)
FC_DEFINE_FINE_(fc_realtime_relaxed_ns, fine, FC_REALTIME, fc_cpu_counter_relaxed_)
FC_DEFINE_FINE_(fc_monotonic_relaxed_ns, fine, FC_MONOTONIC, fc_cpu_counter_relaxed_)
FC_DEFINE_FINE_(fc_raw_relaxed_ns, raw, FC_RAW, fc_cpu_counter_relaxed_)
FC_DEFINE_COARSE_(fc_realtime_coarse_ns, FC_REALTIME_COARSE)
FC_DEFINE_COARSE_(fc_monotonic_coarse_ns, FC_MONOTONIC_COARSE)

FC_INLINE_ uint64_t fc_inline_fc_ticks(void) {
    return FC_UNLIKELY_(!FC_VIEW_(counter)) ? fc_ticks() : fc_counter_relaxed_();
}

FC_INLINE_ uint64_t fc_inline_fc_ticks_ordered(void) {
    return FC_UNLIKELY_(!FC_VIEW_(counter)) ? fc_ticks_ordered() : fc_counter_ordered_();
}

#undef FC_DEFINE_FINE_
#undef FC_DEFINE_COARSE_

/* From here on the names of abi.h expand in place. (fc_monotonic_ns)() and &fc_monotonic_ns are
 * still the library's function. */
#define vtime64() fc_inline_vtime64()
#define fc_realtime_ns() fc_inline_fc_realtime_ns()
#define fc_monotonic_ns() fc_inline_fc_monotonic_ns()
#define fc_raw_ns() fc_inline_fc_raw_ns()
#define fc_boottime_ns() fc_inline_fc_boottime_ns()
#define fc_tai_ns() fc_inline_fc_tai_ns()
#define fc_realtime_relaxed_ns() fc_inline_fc_realtime_relaxed_ns()
#define fc_monotonic_relaxed_ns() fc_inline_fc_monotonic_relaxed_ns()
#define fc_raw_relaxed_ns() fc_inline_fc_raw_relaxed_ns()
#define fc_realtime_coarse_ns() fc_inline_fc_realtime_coarse_ns()
#define fc_monotonic_coarse_ns() fc_inline_fc_monotonic_coarse_ns()
#define fc_ticks() fc_inline_fc_ticks()
#define fc_ticks_ordered() fc_inline_fc_ticks_ordered()

#ifdef __cplusplus
}
#endif

#endif /* FC_MODE_COUNTER_ */

#endif /* FASTCLOCK_INLINE_H */
