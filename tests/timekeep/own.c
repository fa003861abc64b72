/* SPDX-License-Identifier: MIT
 *
 * A page of the process's own, kept up to date by its reads.
 */
#define _GNU_SOURCE
#include "publisher.h"

#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <sys/time.h>

/* Whatever the host publishes. */
static void choose_own(void) {
    own_run("");
    choose_timekeep(FC_TIMEKEEP_OWN);
}

/* Reads until the page serves; the claim's deadline ends it. */
static void until_it_serves(void) {
    struct fc_info info;
    do {
        near_kernel(20);
        fc_get_info(&info, sizeof info);
    } while (info.serving != FC_SOURCE_TIMEKEEP);
}

static void every_clock(const void *argument) {
    struct fc_info info;
    (void)argument;
    choose_own();
    near_kernel(check_rounds(300000));
    fc_get_info(&info, sizeof info);
    CHECK(info.serving == FC_SOURCE_TIMEKEEP, "served by %d", info.serving);
}

static void never_by_itself(const void *argument) {
    struct fc_info info;
    (void)argument;
    unsetenv("FASTCLOCK_SOURCE");
    fc_get_info(&info, sizeof info);
    CHECK(info.source != FC_SOURCE_TIMEKEEP && info.timekeep == 0, "source %d", info.source);
    CHECK(info.reason[FC_SOURCE_TIMEKEEP] == FC_REASON_NOT_OPTED_IN, "reason %d",
          info.reason[FC_SOURCE_TIMEKEEP]);
    CHECK(strstr(fc_reason_text(FC_REASON_NOT_OPTED_IN), "FASTCLOCK_SOURCE=timekeep") &&
              strstr(fc_reason_text(FC_REASON_NOT_OPTED_IN), "cost") &&
              strstr(fc_reason_text(FC_REASON_NOT_OPTED_IN), "risk"),
          "the text is: %s", fc_reason_text(FC_REASON_NOT_OPTED_IN));
}

static void no_thread(const void *argument) {
    DIR *tasks;
    int count = 0;
    (void)argument;
#ifdef __SANITIZE_THREAD__
    CANNOT("the thread sanitizer has a thread of its own");
#endif
    choose_own();
    near_kernel(1000);
    tasks = opendir("/proc/self/task");
    CHECK(tasks, "%s", strerror(errno));
    for (const struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    CHECK(count == 1, "%d threads", count);
}

static _Atomic uint64_t latest;

static void *pass_stamps(void *rounds) {
    for (uint64_t i = 0; i < *(uint64_t *)rounds; i++) {
        uint64_t seen = atomic_load(&latest);
        const uint64_t ns = fc_monotonic_ns();
        CHECK(ns >= seen, "%" PRIu64 " ns before what another thread had", seen - ns);
        while (seen < ns && !atomic_compare_exchange_weak(&latest, &seen, ns))
            continue;
    }
    return NULL;
}

static void threads(const void *argument) {
    uint64_t rounds = check_rounds(3000000);
    pthread_t others[3];
    (void)argument;
    choose_own();
    for (int i = 0; i < 3; i++)
        MUST(-pthread_create(&others[i], NULL, pass_stamps, &rounds));
    pass_stamps(&rounds);
    for (int i = 0; i < 3; i++)
        pthread_join(others[i], NULL);
}

static sigjmp_buf away;
static volatile sig_atomic_t handled, jump;

static void read_in_handler(int signal) {
    (void)signal;
    fc_monotonic_ns();
    fc_realtime_ns();
    handled++;
    if (jump && handled % 3 == 0)
        siglongjmp(away, 1);
}

static void signals(const void *argument) {
    const struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    const sig_atomic_t enough = (sig_atomic_t)check_rounds(3000);
    struct sigaction action;
    struct fc_info info;
    jump = *(const int *)argument;
    choose_own();
    memset(&action, 0, sizeof action);
    action.sa_handler = read_in_handler;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    sigsetjmp(away, 1);
    while (handled < enough)
        fc_monotonic_ns();
    jump = 0;
    setitimer(ITIMER_REAL, &never, NULL);
    /* A page that a handler left busy would never be updated again. */
    for (uint64_t began = kernel_now_ns(FC_MONOTONIC);
         kernel_now_ns(FC_MONOTONIC) - began < 200000000;)
        near_kernel(10);
    until_it_serves();
    fc_get_info(&info, sizeof info);
    CHECK(info.timekeep_in_service == 1, "out of service");
}

static void leave(int signal) {
    (void)signal;
    siglongjmp(away, 1);
}

/* A signal for each store of an update, whose handler would leave it for good. */
static void jump_at_each_store(const void *argument) {
    struct sigaction action;
    volatile uint64_t at = 0;
    (void)argument;
    choose_own();
    memset(&action, 0, sizeof action);
    action.sa_handler = leave;
    sigaction(SIGALRM, &action, NULL);
    failpoint.signal = SIGALRM;
    sigsetjmp(away, 1);
    failpoint.passed = 0;
    failpoint.at = ++at;
    failpoint.armed = at <= 60;
    while (failpoint.armed)
        fc_monotonic_ns();
    CHECK(at > 60, "only %" PRIu64 " signals", at);
    until_it_serves();
}

static atomic_bool amid_update, forked;

static void wait_for_fork(void) {
    atomic_store(&amid_update, true);
    while (!atomic_load(&forked))
        sched_yield();
}

static void *update_slowly(void *unused) {
    (void)unused;
    failpoint.act = wait_for_fork;
    failpoint.at = 20;
    failpoint.armed = true;
    while (!atomic_load(&forked))
        fc_monotonic_ns();
    return NULL;
}

static void fork_amid_update(const void *argument) {
    pthread_t other;
    pid_t pid;
    (void)argument;
#ifdef __SANITIZE_THREAD__
    CANNOT("the thread sanitizer does not let a child of several threads go on");
#endif
    choose_own();
    MUST(-pthread_create(&other, NULL, update_slowly, NULL));
    while (!atomic_load(&amid_update))
        sched_yield();
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        failpoint.armed = false;
        near_kernel(100);
        until_it_serves();
        _exit(0);
    }
    atomic_store(&forked, true);
    pthread_join(other, NULL);
    MUST_EXIT_0(pid);
    until_it_serves();
}

static void fork_storm(const void *argument) {
    const uint64_t children = check_rounds(200);
    (void)argument;
    choose_own();
    for (uint64_t i = 0; i < children; i++) {
        const pid_t pid = fork();
        MUST(pid);
        if (pid == 0) {
            near_kernel(50);
            if (i % 20 == 0) {
                const pid_t grandchild = fork();
                MUST(grandchild);
                if (grandchild == 0) {
                    until_it_serves();
                    _exit(0);
                }
                until_it_serves();
                MUST_EXIT_0(grandchild);
            }
            _exit(0);
        }
        near_kernel(5);
        MUST_EXIT_0(pid);
    }
    until_it_serves();
}

static void *read_for_ever(void *unused) {
    (void)unused;
    for (;;)
        fc_monotonic_ns();
    return NULL;
}

static void fork_while_reading(const void *argument) {
    const uint64_t children = check_rounds(300);
    pthread_t other;
    (void)argument;
#ifdef __SANITIZE_THREAD__
    CANNOT("the thread sanitizer does not let a child of several threads go on");
#endif
    choose_own();
    MUST(-pthread_create(&other, NULL, read_for_ever, NULL));
    for (uint64_t i = 0; i < children; i++) {
        const pid_t pid = fork(); /* amid an update of the other thread, now and then */
        MUST(pid);
        if (pid == 0) {
            near_kernel(20);
            if (i % 30 == 0)
                until_it_serves();
            _exit(0);
        }
        MUST_EXIT_0(pid);
    }
}

static void seldom(const void *argument) {
    const struct timespec pause = {0, 15000000};
    struct fc_info info;
    enum fc_timekeep_kind kind;
    uint64_t updates;
    (void)argument;
    choose_own();
    while (fc_get_info(&info, sizeof info) == 0 && info.serving == FC_SOURCE_TIMEKEEP)
        nanosleep(&pause, NULL);
    updates = fc_timekeep_page(&kind)->heartbeat;
    for (int i = 0; i < 30; i++) {
        nanosleep(&pause, NULL);
        near_kernel(1);
    }
    CHECK(fc_timekeep_page(&kind)->heartbeat == updates, "%" PRIu64 " updates for 30 reads",
          fc_timekeep_page(&kind)->heartbeat - updates);
}

static void selections(const void *argument) {
    (void)argument;
    choose_own();
    for (int i = 0; i < 20; i++) {
        CHECK(fc_select(FC_SOURCE_SYSCALL) == 0, "the system call is refused");
        near_kernel(10);
        CHECK(fc_select(FC_SOURCE_TIMEKEEP) == 0, "the page is refused");
        near_kernel(100);
    }
}

int main(int argc, char **argv) {
    static const int staying = 0, jumping = 1;
    check_begin(argc, argv);
    check_that("nobody gets a timekeep page without asking, and everybody is told of it",
               never_by_itself, NULL);
    check_that("every clock of an own page is near the kernel's", every_clock, NULL);
    check_that("no thread is made", no_thread, NULL);
    check_that("threads that pass stamps to each other never see time go back", threads, NULL);
    check_that("reads in a 10 kHz storm of signals do not disturb the page", signals, &staying);
    check_that("handlers that read and leave by longjmp do not disturb the page", signals,
               &jumping);
    check_that("no signal's handler can leave an update unfinished", jump_at_each_store, NULL);
    check_that("a child that is forked amid an update is not bound by it", fork_amid_update, NULL);
    check_that("forked children begin pages of their own", fork_storm, NULL);
    check_that("a fork amid another thread's reads leaves the child right", fork_while_reading,
               NULL);
    check_that("reads that come seldom cost no updates", seldom, NULL);
    check_that("the source can be changed and chosen again", selections, NULL);
    return check_end();
}
