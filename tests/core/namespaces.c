/* SPDX-License-Identifier: MIT
 *
 * Time namespaces: entered by fork and by setns, before and after the first read. The page that a
 * process reads turns into another one, and its reads follow, without system calls.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>

#include "clocks.h"
#include "deny.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { MONOTONIC_AHEAD_S = 100000, BOOTTIME_AHEAD_S = 200000 };

/* Makes a namespace for the children of this process, with offsets. They carry nanoseconds, so that
 * the sum has to be brought below a second. */
static void make_namespace(void) {
    char text[128];
    int length, descriptor;
    if (unshare(CLONE_NEWTIME) < 0) {
        if (errno == EINVAL)
            CANNOT("this kernel has no time namespaces");
        FAIL("unshare(CLONE_NEWTIME): %s", strerror(errno));
    }
    length = snprintf(text, sizeof text, "monotonic %d 999999999\nboottime %d 999999999\n",
                      MONOTONIC_AHEAD_S, BOOTTIME_AHEAD_S);
    MUST(descriptor = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC));
    CHECK(write(descriptor, text, (size_t)length) == length, "%s", strerror(errno));
    close(descriptor);
}

static void must_be_ahead(uint64_t root_ns, bool ahead) {
    const uint64_t now_ns = fc_monotonic_ns(), hour_ns = 3600 * (uint64_t)1000000000;
    const uint64_t offset_ns = MONOTONIC_AHEAD_S * (uint64_t)1000000000;
    CHECK((now_ns - root_ns >= offset_ns) == ahead, "%" PRIu64 " after %" PRIu64, now_ns, root_ns);
    CHECK(now_ns - root_ns < offset_ns + hour_ns, "%" PRIu64 " after %" PRIu64, now_ns, root_ns);
}

static void first_read_inside(const void *argument) {
    uint64_t root_ns = 0;
    pid_t pid;
    CHECK(bracket_syscall_ns(FC_MONOTONIC, &root_ns) == 0, "the system call was refused");
    make_namespace();
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        use_source(argument);
        all_must_lie_in_brackets(check_rounds(20000), true);
        must_be_ahead(root_ns, true);
        CHECK(info_now().time_namespace ==
                  (((const struct source *)argument)->number == FC_SOURCE_KERNEL_PAGE ? 1 : -1),
              "it says %d", (int)info_now().time_namespace);
        _exit(0);
    }
    MUST_EXIT_0(pid);
    all_must_lie_in_brackets(100, true);
    must_be_ahead(root_ns, false);
}

static void fork_after_first_read(const void *argument) {
    const struct source *source = argument;
    uint64_t root_ns;
    pid_t pid;
    use_source(source);
    all_must_lie_in_brackets(100, true);
    root_ns = fc_monotonic_ns();
    make_namespace();
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        all_must_lie_in_brackets(check_rounds(20000), true);
        must_be_ahead(root_ns, true);
        CHECK(info_now().source == source->number, "%s", fc_source_name(info_now().source));
        _exit(0);
    }
    MUST_EXIT_0(pid);
    all_must_lie_in_brackets(100, true);
    must_be_ahead(root_ns, false);
}

/* The first read, and with it the proof, needs system calls; what follows does not. */
static void no_system_call_inside(const void *argument) {
    pid_t pid;
    make_namespace();
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        use_source(argument);
        for (int i = 0; i < CLOCK_READS; i++)
            clock_reads[i].read();
        CHECK(info_now().serving == FC_SOURCE_KERNEL_PAGE, "%s serves: %s",
              fc_source_name(info_now().serving), fc_reason_text(info_now().serving_reason));
        deny_time_calls(SECCOMP_RET_KILL_PROCESS);
        for (uint64_t i = 0; i < check_rounds(20000); i++)
            for (int r = 0; r < CLOCK_READS; r++)
                CHECK(clock_reads[r].read() != FC_NO_TIME, "%s tells no time", clock_reads[r].name);
        _exit(0);
    }
    MUST_EXIT_0(pid);
}

/* To and fro under a running process: no exec, no fork. */
static void enter_and_leave_by_setns(const void *argument) {
    const struct source *source = argument;
    int outside, inside;
    uint64_t root_ns;
#ifdef __SANITIZE_THREAD__
    CANNOT(CHECK_SANITIZER " has a thread of its own, and setns is for single-threaded processes");
#endif
    use_source(source);
    all_must_lie_in_brackets(10, true);
    root_ns = fc_monotonic_ns();
    MUST(outside = open("/proc/self/ns/time", O_RDONLY | O_CLOEXEC));
    make_namespace();
    MUST(inside = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC));
    for (uint64_t i = 0; i < check_rounds(200); i++) {
        MUST(setns(inside, CLONE_NEWTIME));
        must_be_ahead(root_ns, true); /* with the very next read */
        all_must_lie_in_brackets(20, true);
        MUST(setns(outside, CLONE_NEWTIME));
        must_be_ahead(root_ns, false);
        all_must_lie_in_brackets(20, true);
        CHECK(info_now().source == source->number, "%s", fc_source_name(info_now().source));
        CHECK(info_now().serving ==
                  (source->number == FC_SOURCE_LIBC ? FC_SOURCE_LIBC : source->number),
              "%s serves", fc_source_name(info_now().serving));
    }
}

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    for (int s = 0; s < SOURCES; s++) {
        snprintf(sentence, sizeof sentence, "%s: the first read inside a namespace is right",
                 sources[s].name);
        check_that(sentence, first_read_inside, &sources[s]);
        snprintf(sentence, sizeof sentence,
                 "%s: a child inside reads right after its parent has read outside",
                 sources[s].name);
        check_that(sentence, fork_after_first_read, &sources[s]);
        snprintf(sentence, sizeof sentence,
                 "%s: a process that enters and leaves by setns reads right at once",
                 sources[s].name);
        check_that(sentence, enter_and_leave_by_setns, &sources[s]);
    }
    check_that("kernel-page: reads inside need no system call", no_system_call_inside, &sources[0]);
    return check_end();
}
