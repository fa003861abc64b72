/* SPDX-License-Identifier: MIT
 *
 * What start-up and fallback ask for can be refused: the counter, system calls, /proc, descriptors,
 * stack. The answer is the next source and a reason, or no time at all; never a crash, a hang or an
 * invented time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "clocks.h"
#include "deny.h"

/* ---- The counter ------------------------------------------------------------------------------
 */

static void disable_counter(void) {
#if defined(PR_SET_TSC) && (defined(__x86_64__) || defined(__i386__))
    MUST(prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0));
#else
    CANNOT("only x86 has PR_SET_TSC");
#endif
}

static void counter_disabled(const void *argument) {
    struct fc_info info;
    (void)argument;
    disable_counter();
    all_must_lie_in_brackets(check_rounds(10000), false);
    info = info_now();
    CHECK(info.source == FC_SOURCE_SYSCALL, "%s", fc_source_name(info.source));
    CHECK(info.reason[FC_SOURCE_KERNEL_PAGE] == FC_REASON_COUNTER_DISABLED, "%s",
          fc_reason_text(info.reason[FC_SOURCE_KERNEL_PAGE]));
    CHECK(info.reason[FC_SOURCE_VDSO] == FC_REASON_COUNTER_DISABLED, "%s",
          fc_reason_text(info.reason[FC_SOURCE_VDSO]));
    CHECK(info.counter == 0, "it says that the counter may be read");
}

static void coarse_without_counter(const void *argument) {
    (void)argument;
    disable_counter();
    CHECK(fc_init() == 0, "no source");
    CHECK(info_now().coarse_serving == FC_SOURCE_KERNEL_PAGE, "%s",
          fc_source_name(info_now().coarse_serving));
    deny_time_calls(SECCOMP_RET_KILL_PROCESS);
    for (uint64_t i = 0; i < check_rounds(100000); i++) {
        CHECK(fc_realtime_coarse_ns() != FC_NO_TIME, "no time");
        CHECK(fc_monotonic_coarse_ns() != FC_NO_TIME, "no time");
    }
}

/* Ticks are nanoseconds of FC_RAW then. */
static void ticks_without_counter(const void *argument) {
    uint64_t (*const reads[])(void) = {fc_ticks, fc_ticks_ordered};
    (void)argument;
    disable_counter();
    for (int i = 0; i < 2; i++) {
        const struct bracket_setup setup = {.clock = FC_RAW, .read = reads[i], .no_control = 1};
        must_lie_in_brackets("fc_ticks", &setup, 1000);
    }
    CHECK(fc_ticks_hz() == 1000000000, "%" PRIu64, fc_ticks_hz());
    CHECK(fc_ticks_to_ns(UINT64_MAX) == UINT64_MAX, "%" PRIu64, fc_ticks_to_ns(UINT64_MAX));
    CHECK(fc_ticks_to_ns(123456789) == 123456789, "%" PRIu64, fc_ticks_to_ns(123456789));
}

static void refused_select_leaves_the_choice(const void *argument) {
    (void)argument;
    disable_counter();
    CHECK(fc_init() == 0, "no source");
    CHECK(fc_select(FC_SOURCE_VDSO) == -ENOTSUP, "the vDSO would kill");
    CHECK(fc_select(FC_SOURCE_KERNEL_PAGE) == -ENOTSUP, "the page's reader would kill");
    CHECK(info_now().source == FC_SOURCE_SYSCALL, "%s", fc_source_name(info_now().source));
    CHECK(info_now().reason[FC_SOURCE_VDSO] == FC_REASON_COUNTER_DISABLED, "%s",
          fc_reason_text(info_now().reason[FC_SOURCE_VDSO]));
    all_must_lie_in_brackets(100, false);
}

/* ---- System calls -----------------------------------------------------------------------------
 */

static void no_time_is_invented(const void *argument) {
    const uint32_t error = *(const uint32_t *)argument;
    struct fc_info info;
    struct timespec ts = {42, 42};
    struct timeval tv = {42, 42};
    uint64_t ns = 42, many[2] = {42, 42};
    deny_time_calls(SECCOMP_RET_ERRNO | error);
    CHECK(fc_init() == -ENOTSUP, "fc_init");
    for (int i = 0; i < CLOCK_READS; i++)
        CHECK(clock_reads[i].read() == FC_NO_TIME, "%s", clock_reads[i].name);
    for (int i = 0; i < CLOCKS; i++) {
        CHECK(fc_read_ns(clocks[i], &ns) == -ENOTSUP && ns == 42, "clock %d", (int)clocks[i]);
        CHECK(fc_fill_ns(clocks[i], many, 2) == -ENOTSUP && many[0] == 42 && many[1] == 42,
              "clock %d", (int)clocks[i]);
        errno = 0;
        CHECK(fc_clock_gettime(clocks[i], &ts) == -1 && errno != 0, "clock %d", (int)clocks[i]);
        CHECK(ts.tv_sec == 42 && ts.tv_nsec == 42, "clock %d was written", (int)clocks[i]);
    }
    errno = 0;
    CHECK(fc_gettimeofday(&tv, NULL) == -1 && errno != 0 && tv.tv_sec == 42, "fc_gettimeofday");
    errno = 0;
    CHECK(fc_time(NULL) == (time_t)-1 && errno != 0, "fc_time");
    info = info_now();
    CHECK(info.source == FC_SOURCE_NONE && info.serving == FC_SOURCE_NONE, "%s, %s",
          fc_source_name(info.source), fc_source_name(info.serving));
    for (int32_t source = FC_SOURCE_KERNEL_PAGE; source <= FC_SOURCE_SYSCALL; source++)
        CHECK(info.reason[source] != FC_REASON_NONE, "nothing is said against %s",
              fc_source_name(source));
    CHECK(info.reason[FC_SOURCE_SYSCALL] == FC_REASON_REFUSED, "%s",
          fc_reason_text(info.reason[FC_SOURCE_SYSCALL]));
    CHECK(fc_ticks_hz() != 0, "fc_ticks_hz");
}

/* One call that start-up makes beside those for the time is refused; reads are right all the same.
 */
static void one_call_refused(const void *argument) {
    const int *number = argument;
    deny_calls(number, 1, SECCOMP_RET_ERRNO | EPERM);
    all_must_lie_in_brackets(check_rounds(1000), true);
    CHECK(fc_init() == 0, "no source");
}

/* ---- /proc and descriptors --------------------------------------------------------------------
 */

static void must_do_without_maps(void) {
    all_must_lie_in_brackets(check_rounds(1000), true);
    CHECK(info_now().source == FC_SOURCE_VDSO, "%s", fc_source_name(info_now().source));
    CHECK(info_now().reason[FC_SOURCE_KERNEL_PAGE] == FC_REASON_NO_MAPS, "%s",
          fc_reason_text(info_now().reason[FC_SOURCE_KERNEL_PAGE]));
}

static void no_proc(const void *argument) {
    (void)argument;
    MUST(unshare(CLONE_NEWNS));
    MUST(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL));
    MUST(umount2("/proc", MNT_DETACH));
    must_do_without_maps();
}

static void no_descriptors(const void *argument) {
    const struct rlimit none = {0, 0};
    (void)argument;
    MUST(setrlimit(RLIMIT_NOFILE, &none));
    must_do_without_maps();
}

/* All but the one that a failing claim writes to. */
static void closed_descriptors(const void *argument) {
    (void)argument;
    for (int i = 0; i < 1024; i++)
        if (i != STDOUT_FILENO)
            close(i);
    all_must_lie_in_brackets(check_rounds(1000), true);
    CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE, "%s", fc_source_name(info_now().source));
    CHECK(open("/", O_RDONLY) == 0, "a descriptor was left open");
}

static void no_descriptor_is_left_open(const void *argument) {
    (void)argument;
    int before, after;
    MUST(before = open("/", O_RDONLY | O_CLOEXEC));
    close(before);
    for (int i = 0; i < 100; i++)
        CHECK(fc_select(FC_SOURCE_KERNEL_PAGE) == 0, "fc_select");
    MUST(after = open("/", O_RDONLY | O_CLOEXEC));
    CHECK(before == after, "%d, then %d", before, after);
}

/* ---- Stacks and threads ------------------------------------------------------------------------
 */

static void *do_everything(void *argument) {
    uint64_t ns[4];
    uint32_t cpu, node;
    all_must_lie_in_brackets(10, true);
    CHECK(fc_fill_ns(FC_MONOTONIC, ns, 4) == 0, "fc_fill_ns");
    CHECK(fc_getcpu(&cpu, &node) == 0, "fc_getcpu");
    CHECK(fc_ticks_hz() != 0 && fc_ticks() != 0, "fc_ticks");
    for (int i = 0; i < SOURCES; i++)
        CHECK(fc_select(sources[i].number) == 0, "%s", sources[i].name);
    CHECK(info_now().source == FC_SOURCE_LIBC, "%s", fc_source_name(info_now().source));
    return argument;
}

static void small_stack(const void *argument) {
    enum { STACK = 65536 };
    pthread_attr_t attributes;
    pthread_t thread;
    (void)argument;
    CHECK(pthread_attr_init(&attributes) == 0, "no attributes");
    CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0, "no stack of %d bytes", STACK);
    CHECK(pthread_create(&thread, &attributes, do_everything, NULL) == 0, "no thread");
    pthread_join(thread, NULL);
}

enum { CROWD = 64 };
static atomic_int waiting;

static void *first_read(void *argument) {
    uint64_t before = 0, ns, after = 0;
    atomic_fetch_add(&waiting, 1);
    while (atomic_load(&waiting) < CROWD)
        sched_yield();
    CHECK(bracket_syscall_ns(FC_MONOTONIC, &before) == 0, "the system call was refused");
    ns = fc_monotonic_ns();
    CHECK(bracket_syscall_ns(FC_MONOTONIC, &after) == 0, "the system call was refused");
    CHECK(before <= ns && ns <= after, "%" PRIu64 ", not %" PRIu64 " to %" PRIu64, ns, before,
          after);
    return argument;
}

static void crowd_reads_first(void) {
    pthread_t threads[CROWD];
    for (int i = 0; i < CROWD; i++)
        CHECK(pthread_create(&threads[i], NULL, first_read, NULL) == 0, "thread %d", i);
    for (int i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
    CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE, "%s: %s", fc_source_name(info_now().source),
          fc_reason_text(info_now().reason[FC_SOURCE_KERNEL_PAGE]));
    CHECK(info_now().serving == FC_SOURCE_KERNEL_PAGE, "%s: %s", fc_source_name(info_now().serving),
          fc_reason_text(info_now().serving_reason));
}

static void many_first_reads(const void *argument) {
    (void)argument;
    for (uint64_t i = 0; i < check_rounds(60); i++) {
        const pid_t pid = fork();
        MUST(pid);
        if (pid == 0) {
            crowd_reads_first();
            _exit(0);
        }
        MUST_EXIT_0(pid);
    }
}

/* ---- Bad input --------------------------------------------------------------------------------
 */

static void bad_select_leaves_the_choice(const void *argument) {
    static const int32_t bad[] = {
        INT_MIN, -2, FC_SOURCE_NONE, FC_SOURCE_LIBC + 1, 7, 8, 255, 256 + FC_SOURCE_VDSO, INT_MAX};
    (void)argument;
    CHECK(fc_select(FC_SOURCE_VDSO) == 0, "no vDSO");
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(fc_select(bad[i]) == -EINVAL, "%d was taken", (int)bad[i]);
        CHECK(info_now().source == FC_SOURCE_VDSO && info_now().wanted == FC_SOURCE_VDSO,
              "%d changed the choice", (int)bad[i]);
    }
    CHECK(fc_select(FC_SOURCE_AUTO) == 0, "auto");
    CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE && info_now().wanted == FC_SOURCE_AUTO,
          "auto chose %s", fc_source_name(info_now().source));
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        int number;
    } calls[] = {{"prctl", SYS_prctl},
                 {"openat", SYS_openat},
                 {"read", SYS_read},
                 {"close", SYS_close},
                 {"rt_sigprocmask", SYS_rt_sigprocmask},
                 {"getcpu", SYS_getcpu},
                 {"clock_getres", SYS_clock_getres}};
    static const uint32_t errors[] = {EPERM, ENOSYS, EACCES, EINVAL};
    char sentence[128];
    check_begin(argc, argv);
    check_that("a process whose counter is disabled lives and reads right", counter_disabled, NULL);
    check_that("its coarse clocks need no system call", coarse_without_counter, NULL);
    check_that("its ticks are nanoseconds", ticks_without_counter, NULL);
    check_that("a source that is refused leaves the choice", refused_select_leaves_the_choice,
               NULL);
    for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++) {
        snprintf(sentence, sizeof sentence,
                 "where every call for the time answers %s, no time is invented",
                 strerror((int)errors[i]));
        check_that(sentence, no_time_is_invented, &errors[i]);
    }
    for (unsigned i = 0; i < sizeof calls / sizeof *calls; i++) {
        snprintf(sentence, sizeof sentence, "reads are right where %s is refused", calls[i].name);
        check_that(sentence, one_call_refused, &calls[i].number);
    }
    check_that("without /proc the vDSO serves", no_proc, NULL);
    check_that("where no descriptor can be opened the vDSO serves", no_descriptors, NULL);
    check_that("closed standard descriptors are in nobody's way", closed_descriptors, NULL);
    check_that("no descriptor is left open", no_descriptor_is_left_open, NULL);
    check_that("a stack of 64 KiB suffices", small_stack, NULL);
    check_that("64 threads may make the first read at once", many_first_reads, NULL);
    check_that("a number that is no source leaves the choice", bad_select_leaves_the_choice, NULL);
    return check_end();
}
