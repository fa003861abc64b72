/* SPDX-License-Identifier: MIT
 *
 * What the first read of a process costs, proof included: runs itself again and again, each time a
 * new process whose first read is measured by the raw system call. JSON on standard output.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <fastclock.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t syscall_ns(void) {
    struct timespec now;
    if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC_RAW, &now) != 0)
        abort();
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The new process: two spans, of its first read and of its second. */
static int child(void) {
    uint64_t span_ns[2];
    const uint64_t start = syscall_ns();
    if (fc_monotonic_ns() == FC_NO_TIME)
        return 1;
    span_ns[0] = syscall_ns() - start;
    if (fc_monotonic_ns() == FC_NO_TIME)
        return 1;
    span_ns[1] = syscall_ns() - start - span_ns[0];
    return write(STDOUT_FILENO, span_ns, sizeof span_ns) == sizeof span_ns ? 0 : 1;
}

static int run_child(uint64_t span_ns[2]) {
    int ends[2], status;
    ssize_t size;
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC) != 0 || (pid = fork()) < 0)
        return -1;
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "cold", "--child", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size = read(ends[0], span_ns, 2 * sizeof *span_ns);
    close(ends[0]);
    if (waitpid(pid, &status, 0) != pid || status != 0 || size != 2 * sizeof *span_ns)
        return -1;
    return 0;
}

static int compare(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    enum { PROCESSES = 300 };
    static uint64_t first_ns[PROCESSES], second_ns[PROCESSES];
    if (argc == 2 && strcmp(argv[1], "--child") == 0)
        return child();
    if (argc != 1) {
        puts("usage: cold\nMeasures the first read of each of 300 new processes; JSON on standard "
             "output.");
        return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
    }
    for (int i = 0; i < PROCESSES; i++) {
        uint64_t span_ns[2];
        if (run_child(span_ns) != 0) {
            fprintf(stderr, "cold: a process of its own failed\n");
            return 1;
        }
        first_ns[i] = span_ns[0];
        second_ns[i] = span_ns[1];
    }
    qsort(first_ns, PROCESSES, sizeof *first_ns, compare);
    qsort(second_ns, PROCESSES, sizeof *second_ns, compare);
    printf("{\"processes\": %d, \"first_min_ns\": %" PRIu64 ", \"first_median_ns\": %" PRIu64
           ", \"first_p90_ns\": %" PRIu64 ", \"first_max_ns\": %" PRIu64
           ", \"second_median_ns\": %" PRIu64 "}\n",
           PROCESSES, first_ns[0], first_ns[PROCESSES / 2], first_ns[PROCESSES * 9 / 10],
           first_ns[PROCESSES - 1], second_ns[PROCESSES / 2]);
    return 0;
}
