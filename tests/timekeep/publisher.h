/* SPDX-License-Identifier: MIT
 *
 * A publisher in a child process.
 */
#ifndef FASTCLOCK_TESTS_PUBLISHER_H
#define FASTCLOCK_TESTS_PUBLISHER_H

#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "failpoint.h"
#include "reader.h"
#include "timekeep_host.h"

enum {
    FAST_INTERVAL_NS = 1000000, /* the publishers of these tests update more often than others */
    VALID_NS = 2 * FAST_INTERVAL_NS /* no timehands is vouched for longer */
};

/* A mount namespace of its own, with an empty /run that holds `size` ("" for the default). */
static inline void own_run(const char *size) {
    MUST(unshare(CLONE_NEWNS));
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    MUST(mount("tmpfs", "/run", "tmpfs", 0, size));
}

struct publisher {
    uint64_t at; /* the store of an update, after SIGUSR1, before which `signal` is raised */
    int signal;
    int64_t off_ns; /* by which it believes the kernel's clocks to be ahead of where they are */
};

static int64_t publisher_off_ns;

static inline int32_t gettime_off(void *context, int32_t clock, struct fc_reading *out) {
    const int32_t error = fc_timekeep_machine.gettime(context, clock, out);
    const uint64_t ns = fc_reading_count(*out) + (uint64_t)publisher_off_ns;
    out->sec = ns / 1000000000u;
    out->ns = ns % 1000000000u;
    return error;
}

static volatile sig_atomic_t publisher_signalled;

static inline void on_publisher_signal(int number) {
    (void)number;
    publisher_signalled = 1;
}

static inline void publish_until_killed(const struct publisher *p) {
    const struct fc_timekeep_ports ports = {fc_timekeep_machine.counter, gettime_off, NULL};
    static struct fc_timekeep_host host;
    struct fc_timekeep_discipline d;
    int error;
    const char *wrong =
        fc_timekeep_host_open(&host, FC_TIMEKEEP_DIRECTORY, FAST_INTERVAL_NS, &error);
    CHECK(!wrong, "%s: %s", wrong, strerror(error));
    publisher_off_ns = p->off_ns;
    fc_timekeep_discipline_init(&d, FAST_INTERVAL_NS);
    for (;;) {
        const uint64_t began = kernel_now_ns(FC_MONOTONIC);
        if (fc_timekeep_update(&d, host.page, &ports, false) == FC_TIMEKEEP_SERVES) {
            if (!fc_timekeep_host_show(&host))
                FAIL("the page cannot be shown: %s", strerror(errno));
            if (publisher_signalled && !failpoint.armed) {
                failpoint.passed = 0;
                failpoint.at = p->at;
                failpoint.signal = p->signal;
                failpoint.armed = true;
            }
        }
        if (kernel_now_ns(FC_MONOTONIC) - began < d.next_ns) {
            const struct timespec pause = {0, (long)(d.next_ns * 3 / 4)};
            nanosleep(&pause, NULL);
        }
    }
}

static inline pid_t start_publisher(const struct publisher *p) {
    const struct sigaction action = {.sa_handler = on_publisher_signal};
    const pid_t parent = getpid();
    pid_t pid;
    MUST(sigaction(SIGUSR1, &action, NULL));
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            publish_until_killed(p);
        _exit(0);
    }
    return pid;
}

/* Waits until a page is there and serves. */
static inline const struct fc_timekeep *wait_for_page(void) {
    for (;;) { /* the claim's deadline ends it */
        struct fc_reading reading;
        int32_t reason, hands;
        const struct fc_timekeep *page =
            fc_timekeep_map(FC_TIMEKEEP_DIRECTORY, FC_TIMEKEEP_NAME, &reason);
        if (page &&
            fc_timekeep_page_read(page, FC_MONOTONIC, true, &reading, &hands) == FC_REASON_NONE)
            return page;
        sched_yield();
    }
}

#endif
