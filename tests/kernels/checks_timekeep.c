/* SPDX-License-Identifier: MIT
 *
 * The timekeep page where it is meant for: on a kernel whose clocksource is hpet. Its readings
 * follow the kernel's clocks from samples, so that they may lie outside a bracket by a little: how
 * far, is what is claimed here, while the kernel's clock is bent and set; and that what may not go
 * back does not. Then the same of a page that is published, while the machine is put back to a
 * state of before.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <unistd.h>

#include "checks.h"
#include "readers.h"
#include "report.h"
#include "timekeep.h"

/* The page's slope may be off by the kernel's whole range, 1000 ppm, until the next update: 10 ms
 * after the last one where its readers get their turn, but here two processors take turns on a busy
 * machine, and it is valid for ten times that. */
enum { IDLE_MAX_NS = 100000, BENT_MAX_NS = 150000, LOST_MAX_NS = 1000000000 };

/* Of the clocksource: some in a thousand cost the kernel time that the page had told already. */
enum { CHANGES = 600 };

enum { FOLLOWERS = 2, FOLLOWED = 3, BRACKET_MAX_NS = 200000, FASTER_MIN = 5 };
static const int32_t followed[FOLLOWED] = {FC_MONOTONIC, FC_RAW, FC_BOOTTIME};

static atomic_bool follow_stop;
static _Atomic uint64_t seen[FOLLOWED], worst_ns[FOLLOWED], backs[FOLLOWED], kernel_seen[FOLLOWED],
    kernel_backs[FOLLOWED], follow_good, follow_void;

/* The first reading below one that had been seen before. */
static struct back { uint64_t by, before, ours, after; } back_first[FOLLOWED];

static void raise_to(_Atomic uint64_t *high, uint64_t value) {
    uint64_t old = atomic_load(high);
    while (value > old && !atomic_compare_exchange_weak(high, &old, value))
        ;
}

/* Each reading between two system calls; one wide bracket says little and is left out. */
static void *follow(void *unused) {
    (void)unused;
    while (!atomic_load(&follow_stop)) {
        for (int i = 0; i < FOLLOWED; i++) {
            uint64_t before = 0, ours = 0, after = 0, highest = atomic_load(&kernel_seen[i]);
            bracket_syscall_ns(followed[i], &before);
            atomic_fetch_add(&kernel_backs[i], before < highest);
            raise_to(&kernel_seen[i], before);
            highest = atomic_load(&seen[i]);
            if (!expect(fc_read_ns(followed[i], &ours) == 0, "%s: no time",
                        clock_name(followed[i])))
                return NULL;
            bracket_syscall_ns(followed[i], &after);
            if (ours < highest && atomic_fetch_add(&backs[i], 1) == 0) {
                back_first[i] = (struct back){highest - ours, before, ours, after};
            }
            raise_to(&seen[i], ours);
            if (after - before > BRACKET_MAX_NS) {
                atomic_fetch_add(&follow_void, 1);
                continue;
            }
            raise_to(&worst_ns[i], ours < before ? before - ours : ours > after ? ours - after : 0);
            atomic_fetch_add(&follow_good, 1);
        }
    }
    return NULL;
}

/* Disturbs for a while, and says how far the readings were from the kernel's. */
static void followed_while(const char *what, void (*disturb)(int turn), int turns,
                           uint64_t bound_ns) {
    pthread_t threads[FOLLOWERS];
    for (int i = 0; i < FOLLOWED; i++)
        worst_ns[i] = 0;
    atomic_store(&follow_stop, false);
    for (int i = 0; i < FOLLOWERS; i++)
        if (pthread_create(&threads[i], NULL, follow, NULL) != 0) {
            perror("pthread_create");
            exit(2);
        }
    for (int turn = 0; turn < turns && !report->failed; turn++)
        disturb(turn);
    atomic_store(&follow_stop, true);
    for (int i = 0; i < FOLLOWERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < FOLLOWED; i++) {
        const struct back *b = &back_first[i];
        expect(backs[i] == 0,
               "%s: %s went back %" PRIu64 " times (kernel: %" PRIu64 "), first by %" PRIu64
               " ns to %" PRId64 " ns after its bracket's beginning, %" PRId64 " before its end",
               what, clock_name(followed[i]), backs[i], kernel_backs[i], b->by,
               (int64_t)(b->ours - b->before), (int64_t)(b->after - b->ours));
        expect(worst_ns[i] <= bound_ns, "%s: %s was off by %" PRIu64 " ns", what,
               clock_name(followed[i]), worst_ns[i]);
    }
    note("%s: at most %" PRIu64 " ns off, the kernel went back %" PRIu64 " times", what,
         worst_ns[0] > worst_ns[2] ? worst_ns[0] : worst_ns[2],
         kernel_backs[0] + kernel_backs[1] + kernel_backs[2]);
}

static void disturb_idle(int turn) {
    (void)turn;
    usleep(3000);
}

static void disturb_frequency(int turn) {
    struct timex tx = {.modes = ADJ_FREQUENCY, .freq = (turn % 2 ? -500 : 500) * 65536};
    expect(adjtimex(&tx) >= 0, "adjtimex: %s", strerror(errno));
    usleep(3000);
}

static void disturb_steps(int turn) {
    struct timex tx = {.modes = ADJ_SETOFFSET | ADJ_NANO};
    tx.time.tv_sec = turn % 2 ? -3600 : 3600;
    expect(adjtimex(&tx) >= 0, "adjtimex: %s", strerror(errno));
    usleep(3000);
}

/* In some of the changes the kernel's clock loses time, up to some milliseconds. */
static void disturb_clocksource(int turn) {
    const char *name = turn % 2 ? "hpet" : "acpi_pm";
    const int error = clocksource_set(name);
    expect(error == 0, "clocksource %s: %s", name, strerror(-error));
    usleep(20000);
}

static uint64_t raw_now(void) {
    uint64_t ns = 0;
    bracket_syscall_ns(FC_RAW, &ns);
    return ns;
}

/* Rounds of each in turn; the minimum counts. */
static double times_faster(void) {
    enum { ROUNDS = 30, READS = 200 };
    uint64_t ours = UINT64_MAX, libc = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = raw_now(), ns, took;
        for (int i = 0; i < READS; i++)
            (void)fc_monotonic_ns();
        took = raw_now() - start;
        ours = took < ours ? took : ours;
        start = raw_now();
        for (int i = 0; i < READS; i++)
            bracket_libc_ns(FC_MONOTONIC, &ns);
        took = raw_now() - start;
        libc = took < libc ? took : libc;
    }
    return (double)libc / (double)(ours ? ours : 1);
}

/* Reads until the page serves: only reads that come often bring an own page up to date, and the
 * publisher of another one may be kept waiting. */
static bool expect_served(void) {
    struct fc_info info = {0};
    for (int tries = 0; tries < 2000; tries++) {
        for (int i = 0; i < 100; i++)
            (void)fc_monotonic_ns();
        info = get_info();
        if (info.serving == FC_SOURCE_TIMEKEEP)
            break;
    }
    return expect(info.source == FC_SOURCE_TIMEKEEP && info.serving == FC_SOURCE_TIMEKEEP,
                  "source %s, serving %s (%s)", fc_source_name(info.source),
                  fc_source_name(info.serving), fc_reason_text(info.serving_reason));
}

void check_timekeep_hpet(void) {
    struct fc_info info;
    double faster;
    expect(clocksource_is("hpet"), "the clocksource is not hpet");
    setenv("FASTCLOCK_SOURCE", "timekeep", 1); /* as a user would, before the first read */
    expect(fc_init() == 0, "fc_init: no source");
    if (!expect_served())
        return;
    faster = times_faster();
    /* An emulated hpet costs a fraction of one behind a hypervisor. */
    expect(faster >= FASTER_MIN, "only %.1f times faster than clock_gettime", faster);
    note("%.0f times faster than clock_gettime", faster);
    followed_while("idle", disturb_idle, 150, IDLE_MAX_NS);
    followed_while("frequency", disturb_frequency, 150, BENT_MAX_NS);
    followed_while("steps", disturb_steps, 150, BENT_MAX_NS);
    followed_while("clocksource", disturb_clocksource, CHANGES, LOST_MAX_NS);
    info = get_info();
    note("%" PRIu64 " outages, %" PRIu64 " steps, serving %s", info.timekeep_outages,
         info.timekeep_steps, fc_source_name(info.serving));
    report->brackets = follow_good + follow_void;
    report->good = follow_good;
    report->voided = follow_void;
}

/* ---- The hypervisor's device ------------------------------------------------------------------
 */

enum { RESTORES = 8 };

static FILE *publisher_says;

static bool load_driver(void) {
    static const char path[] = "/ptp_vmclock.ko", device[] = "/dev/vmclock0";
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    return expect(file >= 0, "%s: %s", path, strerror(errno)) &&
           expect(syscall(SYS_finit_module, file, "", 0) == 0, "%s is not loaded: %s", path,
                  strerror(errno)) &&
           expect(access(device, R_OK) == 0, "%s: %s", device, strerror(errno));
}

static bool start_publisher(void) {
    int ends[2];
    pid_t child;
    if (!expect(pipe2(ends, O_CLOEXEC) == 0, "pipe: %s", strerror(errno)))
        return false;
    mkdir("/run", 0755);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        execl("/fastclock", "fastclock", "publish", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    publisher_says = fdopen(ends[0], "r");
    return expect(child > 0 && publisher_says, "fork or fdopen: %s", strerror(errno));
}

static bool expect_words(const char *words) {
    char line[512] = "";
    const bool said = fgets(line, sizeof line, publisher_says);
    line[strcspn(line, "\n")] = '\0';
    return expect(said && strstr(line, words), "the publisher says \"%s\", not \"%s\"", line,
                  words);
}

/* The proof of a page that is sound can fail where two processors take turns. */
static bool use_published(void) {
    enum { TRIES = 50 };
    struct fc_info info = {0};
    setenv("FASTCLOCK_SOURCE", "timekeep", 1);
    for (int i = 0; i < TRIES && info.timekeep != FC_TIMEKEEP_HOST; i++) {
        if (!expect(fc_select(FC_SOURCE_TIMEKEEP) == 0, "no source"))
            return false;
        info = get_info();
    }
    return expect(info.timekeep == FC_TIMEKEEP_HOST, "source %s, page %d",
                  fc_source_name(info.source), info.timekeep);
}

/* The runner saves the machine's state when it reads the line, and goes back to it so many seconds
 * later: to where this here waits for the publisher's words. The emulator's own clock goes back
 * too, its processors' counter does not, and is ahead by that from then on. */
static void disturb_restore(int turn) {
    static const char *const seconds[] = {"0", "0.005", "0.05", "0.5"};
    char line[64];
    int error;
    snprintf(line, sizeof line, "\n@fastclock {\"restore\": %s}\n",
             seconds[turn % (int)(sizeof seconds / sizeof *seconds)]);
    error = file_write("/dev/console", line);
    if (expect(error == 0, "/dev/console: %s", strerror(-error)) &&
        expect_words("out of service: the hypervisor says that the counter was disturbed"))
        expect_words("is in service");
    expect_served();
}

void check_timekeep_vmclock(void) {
    struct fc_info info;
    expect(clocksource_is("hpet"), "the clocksource is not hpet");
    if (!load_driver() || !start_publisher() || !expect_words("is in service") || !use_published())
        return;
    followed_while("published", disturb_idle, 150, BENT_MAX_NS);
    /* Until the next update readings are off by what the counter was moved, if that is not more
     * than the page is valid for. */
    followed_while("restored", disturb_restore, RESTORES, LOST_MAX_NS);
    followed_while("afterwards", disturb_idle, 150, BENT_MAX_NS);
    info = get_info();
    expect(info.timekeep_outages == RESTORES, "%" PRIu64 " outages", info.timekeep_outages);
    note("%" PRIu64 " outages", info.timekeep_outages);
    report->brackets = follow_good + follow_void;
    report->good = follow_good;
    report->voided = follow_void;
}
