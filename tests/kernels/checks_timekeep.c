/* SPDX-License-Identifier: MIT
 *
 * The timekeep page where it is meant for: on a kernel whose clocksource is hpet. Its readings
 * follow the kernel's clocks from samples, so that they may lie outside a bracket by a little. How
 * far, is what is claimed here, and that what may not go back does not:
 *
 *   - always, but for a kernel that loses time, at most what the page is vouched for, a thousandth
 *     of its interval;
 *   - while the clocks that never step are left alone, 99 of 100 readings at most what lies between
 *     two system calls in the same seconds: the page is made of samples between counts, the
 *     narrowest of which are that wide. One that is twice as wide still counts, and where in it the
 *     kernel took its time is not known;
 *   - and what the page finds at its updates, ahead now and behind then, at most a quarter of that
 * on average, as it corrects what it finds. A rate that is wrong for good by 100 ppm is off to one
 *     side by more; samples this wide do not show 20 ppm (tests/timekeep/discipline.c does).
 *
 * Then the same of a page that is published, while the machine is put back to a state of before.
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

/* Of the clocksource: some in a thousand cost the kernel time that the page had told already. */
enum { CHANGES = 600, LOST_MAX_NS = 1000000000 };

enum { FOLLOWERS = 2, FOLLOWED = 3, BRACKET_MAX_NS = 200000, FASTER_MIN = 15 };
static const int32_t followed[FOLLOWED] = {FC_MONOTONIC, FC_RAW, FC_BOOTTIME};

static atomic_bool follow_stop;
static _Atomic uint64_t seen[FOLLOWED], backs[FOLLOWED], kernel_seen[FOLLOWED],
    kernel_backs[FOLLOWED], follow_good, follow_void;

/* The first reading below one that had been seen before. */
static struct back { uint64_t by, before, ours, after; } back_first[FOLLOWED];

/* Numbers of which quantiles are asked for: the latest of them. */
enum { KEPT = 1 << 15 };
struct numbers {
    uint32_t count, kept[KEPT];
    uint64_t largest; /* of all */
};

/* How far outside of its bracket each reading was, and the control: what lies between two system
 * calls. */
static struct numbers off_ns[FOLLOWERS][FOLLOWED], control_ns[FOLLOWERS][FOLLOWED];

static void raise_to(_Atomic uint64_t *high, uint64_t value) {
    uint64_t old = atomic_load(high);
    while (value > old && !atomic_compare_exchange_weak(high, &old, value))
        ;
}

static void keep(struct numbers *numbers, uint64_t number) {
    numbers->kept[numbers->count++ % KEPT] = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
    if (number > numbers->largest)
        numbers->largest = number;
}

static int compare(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

struct spread {
    uint64_t half, most, largest; /* 50 and 99 of 100 are not above; and none */
};

/* Of all followers. */
static struct spread spread_of(const struct numbers numbers[FOLLOWERS][FOLLOWED], int clock) {
    static uint32_t all[FOLLOWERS * KEPT];
    struct spread spread = {0, 0, 0};
    size_t count = 0;
    for (int i = 0; i < FOLLOWERS; i++) {
        const struct numbers *some = &numbers[i][clock];
        const size_t kept = some->count < KEPT ? some->count : KEPT;
        memcpy(all + count, some->kept, kept * sizeof *all);
        count += kept;
        if (some->largest > spread.largest)
            spread.largest = some->largest;
    }
    if (!expect(count > 1000, "%s: only %zu readings", clock_name(followed[clock]), count))
        return spread;
    qsort(all, count, sizeof *all, compare);
    spread.half = all[count / 2];
    spread.most = all[count - 1 - count / 100];
    return spread;
}

/* Each reading between two system calls; one wide bracket says little and is left out. */
static void *follow(void *follower) {
    const int me = *(const int *)follower;
    while (!atomic_load(&follow_stop)) {
        for (int i = 0; i < FOLLOWED; i++) {
            uint64_t before = 0, ours = 0, after = 0, next = 0,
                     highest = atomic_load(&kernel_seen[i]);
            bracket_syscall_ns(followed[i], &before);
            atomic_fetch_add(&kernel_backs[i], before < highest);
            raise_to(&kernel_seen[i], before);
            highest = atomic_load(&seen[i]);
            if (!expect(fc_read_ns(followed[i], &ours) == 0, "%s: no time",
                        clock_name(followed[i])))
                return NULL;
            bracket_syscall_ns(followed[i], &after);
            bracket_syscall_ns(followed[i], &next);
            if (ours < highest && atomic_fetch_add(&backs[i], 1) == 0)
                back_first[i] = (struct back){highest - ours, before, ours, after};
            raise_to(&seen[i], ours);
            keep(&control_ns[me][i], next - after);
            if (after - before > BRACKET_MAX_NS) {
                atomic_fetch_add(&follow_void, 1);
                continue;
            }
            keep(&off_ns[me][i], ours < before ? before - ours : ours > after ? ours - after : 0);
            atomic_fetch_add(&follow_good, 1);
        }
    }
    return NULL;
}

/* What the page found at its updates: the kernel's FC_MONOTONIC less the page's. */
static struct account {
    uint64_t number; /* of the timehands that was looked at last */
    int64_t updates, sum_ns;
} account;

static void look_at_account(void) {
    enum fc_timekeep_kind kind;
    const struct fc_timekeep *page = fc_timekeep_page(&kind);
    const struct fc_timekeep_hands *hands =
        &page->hands[__atomic_load_n(&page->current, __ATOMIC_ACQUIRE) % FC_TIMEKEEP_HANDS];
    const uint64_t number = __atomic_load_n(&hands->number, __ATOMIC_RELAXED);
    const int64_t error_ns = __atomic_load_n(&hands->error_ns, __ATOMIC_RELAXED);
    if (number == account.number)
        return;
    account.number = number;
    account.updates++;
    account.sum_ns += error_ns;
}

/* Of the clocks that are not meant to step. */
enum calm {
    LEFT_ALONE, /* their rate and the clocksource stay as they are */
    BENT,
    LOST /* the kernel loses time */
};

/* Adds to `told` what is claimed of one clock. Returns what a system call takes. */
static uint64_t claim_spread(const char *what, enum calm calm, int clock, char *told, size_t size) {
    const char *name = clock_name(followed[clock]);
    const struct spread off = spread_of(off_ns, clock), control = spread_of(control_ns, clock);
    const uint64_t vouched_ns = get_info().timekeep_interval_ns / FC_TIMEKEEP_BOUND;
    const size_t used = strlen(told);
    expect(off.largest <= (calm == LOST ? (uint64_t)LOST_MAX_NS : vouched_ns),
           "%s: %s was off by %" PRIu64 " ns", what, name, off.largest);
    expect(calm != LEFT_ALONE || off.most <= control.half,
           "%s: one of a hundred readings of %s was off by %" PRIu64
           " ns, where a system call takes %" PRIu64,
           what, name, off.most, control.half);
    snprintf(told + used, size - used, ", %s %" PRIu64 "/%" PRIu64 "/%" PRIu64 " of %" PRIu64, name,
             off.half, off.most, off.largest, control.half);
    return control.half;
}

static void claim_account(const char *what, enum calm calm, uint64_t call_ns) {
    const int64_t quarter_ns = (int64_t)call_ns / 4,
                  mean_ns = account.sum_ns / (account.updates ? account.updates : 1);
    expect(calm != LEFT_ALONE ||
               (account.updates > 20 && mean_ns < quarter_ns && -mean_ns < quarter_ns),
           "%s: at %" PRId64 " updates the kernel's clock was %" PRId64
           " ns ahead on average, where a system call takes %" PRIu64,
           what, account.updates, mean_ns, call_ns);
    note("%s: %" PRId64 " updates, on average %" PRId64 " ns", what, account.updates, mean_ns);
}

/* Disturbs for a while, and says how far the readings were from the kernel's. */
static void followed_while(const char *what, void (*disturb)(int turn), int turns, enum calm calm) {
    pthread_t threads[FOLLOWERS];
    int numbers[FOLLOWERS];
    const uint64_t good = follow_good, slow = slow_reads();
    uint64_t call_ns[FOLLOWED];
    char told[300] = "";
    memset(off_ns, 0, sizeof off_ns);
    memset(control_ns, 0, sizeof control_ns);
    account.updates = account.sum_ns = 0;
    atomic_store(&follow_stop, false);
    for (int i = 0; i < FOLLOWERS; i++) {
        numbers[i] = i;
        if (pthread_create(&threads[i], NULL, follow, &numbers[i]) != 0) {
            perror("pthread_create");
            exit(2);
        }
    }
    for (int turn = 0; turn < turns && !report->failed; turn++) {
        disturb(turn);
        look_at_account();
    }
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
        call_ns[i] = claim_spread(what, calm, i, told, sizeof told);
    }
    /* Who reads often keeps a page of his own up to date; another one's publisher has to get its
     * turn. */
    expect(calm != LEFT_ALONE || get_info().timekeep != FC_TIMEKEEP_OWN ||
               2 * (slow_reads() - slow) < follow_good - good,
           "%s: the kernel had to answer %" PRIu64 " of %" PRIu64 " readings", what,
           slow_reads() - slow, follow_good - good);
    note("%s, p50/p99/largest ns off, of a system call's%s; %" PRIu64 " of %" PRIu64
         " by the kernel",
         what, told, slow_reads() - slow, follow_good - good);
    claim_account(what, calm, call_ns[0]);
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

/* Rounds of each in turn; the minimum counts. */
static double times_faster(void) {
    enum { ROUNDS = 3000, READS = 100 };
    uint64_t ours = UINT64_MAX, libc = UINT64_MAX, clock = UINT64_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t start = fc_ticks_ordered(), ns, took = fc_ticks_ordered() - start;
        clock = took < clock ? took : clock;
        start = fc_ticks_ordered();
        for (int i = 0; i < READS; i++)
            (void)fc_monotonic_ns();
        took = fc_ticks_ordered() - start;
        ours = took < ours ? took : ours;
        start = fc_ticks_ordered();
        for (int i = 0; i < READS; i++)
            bracket_libc_ns(FC_MONOTONIC, &ns);
        took = fc_ticks_ordered() - start;
        libc = took < libc ? took : libc;
    }
    return (double)(libc - clock) / (double)(ours - clock ? ours - clock : 1);
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
    /* 20 to 26 as a rule; but while others use the host's processors the short rounds suffer more
     * than those that are full of the emulator's hpet. */
    expect(faster >= FASTER_MIN, "only %.1f times faster than clock_gettime", faster);
    note("%.1f times faster than clock_gettime", faster);
    followed_while("idle", disturb_idle, 300, LEFT_ALONE);
    followed_while("frequency", disturb_frequency, 150, BENT);
    followed_while("steps", disturb_steps, 150, LEFT_ALONE);
    followed_while("clocksource", disturb_clocksource, CHANGES, LOST);
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
    followed_while("published", disturb_idle, 150, LEFT_ALONE);
    /* Until the next update readings are off by what the counter was moved, if that is not more
     * than the page is valid for. */
    followed_while("restored", disturb_restore, RESTORES, LOST);
    followed_while("afterwards", disturb_idle, 150, LEFT_ALONE);
    info = get_info();
    expect(info.timekeep_outages == RESTORES, "%" PRIu64 " outages", info.timekeep_outages);
    note("%" PRIu64 " outages", info.timekeep_outages);
    report->brackets = follow_good + follow_void;
    report->good = follow_good;
    report->voided = follow_void;
}
