/* SPDX-License-Identifier: MIT
 *
 * libfastclock-preload.so: the C library's clock calls under their own names, for programs that
 * nobody will recompile. LD_PRELOAD puts it before the C library; `fastclock run` does so.
 *
 * Every answer has the value, the error and the errno that the program would have seen without this
 * library. What is not sped up goes straight on to the system call: no function is looked up with
 * dlsym, which allocates and takes locks, and is where such libraries deadlock. Nothing runs at
 * load. The first call chooses a source as fc_init does; FASTCLOCK_SOURCE=off leaves everything to
 * the vDSO, and so does a program that runs with raised privileges. Where another library behind
 * this one answers the clock calls too, it keeps the word, and no source is chosen. A clock is
 * never answered by another; the fence before the counter is left out only where
 * FASTCLOCK_RELAXED=1 asks for it.
 *
 * The names are exported without a version, so that the dynamic linker takes them for whichever
 * version of the C library's a program was linked against.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "next.h"
#include "posix.h"
#include "select.h"
#include "vdso.h"

/* A function under the name of one of the C library's, which it does not have here: the headers
 * declare that name with promises, such as that no pointer is NULL, which a caller may well break.
 */
#define STAND_IN(type, name, ...)                                                                  \
    __attribute__((visibility("default"))) type stand_in_##name(__VA_ARGS__) __asm__(#name);       \
    type stand_in_##name(__VA_ARGS__)

#define COLD __attribute__((cold, noinline))

#define INLINE static inline __attribute__((always_inline))
#define UNLIKELY(x) __builtin_expect((x), 0)

/* Clocks below this number are looked at in the ordered way; 0 sends every call to the relaxed one.
 * So the one test of the number serves to tell the two apart as well. */
enum { ALL = FC_TAI + 1 };
static atomic_uint ordered_below = ALL;

/* What another library behind this one answers. */
static struct {
    int (*clock_gettime)(clockid_t, struct timespec *);
    int (*gettimeofday)(struct timeval *, void *);
    time_t (*time)(time_t *);
} next;

/* How the slow way goes. It is found out when a look first fails, which the first one does, as the
 * view is dead before a source was chosen; with ASIDE none is, so that it stays dead. */
enum manner { UNKNOWN, BY_SOURCE, ASIDE };
static atomic_int manner;

static COLD int find_manner(void) {
    const char *value = secure_getenv("FASTCLOCK_RELAXED");
    const uintptr_t functions[] = {fc_next_function("clock_gettime"),
                                   fc_next_function("gettimeofday"), fc_next_function("time")};
    int found = BY_SOURCE;
    if (functions[0] || functions[1] || functions[2]) {
        memcpy(&next, functions, sizeof next);
        if (fc_sys_counter_allowed() == 1)
            fc_vdso_open(); /* for the names that the other library does not have */
        found = ASIDE;
    } else if (value && value[0] == '1' && !value[1]) {
        atomic_store_explicit(&ordered_below, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&manner, found, memory_order_release);
    return found;
}

static COLD bool stands_aside(void) {
    const int known = atomic_load_explicit(&manner, memory_order_acquire);
    return (known == UNKNOWN ? find_manner() : known) == ASIDE;
}

static int32_t read_kernel(int32_t clock, struct fc_reading *out) {
    return fc_vdso_gettime(clock, out) ? 0 : fc_sys_gettime(clock, out);
}

/* Where no page is read, as with `off`, nothing stands between the call and the kernel. */
static COLD int32_t read_slow(int32_t clock, struct fc_reading *out) {
    uint32_t chosen;
    if (stands_aside())
        return read_kernel(clock, out);
    chosen = fc_choice();
    if (!(chosen & (FC_CHOICE_PAGE_FINE | FC_CHOICE_PAGE_COARSE))) {
        switch (chosen & FC_CHOICE_SOURCE) {
        case FC_SOURCE_VDSO:
        case FC_SOURCE_LIBC: return read_kernel(clock, out);
        case FC_SOURCE_SYSCALL: return fc_sys_gettime(clock, out);
        default: break;
        }
    }
    return fc_posix_read_slow(clock, out);
}

static COLD int fail(int32_t error) {
    errno = -error;
    return -1;
}

/* Reads `clock` and stores it by `store`, whose `out` has the caller's type; `other(clock, out)` is
 * what another library answers, and `has_other` whether it does. Each way is a function of its own,
 * so that the ordered one pays for none of the others. An unknown clock comes before a bad pointer,
 * as in the kernel. */
#define DEFINE_READ(name, type, store, has_other, other)                                           \
    static COLD int name##_slow(int32_t clock, type *out) {                                        \
        struct fc_reading r;                                                                       \
        int32_t error;                                                                             \
        if (stands_aside() && (has_other))                                                         \
            return other;                                                                          \
        error = read_slow(clock, &r);                                                              \
        if (error == 0)                                                                            \
            error = out ? store(r, out) : -EFAULT;                                                 \
        return error == 0 ? 0 : fail(error);                                                       \
    }                                                                                              \
    static __attribute__((noinline)) int name##_relaxed(int32_t clock, type *out) {                \
        struct fc_reading r;                                                                       \
        if (UNLIKELY(atomic_load_explicit(&ordered_below, memory_order_relaxed) || !out ||         \
                     !fc_posix_look_relaxed(clock, &r) || store(r, out) < 0))                      \
            return name##_slow(clock, out);                                                        \
        return 0;                                                                                  \
    }                                                                                              \
    INLINE int name(int32_t clock, type *out) {                                                    \
        struct fc_reading r;                                                                       \
        if (UNLIKELY((uint32_t)clock >=                                                            \
                     atomic_load_explicit(&ordered_below, memory_order_relaxed)))                  \
            return name##_relaxed(clock, out);                                                     \
        if (UNLIKELY(!out || !fc_posix_look_ordered(clock, &r) || store(r, out) < 0))              \
            return name##_slow(clock, out);                                                        \
        return 0;                                                                                  \
    }

INLINE int32_t store_timeval(struct fc_reading r, struct timeval *tv) {
    const time_t sec = (time_t)r.sec;
    if (sizeof sec < sizeof r.sec && (int64_t)sec != (int64_t)r.sec)
        return -EOVERFLOW;
    tv->tv_sec = sec;
    tv->tv_usec = (suseconds_t)(r.ns / FC_NS_PER_US);
    return 0;
}

INLINE int32_t store_second(struct fc_reading r, time_t *second) {
    *second = (time_t)r.sec;
    return (int64_t)*second != (int64_t)r.sec ? -EOVERFLOW : 0;
}

DEFINE_READ(read_timespec, struct timespec, fc_posix_store, next.clock_gettime,
            next.clock_gettime(clock, out))
DEFINE_READ(read_timeval, struct timeval, store_timeval, next.gettimeofday,
            next.gettimeofday(out, NULL))
DEFINE_READ(read_second, time_t, store_second, next.time, next.time(out) == -1 ? -1 : 0)

STAND_IN(int, clock_gettime, clockid_t clock, struct timespec *ts) {
    return read_timespec(clock, ts);
}

STAND_IN(int, clock_getres, clockid_t clock, struct timespec *res) {
    return fc_clock_getres(clock, res);
}

/* The time zone is obsolete and the kernel's business. */
STAND_IN(int, gettimeofday, struct timeval *restrict tv, void *restrict zone) {
    if (UNLIKELY(zone != NULL)) {
        const int32_t error = fc_sys_timezone(zone);
        if (error < 0)
            return fail(error);
    }
    return UNLIKELY(!tv) ? 0 : read_timeval(FC_REALTIME, tv);
}

STAND_IN(time_t, time, time_t *out) {
    time_t second;
#ifdef FC_MODE_COUNTER_
    uint64_t sec;
    if (sizeof second == sizeof sec && !UNLIKELY(!fc_posix_look_second_(&sec)))
        second = (time_t)sec;
    else
#endif
        if (UNLIKELY(read_second(FC_REALTIME_COARSE, &second) < 0))
        return -1;
    if (out)
        *out = second;
    return second;
}

/* The bases are those that the C library knew when this was compiled. */
static int32_t clock_of_base(int base) {
    switch (base) {
    case TIME_UTC: return FC_REALTIME;
#ifdef TIME_MONOTONIC
    case TIME_MONOTONIC: return FC_MONOTONIC;
#endif
#ifdef TIME_ACTIVE
    case TIME_ACTIVE: return CLOCK_PROCESS_CPUTIME_ID;
#endif
#ifdef TIME_THREAD_ACTIVE
    case TIME_THREAD_ACTIVE: return CLOCK_THREAD_CPUTIME_ID;
#endif
    default: return -1;
    }
}

STAND_IN(int, timespec_get, struct timespec *ts, int base) {
    const int32_t clock = clock_of_base(base);
    return clock >= 0 && read_timespec(clock, ts) == 0 ? base : 0;
}

/* ---- 64-bit times on 32-bit machines ----------------------------------------------------------
 *
 * The same calls by the names that the C libraries' headers substitute when a program is compiled
 * with 64-bit times: those of glibc first, those of musl where they differ. */
#if UINTPTR_MAX == UINT32_MAX

struct timespec64 {
    int64_t tv_sec;
    int64_t tv_nsec; /* long and padding there, in an order that comes to the same */
};

struct timeval64 {
    int64_t tv_sec;
    int64_t tv_usec;
};

INLINE int32_t store_timespec64(struct fc_reading r, struct timespec64 *ts) {
    ts->tv_sec = (int64_t)r.sec;
    ts->tv_nsec = (int64_t)r.ns;
    return 0;
}

INLINE int32_t store_timeval64(struct fc_reading r, struct timeval64 *tv) {
    tv->tv_sec = (int64_t)r.sec;
    tv->tv_usec = (int64_t)(r.ns / FC_NS_PER_US);
    return 0;
}

/* A library that changes the time knows the other names, or these as well; by its word for those
 * the manner is found. */
static int other_timespec64(int32_t clock, struct timespec64 *out) {
    struct timespec narrow;
    if (next.clock_gettime(clock, &narrow) != 0)
        return -1;
    return store_timespec64((struct fc_reading){(uint64_t)narrow.tv_sec, (uint64_t)narrow.tv_nsec},
                            out);
}

static int other_timeval64(struct timeval64 *out) {
    struct timeval narrow;
    if (next.gettimeofday(&narrow, NULL) != 0)
        return -1;
    out->tv_sec = narrow.tv_sec;
    out->tv_usec = narrow.tv_usec;
    return 0;
}

DEFINE_READ(read_timespec64, struct timespec64, store_timespec64, next.clock_gettime,
            other_timespec64(clock, out))
DEFINE_READ(read_timeval64, struct timeval64, store_timeval64, next.gettimeofday,
            other_timeval64(out))

STAND_IN(int, __clock_gettime64, clockid_t clock, struct timespec64 *ts) {
    return read_timespec64(clock, ts);
}

/* A resolution is never beyond 2038. */
STAND_IN(int, __clock_getres64, clockid_t clock, struct timespec64 *res) {
    struct timespec narrow;
    if (fc_clock_getres(clock, &narrow) < 0)
        return -1;
    if (res)
        *res = (struct timespec64){narrow.tv_sec, narrow.tv_nsec};
    return 0;
}

STAND_IN(int, __gettimeofday64, struct timeval64 *restrict tv, void *restrict zone) {
    if (UNLIKELY(zone != NULL)) {
        const int32_t error = fc_sys_timezone(zone);
        if (error < 0)
            return fail(error);
    }
    return UNLIKELY(!tv) ? 0 : read_timeval64(FC_REALTIME, tv);
}

STAND_IN(int64_t, __time64, int64_t *out) {
    struct timespec64 ts;
    if (UNLIKELY(read_timespec64(FC_REALTIME_COARSE, &ts) < 0))
        return -1;
    if (out)
        *out = ts.tv_sec;
    return ts.tv_sec;
}

STAND_IN(int, __timespec_get64, struct timespec64 *ts, int base) {
    const int32_t clock = clock_of_base(base);
    return clock >= 0 && read_timespec64(clock, ts) == 0 ? base : 0;
}

/* The names of musl. */
STAND_IN(int, __clock_getres_time64, clockid_t clock, struct timespec64 *res) {
    return stand_in___clock_getres64(clock, res);
}

STAND_IN(int, __gettimeofday_time64, struct timeval64 *restrict tv, void *restrict zone) {
    return stand_in___gettimeofday64(tv, zone);
}

STAND_IN(int, __timespec_get_time64, struct timespec64 *ts, int base) {
    return stand_in___timespec_get64(ts, base);
}

#endif
