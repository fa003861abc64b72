/* SPDX-License-Identifier: MIT
 *
 * A publisher in a child process, and a reader that holds every reading against the kernel.
 */
#ifndef FASTCLOCK_TESTS_PUBLISHER_H
#define FASTCLOCK_TESTS_PUBLISHER_H

#include <fastclock.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "../bracket.h"
#include "../core/check.h"
#include "failpoint.h"
#include "timekeep_host.h"

enum {
    FAST_INTERVAL_NS = 1000000, /* the publishers of these tests update more often than others */
    NEAR_NS = 100000            /* a page whose publisher is not there follows that well */
};

static inline uint64_t kernel_now_ns(int32_t clock) {
    uint64_t ns = 0;
    if (bracket_syscall_ns(clock, &ns) != 0)
        FAIL("clock %d cannot be read by system call", clock);
    return ns;
}

/* A mount namespace of its own, with an empty /run that holds `size` ("" for the default). */
static inline void own_run(const char *size) {
    MUST(unshare(CLONE_NEWNS));
    MUST(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
    MUST(mount("tmpfs", "/run", "tmpfs", 0, size));
}

/* What a publisher does until it is killed: update `updates` times (0: for ever), then with the
 * failpoint armed. */
struct publisher {
    const char *directory;
    uint64_t interval_ns;
    uint64_t at; /* the store before which `signal` is raised, in the updates after it serves; 0:
                    none */
    int signal;
};

static inline void publish_until_killed(const struct publisher *p) {
    struct fc_timekeep_discipline d;
    struct fc_timekeep_host host;
    int error;
    const char *wrong =
        fc_timekeep_host_open(&host, p->directory ? p->directory : FC_TIMEKEEP_DIRECTORY,
                              p->interval_ns ? p->interval_ns : FAST_INTERVAL_NS, &error);
    CHECK(!wrong, "%s: %s", wrong, strerror(error));
    fc_timekeep_discipline_init(&d, p->interval_ns ? p->interval_ns : FAST_INTERVAL_NS);
    for (;;) {
        const uint64_t began = kernel_now_ns(FC_MONOTONIC);
        const struct timespec pause = {0, (long)(host.page->interval_ns * 3 / 4)};
        if (fc_timekeep_update(&d, host.page, &fc_timekeep_machine, 0) == FC_TIMEKEEP_SERVES) {
            if (!fc_timekeep_host_show(&host))
                FAIL("the page cannot be shown: %s", strerror(errno));
            if (p->at && !failpoint.armed) {
                failpoint.passed = 0;
                failpoint.at = p->at;
                failpoint.signal = p->signal;
                failpoint.armed = true;
            }
        }
        if (kernel_now_ns(FC_MONOTONIC) - began < host.page->interval_ns)
            nanosleep(&pause, NULL);
    }
}

static inline pid_t start_publisher(const struct publisher *p) {
    const pid_t parent = getpid();
    const pid_t pid = fork();
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
static inline const struct fc_timekeep *wait_for_page(const char *directory) {
    for (;;) { /* the claim's deadline ends it */
        struct fc_reading reading;
        int32_t reason, hands;
        const struct fc_timekeep *page = fc_timekeep_map(
            directory ? directory : FC_TIMEKEEP_DIRECTORY, FC_TIMEKEEP_NAME, &reason);
        if (page &&
            fc_timekeep_page_read(page, FC_MONOTONIC, true, &reading, &hands) == FC_REASON_NONE)
            return page;
        sched_yield();
    }
}

/* A reader of a page, as read.c is one: the page, else the kernel, not below the page's floor. */
struct page_reader {
    const struct fc_timekeep *page;
    uint64_t previous_ns;
    uint64_t from_page, from_kernel;
};

static inline void read_and_check(struct page_reader *reader) {
    struct fc_reading reading, floor;
    int32_t hands;
    const uint64_t before = kernel_now_ns(FC_MONOTONIC);
    uint64_t after, ns;
    if (fc_timekeep_page_read(reader->page, FC_MONOTONIC, true, &reading, &hands) ==
        FC_REASON_NONE) {
        ns = fc_reading_count(reading);
        reader->from_page++;
    } else {
        ns = kernel_now_ns(FC_MONOTONIC);
        if (fc_timekeep_page_floor(reader->page, FC_MONOTONIC, fc_ticks(), &floor) &&
            fc_reading_count(floor) > ns && fc_reading_count(floor) - ns < 1000000)
            ns = fc_reading_count(floor);
        reader->from_kernel++;
    }
    after = kernel_now_ns(FC_MONOTONIC);
    CHECK(ns + NEAR_NS > before && ns < after + NEAR_NS,
          "%" PRIu64 " is not near [%" PRIu64 ", %" PRIu64 "]", ns, before, after);
    CHECK(ns >= reader->previous_ns, "went back by %" PRIu64 " ns", reader->previous_ns - ns);
    reader->previous_ns = ns;
}

static inline void read_for(struct page_reader *reader, uint64_t ns) {
    const uint64_t end = kernel_now_ns(FC_MONOTONIC) + ns;
    while (kernel_now_ns(FC_MONOTONIC) < end)
        read_and_check(reader);
}

#endif
