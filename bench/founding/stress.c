/* SPDX-License-Identifier: MIT
 *
 * The stress program: reads the time five million times, one way, and nothing else. It is built
 * once for each way, as the programs that it follows were two: BY_LIBRARY by the C library,
 * BY_SYSCALL by the raw system call, BY_FASTCLOCK by fastclock. Prints what it took as a line of
 * JSON.
 *
 *     stress-library monotonic|gettimeofday [READS]
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include <errno.h>
#include <fastclock.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(BY_LIBRARY)
#define WAY "library"
#define MONOTONIC(ts) clock_gettime(CLOCK_MONOTONIC, ts)
#define GETTIMEOFDAY(tv) gettimeofday(tv, NULL)
#elif defined(BY_SYSCALL)
#define WAY "system call"
#define MONOTONIC(ts) syscall(SYS_clock_gettime, CLOCK_MONOTONIC, ts)
#define GETTIMEOFDAY(tv) syscall(SYS_gettimeofday, tv, NULL)
#elif defined(BY_FASTCLOCK)
#define WAY "fastclock"
#define MONOTONIC(ts) fc_clock_gettime(CLOCK_MONOTONIC, ts)
#define GETTIMEOFDAY(tv) fc_gettimeofday(tv, NULL)
#else
#error "define BY_LIBRARY, BY_SYSCALL or BY_FASTCLOCK"
#endif

/* The compiler is to believe that the result is looked at. */
#define USE(object) __asm__ volatile("" : : "r"(&(object)) : "memory")

static double seconds(struct timeval tv) {
    return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

static double now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool read_monotonic(uint64_t reads) {
    struct timespec ts;
    for (uint64_t i = 0; i < reads; i++) {
        if (MONOTONIC(&ts) != 0)
            return false;
        USE(ts);
    }
    return true;
}

static bool read_gettimeofday(uint64_t reads) {
    struct timeval tv;
    for (uint64_t i = 0; i < reads; i++) {
        if (GETTIMEOFDAY(&tv) != 0)
            return false;
        USE(tv);
    }
    return true;
}

int main(int argc, char **argv) {
    uint64_t reads = 5000000;
    const char *call = argc > 1 ? argv[1] : "";
    const bool monotonic = strcmp(call, "monotonic") == 0;
    struct rusage before, after;
    double start_s, real_s;
    char *end = NULL;
    if (argc > 2)
        reads = strtoull(argv[2], &end, 10);
    if ((!monotonic && strcmp(call, "gettimeofday") != 0) || argc > 3 || (end && *end) ||
        reads == 0) {
        fprintf(stderr, "usage: %s monotonic|gettimeofday [READS]\n", argv[0]);
        return 2;
    }
    getrusage(RUSAGE_SELF, &before);
    start_s = now();
    if (!(monotonic ? read_monotonic(reads) : read_gettimeofday(reads))) {
        fprintf(stderr, "%s: the clock cannot be read: %s\n", argv[0], strerror(errno));
        return 1;
    }
    real_s = now() - start_s;
    getrusage(RUSAGE_SELF, &after);
    printf("{\"way\": \"" WAY
           "\", \"call\": \"%s\", \"bits\": %d, \"reads\": %ju, \"real_s\": %.6f, "
           "\"user_s\": %.6f, \"system_s\": %.6f}\n",
           call, (int)(8 * sizeof(void *)), (uintmax_t)reads, real_s,
           seconds(after.ru_utime) - seconds(before.ru_utime),
           seconds(after.ru_stime) - seconds(before.ru_stime));
    return fflush(stdout) == 0 ? 0 : 1;
}
