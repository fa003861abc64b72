/* SPDX-License-Identifier: MIT
 *
 * The host's page as a file: who may publish it, what is trusted, and what attached processes do.
 */
#define _GNU_SOURCE
#include "publisher.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define PAGE_PATH FC_TIMEKEEP_DIRECTORY "/" FC_TIMEKEEP_NAME
enum { NOBODY = 65534 };

/* A host with a publisher; returns its process. */
static pid_t publishing_host(void) {
    static const struct publisher p = {0};
    pid_t pid;
    own_run("");
    pid = start_publisher(&p);
    wait_for_page();
    return pid;
}

static int32_t refusal(void) {
    int32_t reason;
    CHECK(!fc_timekeep_map(FC_TIMEKEEP_DIRECTORY, FC_TIMEKEEP_NAME, &reason),
          "the page is trusted");
    return reason;
}

/* ---- What is trusted --------------------------------------------------------------------------
 */

/* Each spoils the page that is there. */
static void belongs_to_another(void) {
    MUST(chown(PAGE_PATH, NOBODY, 0));
}
static void group_may_write(void) {
    MUST(chmod(PAGE_PATH, 0664));
}
static void all_may_write(void) {
    MUST(chmod(PAGE_PATH, 0646));
}
static void directory_belongs_to_another(void) {
    MUST(chown(FC_TIMEKEEP_DIRECTORY, NOBODY, 0));
}
static void all_may_write_directory(void) {
    MUST(chmod(FC_TIMEKEEP_DIRECTORY, 01777));
}
static void is_symbolic_link(void) {
    MUST(rename(PAGE_PATH, "/run/elsewhere"));
    MUST(symlink("/run/elsewhere", PAGE_PATH));
}
static void directory_is_symbolic_link(void) {
    MUST(rename(FC_TIMEKEEP_DIRECTORY, "/run/elsewhere"));
    MUST(symlink("/run/elsewhere", FC_TIMEKEEP_DIRECTORY));
}
static void is_hard_link(void) {
    MUST(link(PAGE_PATH, "/run/elsewhere"));
}
static void is_fifo(void) {
    MUST(unlink(PAGE_PATH));
    MUST(mkfifo(PAGE_PATH, 0644));
}
static void is_directory(void) {
    MUST(unlink(PAGE_PATH));
    MUST(mkdir(PAGE_PATH, 0755));
}
static void is_device(void) {
    MUST(unlink(PAGE_PATH));
    MUST(mknod(PAGE_PATH, S_IFCHR | 0644, 1 << 8 | 5));
}
static void is_truncated(void) {
    MUST(truncate(PAGE_PATH, 4096));
}
static void is_empty(void) {
    MUST(truncate(PAGE_PATH, 0));
}
static void is_longer(void) {
    MUST(truncate(PAGE_PATH, FC_TIMEKEEP_SIZE + 1));
}
static void is_absent(void) {
    MUST(unlink(PAGE_PATH));
}

struct spoiling {
    const char *claim;
    void (*spoil)(void);
};

static void spoilt(const void *argument) {
    const struct spoiling *spoiling = argument;
    pid_t pid = publishing_host();
    MUST(kill(pid, SIGSTOP));
    MUST(waitpid(pid, NULL, WUNTRACED));
    MUST(kill(pid, SIGKILL));
    MUST(waitpid(pid, NULL, 0));
    spoiling->spoil();
    {
        /* A process of its own: this one has the page mapped. */
        const pid_t reader = fork();
        MUST(reader);
        if (reader == 0) {
            choose_timekeep(FC_TIMEKEEP_OWN);
            _exit(0);
        }
        MUST_EXIT_0(reader);
    }
}

static void foreign_version(const void *argument) {
    const pid_t pid = publishing_host();
    struct fc_timekeep *page;
    const char *wrong;
    int error;
    (void)argument;
    MUST(kill(pid, SIGKILL));
    MUST(waitpid(pid, NULL, 0));
    page = fc_timekeep_host_switch(FC_TIMEKEEP_DIRECTORY, &wrong, &error);
    CHECK(page, "%s", wrong);
    page->version++;
    {
        const pid_t reader = fork();
        MUST(reader);
        if (reader == 0) {
            /* Mapped before the fork, so that the file is looked at again. */
            MUST(rename(PAGE_PATH, "/run/former"));
            MUST(system("cp /run/former " PAGE_PATH));
            CHECK(refusal() == FC_REASON_LAYOUT, "the reason is %d", refusal());
            _exit(0);
        }
        MUST_EXIT_0(reader);
    }
}

/* ---- Who may publish --------------------------------------------------------------------------
 */

/* The sentence that refuses, or NULL; a page that was opened is closed again. */
static const char *open_host(const char *directory, int *error) {
    struct fc_timekeep_host host;
    const char *wrong = fc_timekeep_host_open(&host, directory, FAST_INTERVAL_NS, error);
    if (!wrong)
        fc_timekeep_host_close(&host);
    return wrong;
}

static void another_user(const void *argument) {
    const char *wrong;
    int error;
    (void)argument;
    publishing_host();
    MUST(setgid(NOBODY));
    MUST(setuid(NOBODY));
    wrong = open_host(FC_TIMEKEEP_DIRECTORY, &error);
    CHECK(wrong && strstr(wrong, "root"), "it says: %s", wrong ? wrong : "nothing");
    CHECK(open(PAGE_PATH, O_RDWR) < 0 && errno == EACCES, "he may write the page");
    CHECK(open(FC_TIMEKEEP_DIRECTORY "/timekeep.lock", O_RDONLY) < 0 && errno == EACCES,
          "he may hold the lock");
    CHECK(unlink(PAGE_PATH) < 0 && open(FC_TIMEKEEP_DIRECTORY "/new", O_CREAT | O_RDWR, 0600) < 0,
          "he may change the directory");
    CHECK(truncate(PAGE_PATH, 0) < 0, "he may truncate the page");
    /* But read he may. */
    choose_timekeep(FC_TIMEKEEP_HOST);
}

static void second_publisher(const void *argument) {
    const char *wrong;
    int error;
    (void)argument;
    publishing_host();
    wrong = open_host(FC_TIMEKEEP_DIRECTORY, &error);
    CHECK(wrong && error == EAGAIN, "it says: %s", wrong ? wrong : "nothing");
}

static void squatted_directory(const void *argument) {
    const char *wrong;
    int error;
    (void)argument;
    own_run("");
    MUST(mkdir(FC_TIMEKEEP_DIRECTORY, 0777));
    MUST(chmod(FC_TIMEKEEP_DIRECTORY, 0777));
    wrong = open_host(FC_TIMEKEEP_DIRECTORY, &error);
    CHECK(wrong && strstr(wrong, "nobody else"), "it says: %s", wrong ? wrong : "nothing");
    MUST(chmod(FC_TIMEKEEP_DIRECTORY, 0755));
    MUST(chown(FC_TIMEKEEP_DIRECTORY, NOBODY, NOBODY));
    wrong = open_host(FC_TIMEKEEP_DIRECTORY, &error);
    CHECK(wrong && strstr(wrong, "nobody else"), "it says: %s", wrong ? wrong : "nothing");
    MUST(rmdir(FC_TIMEKEEP_DIRECTORY));
    MUST(mkdir("/run/other", 0755));
    MUST(symlink("/run/other", FC_TIMEKEEP_DIRECTORY));
    wrong = open_host(FC_TIMEKEEP_DIRECTORY, &error);
    CHECK(wrong && (error == ELOOP || error == ENOTDIR), "it says: %s, %d",
          wrong ? wrong : "nothing", error);
}

static void no_room(const void *argument) {
    const char *wrong;
    int error, filler;
    char bytes[4096] = {1};
    (void)argument;
    own_run(argument);
    filler = open("/run/filler", O_CREAT | O_RDWR, 0600);
    MUST(filler);
    while (write(filler, bytes, sizeof bytes) > 0)
        continue;
    wrong = open_host(FC_TIMEKEEP_DIRECTORY, &error);
    CHECK(wrong && error == ENOSPC, "it says: %s, %s", wrong ? wrong : "nothing", strerror(error));
    CHECK(access(FC_TIMEKEEP_DIRECTORY "/timekeep.new", F_OK) < 0, "half a page is left behind");
    CHECK(access(PAGE_PATH, F_OK) < 0, "a page is left behind");
    choose_timekeep(FC_TIMEKEEP_OWN);
    if (strcmp(argument, "size=4k") == 0)
        return;
    /* And with room again it works. */
    MUST(ftruncate(filler, 0));
    wrong = open_host(FC_TIMEKEEP_DIRECTORY, &error);
    CHECK(!wrong, "with room it says: %s, %s", wrong, strerror(error));
}

/* ---- Attached processes -----------------------------------------------------------------------
 */

static void attached(const void *argument) {
    struct fc_info info;
    const uint64_t reads = check_rounds(1000000);
    uint64_t slow;
    (void)argument;
    publishing_host();
    info = choose_timekeep(FC_TIMEKEEP_HOST);
    CHECK(info.timekeep_interval_ns == FAST_INTERVAL_NS, "interval %" PRIu64,
          info.timekeep_interval_ns);
    /* While the publisher is kept waiting the kernel answers; the claim's deadline ends it. */
    do {
        slow = info.slow_reads;
        for (uint64_t i = 0; i < reads; i++)
            fc_monotonic_ns();
        fc_get_info(&info, sizeof info);
    } while (info.slow_reads - slow >= reads / 10 || info.serving != FC_SOURCE_TIMEKEEP ||
             info.timekeep_in_service != 1);
}

static void every_clock(const void *argument) {
    (void)argument;
    publishing_host();
    choose_timekeep(FC_TIMEKEEP_HOST);
    near_kernel(check_rounds(200000));
}

static atomic_bool stop_flipping;

static void *flip(void *argument) {
    struct fc_timekeep *page = argument;
    while (!atomic_load(&stop_flipping)) {
        fc_timekeep_page_note32(&page->wanted, 0);
        usleep(3000);
        fc_timekeep_page_note32(&page->wanted, 1);
        usleep(3000);
    }
    return NULL;
}

static void flipped(const void *argument) {
    struct fc_info info;
    struct fc_timekeep *page;
    const char *wrong;
    pthread_t flipper;
    uint64_t previous = 0, slow;
    const uint64_t end = 400000000;
    uint64_t began;
    int error;
    (void)argument;
    publishing_host();
    info = choose_timekeep(FC_TIMEKEEP_HOST);
    slow = info.slow_reads;
    page = fc_timekeep_host_switch(FC_TIMEKEEP_DIRECTORY, &wrong, &error);
    CHECK(page, "%s", wrong);
    MUST(-pthread_create(&flipper, NULL, flip, page));
    began = kernel_now_ns(FC_MONOTONIC);
    while (kernel_now_ns(FC_MONOTONIC) - began < end) {
        for (int i = 0; i < 100; i++) {
            const uint64_t ns = fc_monotonic_ns();
            CHECK(ns >= previous, "went back by %" PRIu64, previous - ns);
            previous = ns;
        }
        near_kernel(5);
    }
    fc_get_info(&info, sizeof info);
    CHECK(info.slow_reads > slow, "no read took the kernel's word");
    /* Off means off, for good. */
    atomic_store(&stop_flipping, true);
    pthread_join(flipper, NULL);
    fc_timekeep_page_note32(&page->wanted, 0);
    while (page->hands[page->current % FC_TIMEKEEP_HANDS].fine.mode != FC_TIMEKEEP_MODE_OFF)
        sched_yield();
    fc_get_info(&info, sizeof info);
    CHECK(info.serving != FC_SOURCE_TIMEKEEP && info.serving_reason == FC_REASON_SWITCHED_OFF,
          "served by %d, reason %d", info.serving, info.serving_reason);
}

static void starts_while_off(const void *argument) {
    struct fc_timekeep *page;
    const char *wrong;
    int error;
    pid_t reader;
    (void)argument;
    publishing_host();
    page = fc_timekeep_host_switch(FC_TIMEKEEP_DIRECTORY, &wrong, &error);
    CHECK(page, "%s", wrong);
    fc_timekeep_page_note32(&page->wanted, 0);
    while (__atomic_load_n(&page->enabled, __ATOMIC_RELAXED))
        sched_yield();
    reader = fork();
    MUST(reader);
    if (reader == 0) {
        struct fc_info info;
        CHECK(fc_select(FC_SOURCE_TIMEKEEP) < 0, "the page is used");
        fc_get_info(&info, sizeof info);
        CHECK(info.timekeep == FC_TIMEKEEP_NONE &&
                  info.reason[FC_SOURCE_TIMEKEEP] == FC_REASON_SWITCHED_OFF,
              "page %d, reason %d", info.timekeep, info.reason[FC_SOURCE_TIMEKEEP]);
        /* The switch back, and asking anew. */
        fc_timekeep_page_note32(&page->wanted, 1);
        while (!__atomic_load_n(&page->enabled, __ATOMIC_RELAXED))
            sched_yield();
        CHECK(fc_select(FC_SOURCE_TIMEKEEP) == 0, "the page is not used");
        fc_get_info(&info, sizeof info);
        CHECK(info.timekeep == FC_TIMEKEEP_HOST, "page %d is used", info.timekeep);
        _exit(0);
    }
    MUST_EXIT_0(reader);
}

static void publisher_dies(const void *argument) {
    const pid_t pid = publishing_host();
    const struct publisher p = {0};
    struct fc_info info = choose_timekeep(FC_TIMEKEEP_HOST);
    uint64_t until;
    (void)argument;
    MUST(kill(pid, SIGKILL));
    MUST(waitpid(pid, NULL, 0));
    until = kernel_now_ns(FC_MONOTONIC) + VALID_NS + FAST_INTERVAL_NS;
    while (kernel_now_ns(FC_MONOTONIC) < until)
        near_kernel(5);
    fc_get_info(&info, sizeof info);
    CHECK(info.serving == FC_SOURCE_VDSO && info.serving_reason == FC_REASON_BUSY,
          "served by %d, reason %d", info.serving, info.serving_reason);
    start_publisher(&p);
    do {
        near_kernel(5);
        fc_get_info(&info, sizeof info);
    } while (info.serving != FC_SOURCE_TIMEKEEP);
}

static void fork_storm(const void *argument) {
    const uint64_t children = check_rounds(300);
    (void)argument;
    publishing_host();
    choose_timekeep(FC_TIMEKEEP_HOST);
    for (uint64_t i = 0; i < children; i++) {
        const pid_t pid = fork();
        MUST(pid);
        if (pid == 0) {
            near_kernel(50);
            _exit(0);
        }
        near_kernel(5);
        MUST_EXIT_0(pid);
    }
}

/* ---- Time namespaces --------------------------------------------------------------------------
 */

static void enter_namespace(void) {
    int offsets;
    MUST(unshare(CLONE_NEWTIME));
    offsets = open("/proc/self/timens_offsets", O_WRONLY);
    MUST(offsets);
    MUST(write(offsets, "monotonic 100000 0\nboottime 200000 0", 36));
    close(offsets);
}

static void other_namespace(const void *argument) {
    pid_t pid;
    (void)argument;
    publishing_host();
    enter_namespace();
    pid = fork(); /* the child is in it */
    MUST(pid);
    if (pid == 0) {
        choose_timekeep(FC_TIMEKEEP_OWN);
        near_kernel(check_rounds(20000));
        _exit(0);
    }
    MUST_EXIT_0(pid);
}

static void namespace_while_attached(const void *argument) {
    pid_t pid;
    (void)argument;
    publishing_host();
    choose_timekeep(FC_TIMEKEEP_HOST);
    near_kernel(100);
    enter_namespace();
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        /* What was in force when it was forked ends with the next update. */
        const uint64_t until = kernel_now_ns(FC_MONOTONIC) + 20 * FAST_INTERVAL_NS;
        while (kernel_now_ns(FC_MONOTONIC) < until)
            fc_monotonic_ns();
        near_kernel(1000);
        _exit(0);
    }
    MUST_EXIT_0(pid);
    near_kernel(1000);
}

/* ---- 32 bits ----------------------------------------------------------------------------------
 */

static void narrow_reader(const void *argument) {
#ifdef READER32
    pid_t pid;
    (void)argument;
    publishing_host();
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        execl(READER32, READER32, (char *)NULL);
        FAIL("%s cannot be run: %s", READER32, strerror(errno));
    }
    MUST_EXIT_0(pid);
#else
    (void)argument;
    CANNOT("this build has no 32-bit program");
#endif
}

int main(int argc, char **argv) {
    static const char tiny[] = "size=4k", small[] = "size=64k";
    static const struct spoiling spoilings[] = {
        {"a page that belongs to another user is not used", belongs_to_another},
        {"a page that a group may write is not used", group_may_write},
        {"a page that all may write is not used", all_may_write},
        {"a page in another user's directory is not used", directory_belongs_to_another},
        {"a page in a directory that all may write is not used", all_may_write_directory},
        {"a symbolic link in place of the page is not followed", is_symbolic_link},
        {"a symbolic link in place of the directory is not followed", directory_is_symbolic_link},
        {"a page with a second name is not used", is_hard_link},
        {"a FIFO in place of the page does not block and is not used", is_fifo},
        {"a directory in place of the page is not used", is_directory},
        {"a device in place of the page is not used", is_device},
        {"a truncated page is not used", is_truncated},
        {"an empty page is not used", is_empty},
        {"a page that is too long is not used", is_longer},
        {"where there is no page the process has its own", is_absent},
    };
    check_begin(argc, argv);
    for (size_t i = 0; i < sizeof spoilings / sizeof *spoilings; i++)
        check_that(spoilings[i].claim, spoilt, &spoilings[i]);
    check_that("a page of a later version is refused for its layout", foreign_version, NULL);
    check_that("another user can read the page and nothing else", another_user, NULL);
    check_that("a second publisher is refused", second_publisher, NULL);
    check_that("a directory that others may change is not published in", squatted_directory, NULL);
    check_that("a file system too small for the page is an error that says so", no_room, tiny);
    check_that("a full file system is an error that says so", no_room, small);
    check_that("a process attaches to the host's page by itself", attached, NULL);
    check_that("every clock of the host's page is near the kernel's", every_clock, NULL);
    check_that("the switch, flipped under load, never makes a reading wrong", flipped, NULL);
    check_that("a process that starts while the page is off has none, and says why",
               starts_while_off, NULL);
    check_that("when the publisher dies readers leave, and come back to the next one",
               publisher_dies, NULL);
    check_that("forked children stay attached", fork_storm, NULL);
    check_that("a page of another time namespace is not used", other_namespace, NULL);
    check_that("a child that enters a time namespace leaves the page", namespace_while_attached,
               NULL);
    check_that("a 32-bit program reads the page of a 64-bit publisher", narrow_reader, NULL);
    return check_end();
}
