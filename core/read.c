/* SPDX-License-Identifier: MIT
 *
 * Each exported read is one look (inline.h) and a tail call for the rare case. The rare case asks,
 * in this order and anew at every read: the page again, within bounds; the vDSO; the system call.
 */
#define FASTCLOCK_INLINE
#include "read.h"

#include <fastclock.h>

#include "libc.h"
#include "select.h"
#include "timekeep.h"
#include "vdso.h"
#include "view.h"

#define COLD __attribute__((cold, noinline))

static _Atomic uint64_t slow_reads;

uint64_t fc_slow_reads(void) {
    return atomic_load_explicit(&slow_reads, memory_order_relaxed);
}

bool fc_is_ours(int32_t clock) {
    const uint32_t ours = 1u << FC_REALTIME | 1u << FC_MONOTONIC | 1u << FC_RAW |
                          1u << FC_REALTIME_COARSE | 1u << FC_MONOTONIC_COARSE | 1u << FC_BOOTTIME |
                          1u << FC_TAI;
    return clock >= 0 && clock < 32 && (ours >> clock & 1);
}

static uint32_t page_bit(uint32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE ? FC_CHOICE_PAGE_COARSE
                                                                       : FC_CHOICE_PAGE_FINE;
}

/* Where the timekeep page stands back, the kernel's answer must not be earlier than what the page
 * has told before. */
static COLD bool read_timekeep(uint32_t clock, bool ordered, struct fc_reading *out) {
    int32_t reason;
    if (fc_choice_namespace_moved())
        fc_timekeep_leave_host();
    reason = fc_timekeep_read(clock, ordered, out);
    fc_choice_show(); /* the timehands in force may be another one now */
    if (reason == FC_REASON_NONE)
        return true;
    atomic_fetch_add_explicit(&slow_reads, 1, memory_order_relaxed);
    if (!fc_vdso_gettime((int32_t)clock, out) && fc_sys_gettime((int32_t)clock, out) < 0)
        return false;
    fc_timekeep_lift(clock, out);
    fc_choice_show();
    return true;
}

static COLD bool read_slower(uint32_t chosen, uint32_t clock, bool ordered,
                             struct fc_reading *out) {
    if (chosen & page_bit(clock)) {
        const int32_t reason = fc_kernel_page_read(&fc_page, clock, ordered, out);
        /* A way may have been proved that the view shows from now on; or this is the child of a
         * fork amid a change of the view. */
        fc_choice_show();
        if (reason == FC_REASON_NONE)
            return true;
        atomic_fetch_add_explicit(&slow_reads, 1, memory_order_relaxed);
        /* The vDSO would find the same mode in the same page, and make the same system call. */
        if (reason == FC_REASON_MODE_NONE && (chosen & FC_CHOICE_SOURCE) == FC_SOURCE_KERNEL_PAGE)
            return fc_sys_gettime((int32_t)clock, out) == 0;
    }
    switch (chosen & FC_CHOICE_SOURCE) {
    case FC_SOURCE_TIMEKEEP: return read_timekeep(clock, ordered, out);
    case FC_SOURCE_KERNEL_PAGE:
    case FC_SOURCE_VDSO:
        if (fc_vdso_gettime((int32_t)clock, out))
            return true;
        return fc_sys_gettime((int32_t)clock, out) == 0;
    case FC_SOURCE_SYSCALL: return fc_sys_gettime((int32_t)clock, out) == 0;
    case FC_SOURCE_LIBC: return fc_libc_gettime(clock, out);
    default: return false;
    }
}

/* Where the inlined look does not suffice. Not marked as cold, as under a clocksource that it does
 * not know every read comes this way. */
__attribute__((noinline)) bool fc_read_slow(uint32_t clock, bool ordered, struct fc_reading *out) {
    const uint32_t chosen = fc_choice();
    if ((chosen & page_bit(clock)) && fc_kernel_page_glance(&fc_page, clock, ordered, out))
        return true;
    return read_slower(chosen, clock, ordered, out);
}

static __attribute__((noinline)) uint64_t count_slow(uint32_t clock, bool ordered) {
    struct fc_reading reading;
    return fc_read_slow(clock, ordered, &reading) ? fc_reading_count(reading) : FC_NO_TIME;
}

#ifdef FC_MODE_COUNTER_

/* A look at a clock whose number is not known when this is compiled. */
static inline bool look(uint32_t clock, uint64_t *sec, uint64_t *ns) {
    if (clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE)
        return fc_look_coarse_(clock, sec, ns);
    return fc_look_fine_(clock == FC_RAW ? &fc_view_v1.raw : &fc_view_v1.fine, clock,
                         fc_cpu_counter_ordered_, sec, ns);
}

#define LOOK_FINE(which, clock, counter) fc_look_fine_(&fc_view_v1.which, clock, counter, &sec, &ns)
#define LOOK_COARSE(clock) fc_look_coarse_(clock, &sec, &ns)

#else

static inline bool look(uint32_t clock, uint64_t *sec, uint64_t *ns) {
    (void)clock;
    (void)sec;
    (void)ns;
    return false;
}

#define LOOK_FINE(which, clock, counter) (sec = ns = 0, false)
#define LOOK_COARSE(clock) (sec = ns = 0, false)

#endif

/* The parentheses keep inline.h's macros of the same names away from the definitions. */
#define DEFINE_READ(name, clock, ordered, looked)                                                  \
    uint64_t(name)(void) {                                                                         \
        uint64_t sec, ns;                                                                          \
        if (__builtin_expect(looked, 1))                                                           \
            return sec * 1000000000u + ns;                                                         \
        return count_slow(clock, ordered);                                                         \
    }
#define DEFINE_ORDERED(name, which, clock)                                                         \
    DEFINE_READ(name, clock, true, LOOK_FINE(which, clock, fc_cpu_counter_ordered_))
#define DEFINE_RELAXED(name, which, clock)                                                         \
    DEFINE_READ(name, clock, false, LOOK_FINE(which, clock, fc_cpu_counter_relaxed_))
#define DEFINE_COARSE(name, clock) DEFINE_READ(name, clock, false, LOOK_COARSE(clock))

DEFINE_ORDERED(fc_realtime_ns, fine, FC_REALTIME)
/* The same under its old name: said here, so that neither is a jump to the other. */
#ifdef __ELF__
uint64_t(vtime64)(void) __attribute__((alias("fc_realtime_ns")));
#else
DEFINE_ORDERED(vtime64, fine, FC_REALTIME)
#endif
DEFINE_ORDERED(fc_monotonic_ns, fine, FC_MONOTONIC)
DEFINE_ORDERED(fc_raw_ns, raw, FC_RAW)
DEFINE_ORDERED(fc_boottime_ns, fine, FC_BOOTTIME)
DEFINE_ORDERED(fc_tai_ns, fine, FC_TAI)
DEFINE_RELAXED(fc_realtime_relaxed_ns, fine, FC_REALTIME)
DEFINE_RELAXED(fc_monotonic_relaxed_ns, fine, FC_MONOTONIC)
DEFINE_RELAXED(fc_raw_relaxed_ns, raw, FC_RAW)
DEFINE_COARSE(fc_realtime_coarse_ns, FC_REALTIME_COARSE)
DEFINE_COARSE(fc_monotonic_coarse_ns, FC_MONOTONIC_COARSE)

/* ---- By number --------------------------------------------------------------------------------
 */

bool fc_read(uint32_t clock, struct fc_reading *out) {
    return look(clock, &out->sec, &out->ns) || fc_read_slow(clock, true, out);
}

/* A clock that is none of ours is the kernel's business, and so is the error. */
static COLD int32_t read_foreign(int32_t clock, uint64_t *ns) {
    struct fc_reading reading;
    const int32_t error = fc_sys_gettime(clock, &reading);
    if (error == 0)
        *ns = fc_reading_count(reading);
    return error;
}

int32_t fc_read_ns(int32_t clock, uint64_t *ns) {
    struct fc_reading reading;
    if (!ns)
        return -EFAULT;
    if (!fc_is_ours(clock))
        return read_foreign(clock, ns);
    if (!fc_read((uint32_t)clock, &reading))
        return -ENOTSUP;
    *ns = fc_reading_count(reading);
    return 0;
}

int32_t fc_fill_ns(int32_t clock, uint64_t *out, uint64_t count) {
    if (!out && count)
        return -EFAULT;
    for (uint64_t i = 0; i < count; i++) {
        const int32_t error = fc_read_ns(clock, &out[i]);
        if (error < 0)
            return error;
    }
    return 0;
}

/* ---- The counter ------------------------------------------------------------------------------
 */

#ifdef FC_MODE_COUNTER_

/* Nobody may have asked yet whether the counter may be read. */
#define DEFINE_TICKS(name, counter, ordered)                                                       \
    uint64_t(name)(void) {                                                                         \
        if (__builtin_expect(!fc_view_counter(), 0) && !fc_choice_counter())                       \
            return count_slow(FC_RAW, ordered);                                                    \
        return counter();                                                                          \
    }

#else

#define DEFINE_TICKS(name, counter, ordered)                                                       \
    uint64_t(name)(void) {                                                                         \
        return count_slow(FC_RAW, ordered);                                                        \
    }

#endif

DEFINE_TICKS(fc_ticks, fc_counter_relaxed_, false)
DEFINE_TICKS(fc_ticks_ordered, fc_counter_ordered_, true)
