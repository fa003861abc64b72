/* SPDX-License-Identifier: MIT
 *
 * Claims about libfastclock-preload.so, made by a program that runs under it: it starts itself
 * again with LD_PRELOAD, once for each way of asking. The library's path is its first argument.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fastclock.h>
#include <pthread.h>
#include <sys/syscall.h>

#include "../bracket.h"
#include "../core/check.h"

#if (defined(__x86_64__) || defined(__i386__)) && !defined(CHECK_SANITIZER)
#define HAVE_STEP 1
#include "../core/step.h"
#endif

/* For claims whose values say nothing that the condition does not. */
#define HOLDS(condition) CHECK(condition, "errno is %d", errno)

static const char *library;

/* ---- Readings ---------------------------------------------------------------------------------
 */

static int32_t gettime_ns(int32_t clock, uint64_t *ns) {
    struct timespec ts;
    if (clock_gettime(clock, &ts) != 0)
        return -errno;
    if (ts.tv_nsec < 0 || ts.tv_nsec > 999999999)
        return -ERANGE;
    *ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    return 0;
}

static int32_t timespec_get_ns(int32_t clock, uint64_t *ns) {
    struct timespec ts;
    (void)clock;
    if (timespec_get(&ts, TIME_UTC) != TIME_UTC)
        return -EIO;
    *ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    return 0;
}

static void bracketed(int32_t clock, int32_t (*read)(int32_t, uint64_t *), uint64_t rounds,
                      uint64_t early_ns) {
    const struct bracket_setup setup = {
        .clock = clock, .read_number = read, .no_control = 1, .early_ns = early_ns};
    struct bracket b = {0};
    bracket_run(&b, &setup, check_rounds(rounds));
    CHECK(b.ours.good > 0 && b.ours.outside == 0 && b.ours.errors == 0,
          "clock %d: %" PRIu64 " good, %" PRIu64 " outside, %" PRIu64 " errors", (int)clock,
          b.ours.good, b.ours.outside, b.ours.errors);
}

static const int32_t ours[] = {FC_REALTIME,        FC_MONOTONIC,       FC_RAW, FC_BOOTTIME, FC_TAI,
                               FC_REALTIME_COARSE, FC_MONOTONIC_COARSE};

enum { OURS = sizeof ours / sizeof *ours };

static bool is_relaxed(void) {
    const char *value = getenv("FASTCLOCK_RELAXED");
    return value && strcmp(value, "1") == 0;
}

static uint64_t allowed_early_ns(void) {
    return is_relaxed() ? BRACKET_RELAXED_EARLY_NS : 0;
}

static void clocks_are_bracketed(const void *unused) {
    (void)unused;
    for (int i = 0; i < OURS; i++)
        bracketed(ours[i], gettime_ns, 200000, allowed_early_ns());
}

static void timespec_get_is_bracketed(const void *unused) {
    (void)unused;
    bracketed(FC_REALTIME, timespec_get_ns, 200000, allowed_early_ns());
}

static void timespec_get_refuses_other_bases(const void *unused) {
    struct timespec ts = {7, 7};
    (void)unused;
    HOLDS(timespec_get(&ts, 0) == 0 && timespec_get(&ts, -1) == 0 && timespec_get(&ts, 99) == 0 &&
          ts.tv_sec == 7);
}

/* Microseconds and seconds are cut off, and so is the bracket's lower end. */
static void gettimeofday_is_bracketed(const void *unused) {
    const uint64_t us = 1000, rounds = check_rounds(200000);
    (void)unused;
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t before = 0, after = 0, now;
        struct timeval tv;
        HOLDS(bracket_syscall_ns(CLOCK_REALTIME, &before) == 0);
        HOLDS(gettimeofday(&tv, NULL) == 0);
        HOLDS(bracket_syscall_ns(CLOCK_REALTIME, &after) == 0);
        now = ((uint64_t)tv.tv_sec * 1000000 + (uint64_t)tv.tv_usec) * us;
        if (after >= before)
            CHECK(now >= before / us * us && now <= after, "%" PRIu64 " %" PRIu64 " %" PRIu64,
                  before, now, after);
    }
}

static void time_is_bracketed(const void *unused) {
    const uint64_t s = 1000000000, rounds = check_rounds(200000);
    (void)unused;
    for (uint64_t i = 0; i < rounds; i++) {
        uint64_t before = 0, after = 0;
        time_t stored = 0, returned;
        HOLDS(bracket_syscall_ns(CLOCK_REALTIME_COARSE, &before) == 0);
        returned = time(&stored);
        HOLDS(bracket_syscall_ns(CLOCK_REALTIME_COARSE, &after) == 0);
        HOLDS(returned == stored);
        if (after >= before)
            HOLDS((uint64_t)returned >= before / s && (uint64_t)returned <= after / s);
    }
    HOLDS(time(NULL) > 0);
}

/* ---- Errors -----------------------------------------------------------------------------------
 */

/* Also processor-time clocks, dynamic clocks of descriptors that are not open, and nonsense. */
static void every_number_answers_as_the_kernel_does(const void *unused) {
    const int32_t more[] = {INT32_MIN, INT32_MAX, -6, -3, 63, 64, 65, 1 << 16};
    (void)unused;
    for (int32_t i = -20; i <= 40 + (int32_t)(sizeof more / sizeof *more); i++) {
        const int32_t clock = i <= 40 ? i : more[i - 41];
        uint64_t kernel_ns = 0, ns = 0;
        const int32_t kernel = bracket_syscall_ns(clock, &kernel_ns);
        const int32_t got = gettime_ns(clock, &ns);
        struct timespec ts;
        CHECK(got == kernel, "clock %d: %d, the kernel says %d", (int)clock, (int)got, (int)kernel);
        errno = 77;
        CHECK(clock_getres(clock, &ts) == syscall(SYS_clock_getres, clock, NULL), "clock %d",
              (int)clock);
    }
}

static void resolutions_are_the_kernels(const void *unused) {
    (void)unused;
    for (int i = 0; i < OURS; i++) {
        struct timespec ts;
        long kernel[2];
        HOLDS(clock_getres(ours[i], &ts) == 0 && clock_getres(ours[i], NULL) == 0);
        HOLDS(syscall(SYS_clock_getres, ours[i], kernel) == 0);
        HOLDS(ts.tv_sec == kernel[0] && ts.tv_nsec == kernel[1]);
    }
}

static void bad_pointers_are_efault(const void *unused) {
    struct timespec *volatile nowhere = NULL;
    struct timeval *volatile no_time = NULL;
    (void)unused;
    errno = 0;
    HOLDS(clock_gettime(CLOCK_MONOTONIC, nowhere) == -1 && errno == EFAULT);
    errno = 0;
    HOLDS(clock_gettime(99, nowhere) == -1 && errno == EINVAL);
    errno = 0;
    HOLDS(gettimeofday(no_time, NULL) == 0 && errno == 0);
    HOLDS(timespec_get(nowhere, TIME_UTC) == 0);
}

static void the_time_zone_is_the_kernels(const void *unused) {
    struct timezone kernel = {1, 1}, got = {2, 2};
    struct timeval tv = {0, 0};
    (void)unused;
    HOLDS(syscall(SYS_gettimeofday, NULL, &kernel) == 0);
    HOLDS(gettimeofday(&tv, &got) == 0 && tv.tv_sec > 0);
    HOLDS(got.tz_minuteswest == kernel.tz_minuteswest && got.tz_dsttime == kernel.tz_dsttime);
}

static void errno_is_kept(const void *unused) {
    struct timespec ts;
    struct timeval tv;
    (void)unused;
    errno = 77;
    for (int i = 0; i < OURS; i++)
        HOLDS(clock_gettime(ours[i], &ts) == 0 && errno == 77);
    HOLDS(clock_getres(CLOCK_MONOTONIC, &ts) == 0 && errno == 77);
    HOLDS(gettimeofday(&tv, NULL) == 0 && errno == 77);
    HOLDS(time(NULL) > 0 && errno == 77);
    HOLDS(timespec_get(&ts, TIME_UTC) && errno == 77);
    HOLDS(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts) == 0 && errno == 77);
}

/* ---- Who answers ------------------------------------------------------------------------------
 */

static void the_names_are_the_librarys(const void *unused) {
    static const char *const names[] = {"clock_gettime", "clock_getres", "gettimeofday", "time",
                                        "timespec_get"};
    (void)unused;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *symbol = dlsym(RTLD_DEFAULT, names[i]);
        Dl_info info = {0};
        CHECK(symbol && dladdr(symbol, &info) && info.dli_fname &&
                  strstr(info.dli_fname, "preload"),
              "%s is answered by %s", names[i], info.dli_fname ? info.dli_fname : "nobody");
    }
}

#ifdef HAVE_STEP

/* `call` once without a look, and then under the magnifying glass, until what was seen fulfils the
 * condition: under it a call takes long enough to meet the kernel writing its page, on a busy
 * machine again and again. What a call does every time is seen all the same. */
#define STEP(seen, call, condition)                                                                \
    do {                                                                                           \
        enum { TIMES = 200 };                                                                      \
        (void)(call);                                                                              \
        for (int time_ = 0; time_ < TIMES; time_++) {                                              \
            step_begin();                                                                          \
            (void)(call);                                                                          \
            (seen) = step_end();                                                                   \
            if (condition)                                                                         \
                break;                                                                             \
        }                                                                                          \
        CHECK(condition,                                                                           \
              "%u instructions, %u in the vDSO, %u system calls, %u counter reads, %u fences, "    \
              "%u allocations",                                                                    \
              seen.instructions, seen.in_vdso, seen.system_calls, seen.counter_reads, seen.fences, \
              seen.allocations);                                                                   \
    } while (0)

static void reads_the_page_itself(const void *unused) {
    const unsigned relaxed = is_relaxed();
    struct step_seen seen = {0};
    struct timespec ts;
    struct timeval tv;
    (void)unused;
    for (int i = 0; i < OURS; i++) {
        const unsigned coarse = ours[i] == FC_REALTIME_COARSE || ours[i] == FC_MONOTONIC_COARSE;
        STEP(seen, clock_gettime(ours[i], &ts),
             seen.in_vdso == 0 && seen.system_calls == 0 && seen.counter_reads == !coarse &&
                 seen.fences == (!coarse && !relaxed));
    }
    STEP(seen, gettimeofday(&tv, NULL),
         seen.in_vdso == 0 && seen.system_calls == 0 && seen.counter_reads == 1 &&
             seen.fences == !relaxed);
    STEP(seen, timespec_get(&ts, TIME_UTC),
         seen.in_vdso == 0 && seen.system_calls == 0 && seen.counter_reads == 1 &&
             seen.fences == !relaxed);
    STEP(seen, time(NULL), seen.in_vdso == 0 && seen.system_calls == 0 && seen.counter_reads == 0);
}

/* What the C library does: the vDSO's instructions, without a system call. */
static void leaves_all_to_the_vdso(const void *unused) {
    struct step_seen seen = {0};
    struct timespec ts;
    struct timeval tv;
    (void)unused;
    for (int i = 0; i < OURS; i++) {
        STEP(seen, clock_gettime(ours[i], &ts), seen.in_vdso > 0 && seen.system_calls == 0);
    }
    STEP(seen, gettimeofday(&tv, NULL), seen.in_vdso > 0 && seen.system_calls == 0);
    STEP(seen, time(NULL), seen.in_vdso > 0 && seen.system_calls == 0);
}

/* 32-bit programs enter the kernel by a few instructions of the vDSO, under which the processor may
 * not trap at each. */
static bool is_one_system_call(const struct step_seen *seen) {
#ifdef __i386__
    return seen->system_calls <= 2 && seen->in_vdso > 0 && seen->in_vdso < 20 &&
           seen->counter_reads == 0;
#else
    return seen->system_calls == 1 && seen->in_vdso == 0 && seen->counter_reads == 0;
#endif
}

static void makes_the_system_call(const void *unused) {
    struct step_seen seen = {0};
    struct timespec ts;
    (void)unused;
    STEP(seen, clock_gettime(CLOCK_MONOTONIC, &ts), is_one_system_call(&seen));
}

/* Processor time, which nobody can read without the kernel. */
static void the_rest_goes_straight_to_the_kernel(const void *unused) {
    struct step_seen seen = {0};
    struct timespec ts;
    (void)unused;
    STEP(seen, clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts),
         is_one_system_call(&seen) && seen.allocations == 0);
    STEP(seen, clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts),
         is_one_system_call(&seen) && seen.allocations == 0);
}

static void the_first_call_allocates_nothing(const void *unused) {
    struct step_seen seen = {0};
    struct timespec ts;
    (void)unused;
    step_begin();
    clock_gettime(CLOCK_MONOTONIC, &ts);
    seen = step_end();
    CHECK(seen.instructions > 1000, "it was not the first call"); /* a source was chosen */
    HOLDS(seen.allocations == 0);
}

#endif

/* ---- Awkward moments --------------------------------------------------------------------------
 */

static struct timespec before_main;
static int before_main_result = -1;

__attribute__((constructor)) static void read_before_main(void) {
    if (!getenv("SHIM_TEST_FIRST_CALL_LATER"))
        before_main_result = clock_gettime(CLOCK_MONOTONIC, &before_main);
}

static void a_constructor_can_read(const void *unused) {
    struct timespec ts;
    (void)unused;
    HOLDS(before_main_result == 0 && before_main.tv_sec >= 0);
    HOLDS(clock_gettime(CLOCK_MONOTONIC, &ts) == 0);
    HOLDS(ts.tv_sec > before_main.tv_sec ||
          (ts.tv_sec == before_main.tv_sec && ts.tv_nsec >= before_main.tv_nsec));
}

static volatile sig_atomic_t handled;

static void on_tick(int number) {
    struct timespec ts;
    (void)number;
    if (clock_gettime(CLOCK_MONOTONIC, &ts) == 0)
        handled++;
}

/* The handler may come in the middle of a call, also of one that it makes itself. */
static void handlers_can_read(const void *unused) {
    const struct itimerval every = {{0, 100}, {0, 100}};
    const sig_atomic_t enough = 2000;
    struct timespec last = {0, 0}, ts;
    (void)unused;
    signal(SIGALRM, on_tick);
    MUST(setitimer(ITIMER_REAL, &every, NULL));
    while (handled < enough) {
        HOLDS(clock_gettime(CLOCK_MONOTONIC, &ts) == 0);
        HOLDS(ts.tv_sec > last.tv_sec || (ts.tv_sec == last.tv_sec && ts.tv_nsec >= last.tv_nsec));
        last = ts;
    }
}

static void *read_once(void *unused) {
    struct timespec ts;
    (void)unused;
    return clock_gettime(CLOCK_MONOTONIC, &ts) == 0 ? &library : NULL;
}

static void threads_and_children_can_read(const void *unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        pthread_t threads[4];
        const pid_t child = fork();
        if (child == 0) { /* a first call there, by several threads at once */
            for (int t = 0; t < 4; t++)
                if (pthread_create(&threads[t], NULL, read_once, NULL) != 0)
                    _exit(1);
            for (int t = 0; t < 4; t++) {
                void *result = NULL;
                if (pthread_join(threads[t], &result) != 0 || !result)
                    _exit(1);
            }
            _exit(0);
        }
        MUST(child);
        MUST_EXIT_0(child);
    }
}

/* ---- Running ----------------------------------------------------------------------------------
 */

static void claims_that_always_hold(const char *when) {
    static const struct {
        const char *sentence;
        void (*claim)(const void *);
    } claims[] = {
        {"the POSIX names are answered by the library", the_names_are_the_librarys},
        {"clock_gettime lies between two system calls, for every clock", clocks_are_bracketed},
        {"gettimeofday lies between two system calls", gettimeofday_is_bracketed},
        {"time lies between two system calls", time_is_bracketed},
        {"timespec_get lies between two system calls", timespec_get_is_bracketed},
        {"timespec_get answers 0 for other bases", timespec_get_refuses_other_bases},
        {"every clock number has the kernel's value or errno",
         every_number_answers_as_the_kernel_does},
        {"resolutions are the kernel's", resolutions_are_the_kernels},
        {"a bad pointer is EFAULT", bad_pointers_are_efault},
        {"the time zone is the kernel's", the_time_zone_is_the_kernels},
        {"errno is kept", errno_is_kept},
        {"a constructor can read", a_constructor_can_read},
        {"signal handlers can read", handlers_can_read},
        {"threads and children can make the first call", threads_and_children_can_read},
    };
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "%s: %s", when, claims[i].sentence);
        check_that(sentence, claims[i].claim, NULL);
    }
}

static int run_claims(const char *when) {
    claims_that_always_hold(when);
#ifdef HAVE_STEP
    if (strcmp(when, "off") == 0) {
        check_that("off: the vDSO answers, as without the library", leaves_all_to_the_vdso, NULL);
        return check_end();
    }
    if (strcmp(when, "system call") == 0) {
        check_that("system call: one system call is made", makes_the_system_call, NULL);
    } else {
        char sentence[128];
        snprintf(sentence, sizeof sentence, "%s: no vDSO and no system call is in the read%s", when,
                 strcmp(when, "relaxed") == 0 ? ", and no fence" : ", and one fence");
        check_that(sentence, reads_the_page_itself, NULL);
    }
    check_that("what is not sped up is one system call", the_rest_goes_straight_to_the_kernel,
               NULL);
#endif
    return check_end();
}

static int run_first(void) {
#ifdef HAVE_STEP
    check_that("the first call allocates nothing", the_first_call_allocates_nothing, NULL);
#endif
    check_that("the first call of many threads in many children", threads_and_children_can_read,
               NULL);
    check_that("the first call may come from a signal handler", handlers_can_read, NULL);
    return check_end();
}

/* Starts this program again under the library. */
static int again(char **argv, const char *when, const char *variable, const char *value) {
    const pid_t child = fork();
    int status = -1;
    if (child == 0) {
        setenv("LD_PRELOAD", library, 1);
        unsetenv("FASTCLOCK_SOURCE");
        unsetenv("FASTCLOCK_RELAXED");
        if (variable)
            setenv(variable, value, 1);
        execl("/proc/self/exe", argv[0], library, "--when", when, (char *)NULL);
        perror("exec");
        _exit(2);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status)) {
        printf("%s: the run did not end by itself\n", when);
        return 1;
    }
    return WEXITSTATUS(status);
}

int main(int argc, char **argv) {
    int failed = 0;
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "usage: shim PATH-OF-THE-LIBRARY\n");
        return 2;
    }
    library = argv[1];
    check_begin(1, argv);
    if (argc == 4 && strcmp(argv[3], "first") == 0)
        return run_first();
    if (argc == 4)
        return run_claims(argv[3]);
    failed |= again(argv, "first", "SHIM_TEST_FIRST_CALL_LATER", "1");
    failed |= again(argv, "by itself", NULL, NULL);
    failed |= again(argv, "relaxed", "FASTCLOCK_RELAXED", "1");
    failed |= again(argv, "relaxed asked for by another word", "FASTCLOCK_RELAXED", "yes");
    failed |= again(argv, "off", "FASTCLOCK_SOURCE", "off");
    failed |= again(argv, "system call", "FASTCLOCK_SOURCE", "syscall");
    failed |= again(argv, "an unknown source", "FASTCLOCK_SOURCE", "sundial");
    return failed ? 1 : 0;
}
