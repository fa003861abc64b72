/* SPDX-License-Identifier: MIT
 *
 * A program that reads every clock in several threads while it allocates, to be built with the
 * sanitizers and run under the preloaded library. Prints what it has found: the same every time.
 *
 * Each reading has to lie between two system calls. On the timekeep page, which follows the
 * kernel's clocks, it may lie outside by the nanoseconds that are the first argument; a coarse
 * clock, by an update of the page more.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 4, READS = 20000, CLOCKS = 12 };

static uint64_t tolerance_ns;

static uint64_t tolerance_of(int clock) {
    const uint64_t update_ns = 20000000;
    const int coarse = clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE;
    return tolerance_ns + (tolerance_ns && coarse ? update_ns : 0);
}

static uint64_t kernel_ns(int clock) {
    int64_t ts[2] = {0, 0};
    return syscall(SYS_clock_gettime, clock, ts) == 0
               ? (uint64_t)ts[0] * 1000000000u + (uint64_t)ts[1]
               : 0;
}

/* Counts what is wrong. */
static void *work(void *argument) {
    uint64_t *wrong = argument;
    for (int i = 0; i < READS; i++) {
        const int clock = i % CLOCKS;
        struct timespec *ts = malloc(sizeof *ts);
        const uint64_t before = kernel_ns(clock);
        const int result = clock_gettime(clock, ts);
        const uint64_t after = kernel_ns(clock);
        const uint64_t ns = (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec;
        if ((result == 0) != (before != 0))
            ++*wrong;
        else if (result == 0 && after >= before &&
                 (ns + tolerance_of(clock) < before || ns > after + tolerance_of(clock)))
            ++*wrong;
        else if (result != 0 && errno != EINVAL)
            ++*wrong;
        free(ts);
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS];
    uint64_t wrong[THREADS] = {0}, sum = 0;
    struct timeval tv;
    struct timespec ts;
    tolerance_ns = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, &wrong[i]) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += wrong[i];
    }
    if (gettimeofday(&tv, NULL) != 0 || time(NULL) < tv.tv_sec - 1 ||
        timespec_get(&ts, TIME_UTC) != TIME_UTC || ts.tv_sec < tv.tv_sec)
        sum++;
    printf("%d threads, %d reads each, %ju wrong\n", THREADS, READS, (uintmax_t)sum);
    return sum != 0;
}
