/* SPDX-License-Identifier: MIT
 *
 * Time namespaces, entered in each of the ways there are: by a program that starts in one, by a
 * child forked after unshare, and by setns in a running process, there and back. The page under the
 * reader is exchanged each time, at the same address.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "readers.h"
#include "report.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static const struct readers_setup plain = {.limit_ns = 0};

/* Nanoseconds are added to seconds that may be negative. */
enum { MONOTONIC_S = 100000, MONOTONIC_NS = 999999999, BOOTTIME_S = -1, BOOTTIME_NS = 500000000 };

/* Children of this process will be in a new time namespace. */
static bool unshare_time(void) {
    char text[128];
    int error;
    if (unshare(CLONE_NEWTIME) != 0) {
        if (errno == EINVAL)
            impossible("unshare(CLONE_NEWTIME): %s: the kernel has no time namespaces",
                       strerror(errno));
        else
            fail("unshare(CLONE_NEWTIME): %s", strerror(errno));
        return false;
    }
    snprintf(text, sizeof text, "monotonic %d %d\nboottime %d %d\n", MONOTONIC_S, MONOTONIC_NS,
             BOOTTIME_S, BOOTTIME_NS);
    error = file_write("/proc/self/timens_offsets", text);
    return expect(error == 0, "writing timens_offsets: %s", strerror(-error));
}

/* `outside` was read outside not long ago. */
static bool expect_offset(const char *when, uint64_t outside, bool inside) {
    const uint64_t offset = inside ? (uint64_t)MONOTONIC_S * NS_PER_S + MONOTONIC_NS : 0;
    const uint64_t now = fc_monotonic_ns(), minutes = 600 * (uint64_t)NS_PER_S;
    const struct fc_info info = get_info();
    return expect(now >= outside + offset && now < outside + offset + minutes,
                  "%s: monotonic is %" PRIu64 ", outside it was %" PRIu64, when, now, outside) &&
           expect(info.time_namespace == inside, "%s: fc_get_info has time_namespace %d", when,
                  info.time_namespace);
}

static void wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0,
           "the child in the namespace ended with %d", status);
}

/* ---- exec -------------------------------------------------------------------------------------
 */

/* The report does not outlive exec: what the new program found comes back as text by a pipe. */
void check_namespace_exec(void) {
    char outside[32], count[32], line[2048];
    int ends[2];
    pid_t child;
    size_t length = 0;
    uint64_t good;
    char *at;
    snprintf(outside, sizeof outside, "%" PRIu64, fc_monotonic_ns());
    snprintf(count, sizeof count, "%" PRIu64, target);
    if (pipe2(ends, O_CLOEXEC) != 0 || (child = fork()) < 0) {
        fail("pipe or fork: %s", strerror(errno));
        return;
    }
    if (child == 0) {
        pid_t grandchild;
        if (!unshare_time())
            _exit(0);
        grandchild = fork(); /* in the namespace, and then the program anew */
        if (grandchild == 0) {
            dup2(ends[1], STDOUT_FILENO);
            execl("/proc/self/exe", "checks", "--namespace", outside, count, NULL);
            _exit(127);
        }
        wait_for(grandchild);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; length < sizeof line - 1 &&
                      (got = read(ends[0], line + length, sizeof line - 1 - length)) != 0;)
        length += got > 0 ? (size_t)got : 0;
    line[length] = '\0';
    close(ends[0]);
    wait_for(child);
    if (report->failed || report->impossible)
        return;
    at = strstr(line, "\"good\": ");
    if (!expect(at && strstr(line, "\"state\": \"pass\""), "the program in the namespace: %s",
                line))
        return;
    good = strtoull(at + strlen("\"good\": "), NULL, 10);
    expect(good > 0, "the program in the namespace read nothing");
    report->good += good;
    report->brackets += good;
}

int namespace_exec_main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    report_begin();
    target = strtoull(argv[1], NULL, 10);
    expect(fc_init() == 0, "fc_init: no source");
    expect_fast("started in a time namespace");
    expect_offset("started in a time namespace", strtoull(argv[0], NULL, 10), true);
    read_for(&plain, target);
    expect_fast("started in a time namespace, after the reads");
    report_end("namespace-exec");
    return 0;
}

/* ---- fork -------------------------------------------------------------------------------------
 */

void check_namespace_fork(void) {
    const uint64_t outside = fc_monotonic_ns();
    pid_t middle, child;
    expect_fast("before unshare");
    middle = fork();
    if (middle == 0) {
        if (!unshare_time())
            _exit(0);
        expect_offset("after unshare, before fork", outside, false);
        child = fork();
        if (child == 0) {
            expect_offset("forked into a time namespace", outside, true);
            expect_fast("forked into a time namespace");
            read_for(&plain, target);
            expect_fast("forked into a time namespace, after the reads");
            _exit(0);
        }
        /* The parent stays outside, and reads meanwhile; without threads, which older kernels do
         * not allow after unshare. */
        {
            struct reader *alone = reader_alone(&plain);
            reader_run(alone, target / 8 / CLOCKS + 1);
            reader_judge(alone);
            free(alone);
        }
        expect_offset("the parent", outside, false);
        wait_for(child);
        _exit(0);
    }
    wait_for(middle);
}

/* ---- What else changes meanwhile --------------------------------------------------------------
 */

/* Another check, by a process that was forked into a namespace. */
static void inside_namespace(void (*check)(void)) {
    const uint64_t outside = fc_monotonic_ns();
    const pid_t middle = fork();
    if (middle == 0) {
        pid_t child;
        if (!unshare_time())
            _exit(0);
        child = fork();
        if (child == 0) {
            if (expect_offset("forked into a time namespace", outside, true))
                check();
            expect_offset("in a time namespace, in the end", outside, true);
            _exit(0);
        }
        wait_for(child);
        _exit(0);
    }
    wait_for(middle);
}

void check_namespace_clocksource(void) {
    inside_namespace(check_clocksource_round);
}

void check_namespace_kvm_clock(void) {
    inside_namespace(check_kvm_clock);
}

/* ---- setns ------------------------------------------------------------------------------------
 */

static struct reader *in_handler;

static void read_in_handler(int signal) {
    (void)signal;
    reader_run(in_handler, 1);
}

/* A process that lives in a new namespace until the returned descriptor is closed. */
static pid_t inhabitant(int *namespace, int *keep) {
    int ends[2], ready[2];
    pid_t middle, child = 0;
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0)
        return -1;
    middle = fork();
    if (middle == 0) {
        if (!unshare_time())
            _exit(0);
        child = fork();
        if (child == 0) {
            char byte;
            close(ends[1]);
            while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
                ;
            _exit(0);
        }
        close(ends[1]);
        if (write(ready[1], &child, sizeof child) != sizeof child)
            _exit(1);
        wait_for(child);
        _exit(0);
    }
    close(ready[1]);
    close(ends[0]);
    if (read(ready[0], &child, sizeof child) == sizeof child) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/time", (int)child);
        *namespace = open(path, O_RDONLY | O_CLOEXEC);
    }
    close(ready[0]);
    *keep = ends[1];
    return middle;
}

void check_namespace_setns(void) {
    enum { SIGNAL_US = 2000, ROUNDS = 8 };
    const struct itimerval every = {{0, SIGNAL_US}, {0, SIGNAL_US}}, never = {{0, 0}, {0, 0}};
    const struct sigaction action = {.sa_handler = read_in_handler, .sa_flags = SA_RESTART};
    struct reader *inside = NULL, *outside = NULL, *handler;
    const uint64_t start = fc_monotonic_ns();
    int home, away = -1, keep = -1;
    uint64_t moves = 0;
    pid_t middle;
    expect_fast("before setns");
    home = open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC);
    if (home < 0) {
        impossible("/proc/self/ns/time: %s", strerror(errno));
        return;
    }
    middle = inhabitant(&away, &keep);
    if (!report->impossible && expect(away >= 0, "no namespace to enter: %s", strerror(errno))) {
        /* Readings of one namespace are no measure for the other's: a reader for each, and for the
         * handler, which interrupts both, one whose clocks may go back. */
        inside = reader_alone(&plain);
        outside = reader_alone(&plain);
        handler = reader_alone(&plain);
        in_handler = handler;
        while (moves < target / (2 * ROUNDS * CLOCKS) && !report->failed) {
            const bool in = moves % 2 == 0;
            setitimer(ITIMER_REAL, &never, NULL);
            if (!expect(setns(in ? away : home, CLONE_NEWTIME) == 0, "setns: %s", strerror(errno)))
                break;
            if (!expect_offset(in ? "entered by setns" : "left by setns", start, in) ||
                !expect_fast(in ? "entered by setns" : "left by setns"))
                break;
            reader_run(in ? inside : outside, ROUNDS);
            if (moves == 0) {
                /* From here on reads are also made in a handler, whenever it strikes. */
                sigaction(SIGALRM, &action, NULL);
            }
            setitimer(ITIMER_REAL, &every, NULL);
            reader_run(in ? inside : outside, ROUNDS);
            moves++;
        }
        setitimer(ITIMER_REAL, &never, NULL);
        setns(home, CLONE_NEWTIME);
        reader_judge(inside);
        reader_judge(outside);
        reader_judge_brackets(handler);
    }
    close(keep);
    wait_for(middle);
    note("%" PRIu64 " moves", moves);
}
