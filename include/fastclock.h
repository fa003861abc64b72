/* SPDX-License-Identifier: MIT
 *
 * fastclock: the kernel's own time, at the price of reading the CPU's counter.
 *
 *     #include <fastclock.h>
 *     uint64_t t = fc_monotonic_ns();
 *
 * abi.h, which this file includes, declares and documents every function that other languages can
 * call too. Added here are the version, and the calls that only C can make: exact stand-ins for
 * their POSIX namesakes.
 *
 * To have the reads compiled into the caller instead of called, define FASTCLOCK_INLINE before the
 * include, or include <fastclock/inline.h> after defining it; the names stay the same.
 */
#ifndef FASTCLOCK_H
#define FASTCLOCK_H

#include <stdint.h>
#include <sys/time.h>
#include <time.h>

#define FASTCLOCK_VERSION_MAJOR 0
#define FASTCLOCK_VERSION_MINOR 1
#define FASTCLOCK_VERSION_PATCH 0

/* What a read returns where no source serves; see abi.h. */
#define FC_NO_TIME UINT64_MAX

#ifdef __cplusplus
extern "C" {
#endif

/* A shared object that carries a copy of the library (the Lua rock does) is compiled with
 * FASTCLOCK_BUNDLED: the names are exported there too, but mean this copy, whatever other one is in
 * the process. */
#if defined(__GNUC__) && defined(FASTCLOCK_BUNDLED)
#define FC_EXPORTED_ __attribute__((visibility("protected")))
#pragma GCC visibility push(protected)
#elif defined(__GNUC__)
#define FC_EXPORTED_ __attribute__((visibility("default")))
#pragma GCC visibility push(default)
#endif

#include <fastclock/abi.h>

/* A 32-bit C library can have two widths of time_t, as the program chooses (_TIME_BITS). Each has
 * functions of its own here, by the same names in C. */
#if defined(__USE_TIME_BITS64) && defined(__TIMESIZE) && __TIMESIZE == 32
#define FC_TIME64_(name) __asm__(#name "_time64")
#else
#define FC_TIME64_(name)
#endif

/* clock_gettime(2) for any clock that it knows: value, return value and errno are the kernel's.
 * clock: a clockid_t, which strict C11 does not know by that name.
 * ts NULL is EFAULT. Thread- and signal-safe; errno is untouched on success. Since 0.1. */
int fc_clock_gettime(int32_t clock, struct timespec *ts) FC_TIME64_(fc_clock_gettime);

/* clock_getres(2). res may be NULL. Since 0.1. */
int fc_clock_getres(int32_t clock, struct timespec *res) FC_TIME64_(fc_clock_getres);

/* gettimeofday(2). Either may be NULL; tz is filled by the kernel. Since 0.1. */
int fc_gettimeofday(struct timeval *tv, void *tz) FC_TIME64_(fc_gettimeofday);

/* time(2): the second of FC_REALTIME_COARSE, which is what the kernel's answers. out may be NULL.
 * (time_t)-1 with errno where no source serves. Since 0.1. */
time_t fc_time(time_t *out) FC_TIME64_(fc_time);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#ifdef __cplusplus
}
#endif

#ifdef FASTCLOCK_INLINE
#include <fastclock/inline.h>
#endif

#endif /* FASTCLOCK_H */
