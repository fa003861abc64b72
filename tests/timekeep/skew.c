/* SPDX-License-Identifier: MIT
 *
 * Counters that differ from processor to processor. The machine's own agree; the core that this is
 * linked with adds to each count what the test says of the processor that this one count came from,
 * which RDTSCP tells. The corrected count must then lie between two plain ones, however the thread
 * is moved meanwhile: by another thread, and by its own signal handler.
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include <fastclock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "publisher.h"
#include "skewed.h"

#ifdef FC_HAVE_PROCESSOR_REGISTER

static struct fc_timekeep page;

/* ---- The machine ------------------------------------------------------------------------------
 */

/* Seconds apart, in both directions: more than any bracket is wide. */
static void inject(void) {
    for (int i = 0; i < FC_TIMEKEEP_CPUS; i++)
        fc_skew_injected[i] = (i % 2 ? -1 : 1) * ((int64_t)(i + 1) << 33);
    fc_timekeep_page_skew(&page, fc_skew_injected, FC_TIMEKEEP_CPUS);
}

/* ---- The storm --------------------------------------------------------------------------------
 */

static atomic_bool over;
static atomic_ullong moves;
static pthread_t mover;
static pid_t victim;

/* The reading that is under way, by its number, and the last one that was disturbed. */
static volatile unsigned reading_now, reading_moved;
static volatile bool once_a_reading;

static void on_alarm(int number) {
    static volatile unsigned turn;
    const int saved = errno;
    (void)number;
    if (once_a_reading && reading_moved == reading_now)
        return;
    reading_moved = reading_now;
    turn = turn + 1;
    if (move(0, turn) == 0)
        atomic_fetch_add(&moves, 1);
    errno = saved;
}

static void *keep_moving(void *unused) {
    (void)unused;
    for (unsigned turn = 0; !atomic_load(&over); turn++)
        if (move(victim, turn) == 0)
            atomic_fetch_add(&moves, 1);
    return NULL;
}

/* ONCE: the signals move the thread at most once in each reading. */
enum storm { BY_SIGNALS = 1, BY_ANOTHER = 2, ONCE = 4 };

static void begin_storm(int storm) {
    const struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    const struct itimerval often = {{0, 50}, {0, 50}};
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    victim = (pid_t)syscall(SYS_gettid);
    once_a_reading = (storm & ONCE) != 0;
    MUST(sigprocmask(SIG_BLOCK, &alarm, NULL));
    if ((storm & BY_ANOTHER) && pthread_create(&mover, NULL, keep_moving, NULL) != 0)
        FAIL("no thread can be made");
    MUST(sigprocmask(SIG_UNBLOCK, &alarm, NULL));
    MUST(sigaction(SIGALRM, &action, NULL));
    if (storm & BY_SIGNALS)
        MUST(setitimer(ITIMER_REAL, &often, NULL));
}

static void end_storm(int storm) {
    const struct itimerval never = {{0, 0}, {0, 0}};
    atomic_store(&over, true);
    MUST(setitimer(ITIMER_REAL, &never, NULL));
    if (storm & BY_ANOTHER)
        pthread_join(mover, NULL);
}

/* ---- Claims -----------------------------------------------------------------------------------
 */

struct way {
    int (*counter)(const void *, uint64_t *);
    int storm;
};

/* Whether a count by this way lies between two plain ones. */
static bool in_bracket(const struct way *way, uint64_t *given_up) {
    uint64_t before, count, after;
    int had;
    reading_now = reading_now + 1;
    before = fc_counter_ordered_();
    had = way->counter(&page, &count);
    after = fc_counter_ordered_();
    *given_up += !had;
    return !had || (int64_t)(after - before) < 0 || (count - before <= after - before);
}

static void begin(const struct way *way) {
    uint64_t count;
    find_cpus();
    inject();
    if (!way->counter(&page, &count))
        CANNOT("this way does not exist here");
}

static void stays_in_bracket(const void *argument) {
    const struct way *way = argument;
    const uint64_t moves_wanted = check_rounds(20000);
    uint64_t readings = 0, outside = 0, given_up = 0;
    begin(way);
    begin_storm(way->storm);
    /* Readings too: at first the thread may be moved and not get to run. */
    while (atomic_load_explicit(&moves, memory_order_relaxed) < moves_wanted ||
           readings < moves_wanted) {
        readings++;
        outside += !in_bracket(way, &given_up);
    }
    end_storm(way->storm);
    CHECK(outside == 0, "%" PRIu64 " of %" PRIu64 " counts outside, in %llu moves", outside,
          readings, atomic_load(&moves));
    CHECK(given_up < readings / 2, "%" PRIu64 " of %" PRIu64 " given up", given_up, readings);
}

static void is_caught(const void *argument) {
    const struct way *way = argument;
    uint64_t given_up = 0;
    begin(way);
    begin_storm(way->storm);
    while (in_bracket(way, &given_up)) /* the claim's deadline ends it */
        continue;
    end_storm(way->storm);
}

static void refuses_beyond_table(const void *argument) {
    const struct way *way = argument;
    uint64_t count;
    begin(way);
    for (int i = 0; i < cpu_count; i++) {
        MUST(move(0, (unsigned)i));
        fc_timekeep_page_skew(&page, fc_skew_injected, (uint32_t)cpus[i] + 1);
        CHECK(way->counter(&page, &count), "processor %d, the table's last", cpus[i]);
        fc_timekeep_page_skew(&page, fc_skew_injected, (uint32_t)cpus[i]);
        CHECK(!way->counter(&page, &count), "processor %d, one beyond the table", cpus[i]);
    }
}

/* A page with skews that serves, from samples by the plain counter, which is the reference. */
static struct fc_timekeep_discipline discipline;

static void serve(void) {
    struct fc_timekeep_hands *hands;
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
    inject();
    fc_timekeep_discipline_init(&discipline, FC_TIMEKEEP_INTERVAL_NS);
    while (fc_timekeep_update(&discipline, &page, &fc_timekeep_machine, 0) != FC_TIMEKEEP_SERVES) {
        const uint64_t began = kernel_now_ns(FC_MONOTONIC);
        while (kernel_now_ns(FC_MONOTONIC) - began < 2000000)
            continue;
    }
    /* Valid for longer than this test can be kept waiting; nobody slews the kernel's clock that
     * much meanwhile. */
    hands = &page.hands[page.current % FC_TIMEKEEP_HANDS];
    hands->fine.max_cycles = hands->raw.max_cycles = hands->valid_cycles = UINT32_MAX;
}

static bool page_is_near(uint64_t *answered) {
    struct fc_reading reading;
    int32_t hands;
    const uint64_t before = kernel_now_ns(FC_MONOTONIC);
    const bool had =
        fc_timekeep_page_read(&page, FC_MONOTONIC, true, &reading, &hands) == FC_REASON_NONE;
    const uint64_t after = kernel_now_ns(FC_MONOTONIC);
    if (!had)
        return true;
    ++*answered;
    CHECK(hands < 0, "inlined reads would be turned to a page with skews");
    return fc_reading_count(reading) + NEAR_NS > before &&
           fc_reading_count(reading) < after + NEAR_NS;
}

static void page_tells_time(const void *argument) {
    const uint64_t moves_wanted = check_rounds(20000), answers_wanted = check_rounds(1000);
    uint64_t answered = 0, began = 0;
    (void)argument;
    find_cpus();
    serve();
    begin_storm(BY_SIGNALS | BY_ANOTHER);
    while (atomic_load_explicit(&moves, memory_order_relaxed) < moves_wanted ||
           answered < answers_wanted) {
        if (kernel_now_ns(FC_MONOTONIC) - began > FC_TIMEKEEP_INTERVAL_NS) {
            began = kernel_now_ns(FC_MONOTONIC);
            fc_timekeep_update(&discipline, &page, &fc_timekeep_machine, 0);
        }
        CHECK(page_is_near(&answered), "the page is wrong after %" PRIu64 " readings", answered);
    }
    end_storm(BY_SIGNALS | BY_ANOTHER);
}

static void page_leaves_beyond_table(const void *argument) {
    struct fc_reading reading;
    int32_t hands;
    (void)argument;
    find_cpus();
    serve();
    MUST(move(0, (unsigned)cpu_count - 1));
    CHECK(fc_timekeep_page_read(&page, FC_MONOTONIC, true, &reading, &hands) == FC_REASON_NONE);
    __atomic_store_n(&page.cpus, (uint32_t)cpus[cpu_count - 1], __ATOMIC_RELAXED);
    CHECK(fc_timekeep_page_read(&page, FC_MONOTONIC, true, &reading, &hands) ==
          FC_REASON_OUT_OF_SERVICE);
}

static void inlined_look_leaves(const void *argument) {
    const struct fc_timekeep_hands *hands;
    uint64_t sec, ns;
    (void)argument;
    find_cpus();
    serve();
    hands = &page.hands[page.current % FC_TIMEKEEP_HANDS];
    CHECK(hands->fine.mode == FC_TIMEKEEP_MODE_SKEWED);
    CHECK(fc_try_fine_((const unsigned char *)&hands->fine, 8, FC_MONOTONIC, FC_MODE_COUNTER_,
                       fc_cpu_counter_ordered_, NULL, &sec, &ns) == FC_TRY_LEAVE_);
    CHECK(fc_try_fine_((const unsigned char *)&hands->fine, 8, FC_MONOTONIC,
                       FC_TIMEKEEP_MODE_SKEWED, fc_skew_rdtscp, &page, &sec, &ns) == FC_TRY_OK_);
}

/* All skews larger by `more`, and the timehands' beginning earlier by as much, give the same time;
 * any mixture of old and new is wrong by half a millisecond or so. */
enum { MORE = 1 << 21, NUMBERS = 64 };
static struct fc_timekeep_hands served;

static void change_table(int64_t more) {
    int64_t skew[NUMBERS];
    for (int i = 0; i < NUMBERS; i++)
        skew[i] = fc_skew_injected[i] + more;
    fc_timekeep_page_skew(&page, skew, NUMBERS);
}

static void publish_changed(int64_t more) {
    struct fc_timekeep_values values = {.last = served.fine.last - (uint64_t)more,
                                        .max_cycles = UINT32_MAX,
                                        .valid_cycles = UINT32_MAX,
                                        .mask = served.fine.mask,
                                        .mode = FC_TIMEKEEP_MODE_SKEWED,
                                        .shift = served.fine.shift,
                                        .mult = served.fine.mult,
                                        .raw_mult = served.raw.mult};
    for (int i = 0; i < FC_TIMEKEEP_CLOCKS; i++)
        values.base[i] = served.fine.base[i];
    fc_timekeep_page_write(&page, &values);
    fc_timekeep_page_turn(&page);
}

static void serve_numbers(void) {
    find_cpus();
    if (cpus[cpu_count - 1] >= NUMBERS)
        CANNOT("a processor's number above 63");
    serve();
    served = page.hands[page.current % FC_TIMEKEEP_HANDS];
}

static atomic_uint looks;

static void *keep_changing(void *unused) {
    (void)unused;
    for (unsigned turn = 0; !atomic_load(&over); turn++) {
        const int64_t more = (int64_t)(turn % 3) * MORE; /* not in step with the ring */
        unsigned looks_before;
        change_table(more);
        publish_changed(more);
        looks_before = atomic_load(&looks);
        /* Now and then long enough that a whole look falls into the pause. */
        while (turn % 256 == 255 && atomic_load(&looks) - looks_before < 2 && !atomic_load(&over))
            sched_yield();
    }
    return NULL;
}

static void table_keeps_changing(const void *argument) {
    uint64_t answered = 0, began;
    pthread_t changer;
    (void)argument;
    serve_numbers();
    began = kernel_now_ns(FC_MONOTONIC);
    if (pthread_create(&changer, NULL, keep_changing, NULL) != 0)
        FAIL("no thread can be made");
    /* While the timehands is valid, and the kernel's clock has not been slewed away from it. */
    while (kernel_now_ns(FC_MONOTONIC) - began < 300000000) {
        CHECK(page_is_near(&answered), "old and new mixed after %" PRIu64 " readings", answered);
        atomic_fetch_add(&looks, 1);
    }
    atomic_store(&over, true);
    pthread_join(changer, NULL);
    CHECK(answered > 0, "the page never answered");
}

/* The reader has its count, and is held up until the whole ring is another one. */
static void change_once(void) {
    fc_skew_counted = NULL;
    change_table(MORE);
    for (int i = 0; i < FC_TIMEKEEP_HANDS; i++)
        publish_changed(MORE);
}

static void table_changes_in_between(const void *argument) {
    uint64_t answered = 0;
    (void)argument;
    serve_numbers();
    fc_skew_counted = change_once;
    CHECK(page_is_near(&answered), "the old skew with the new timehands");
    CHECK(!fc_skew_counted, "the table was not changed");
    CHECK(page_is_near(&answered) && answered == 2, "the page answered %" PRIu64 " times",
          answered);
}

/* What a reader finds who asks the kernel amid a change of the table, or after one that a publisher
 * did not live to finish. */
static uint64_t told_ns;

static void ask_amid(void) {
    struct fc_reading reading;
    uint64_t count;
    int32_t hands;
    if (fc_timekeep_page_read(&page, FC_MONOTONIC, true, &reading, &hands) == FC_REASON_NONE)
        told_ns = fc_reading_count(reading);
    fc_timekeep_page_count(&page, &count);
    CHECK(fc_timekeep_page_floor(&page, FC_MONOTONIC, count, &reading) &&
              fc_reading_count(reading) >= told_ns,
          "before store %" PRIu64 " of the change it is not known what the page has told",
          failpoint.passed);
    failpoint.at = failpoint.passed + 1;
}

static void told_amid_change(const void *argument) {
    struct fc_reading reading;
    int32_t hands;
    (void)argument;
    find_cpus();
    serve();
    failpoint.act = ask_amid;
    failpoint.at = 1;
    failpoint.armed = true;
    fc_timekeep_page_skew(&page, fc_skew_injected, FC_TIMEKEEP_CPUS);
    failpoint.armed = false;
    CHECK(failpoint.passed > FC_TIMEKEEP_CPUS && told_ns > 0, "%" PRIu64 " stores",
          failpoint.passed);
    CHECK(fc_timekeep_page_read(&page, FC_MONOTONIC, true, &reading, &hands) ==
          FC_REASON_OUT_OF_SERVICE);
}

static void claims(void) {
    static const struct way rdtscp = {fc_skew_rdtscp, BY_SIGNALS | BY_ANOTHER};
    /* A thread that is moved away and back between the two looks is what this way cannot notice. */
    static const struct way user = {fc_skew_user_restart, BY_SIGNALS | ONCE};
    static const struct way kernel = {fc_skew_kernel_restart, BY_SIGNALS | BY_ANOTHER};
    static const struct way none = {fc_skew_no_restart, BY_SIGNALS | BY_ANOTHER};
    check_that("RDTSCP: no corrected count is outside plain ones, in a storm of migrations",
               stays_in_bracket, &rdtscp);
    check_that("user restart: the same, with at most one migration in a reading", stays_in_bracket,
               &user);
    check_that("kernel restart: no corrected count is outside plain ones, in a storm of migrations",
               stays_in_bracket, &kernel);
    check_that("without a restart a count is outside sooner or later", is_caught, &none);
    check_that("RDTSCP: a processor beyond the table has no count", refuses_beyond_table, &rdtscp);
    check_that("user restart: a processor beyond the table has no count", refuses_beyond_table,
               &user);
    check_that("kernel restart: a processor beyond the table has no count", refuses_beyond_table,
               &kernel);
    check_that("a page with skews tells the time in a storm of migrations", page_tells_time, NULL);
    check_that("a read on a processor beyond the table leaves the page", page_leaves_beyond_table,
               NULL);
    check_that("the inlined look leaves a page with skews, by its mode", inlined_look_leaves, NULL);
    check_that("a table that changes under the reader is never mixed with the one before",
               table_keeps_changing, NULL);
    check_that("a table that changes between count and timehands is noticed",
               table_changes_in_between, NULL);
    check_that("what the page has told is known at every store of a change of the table",
               told_amid_change, NULL);
}

#endif

SKEWED_MAIN("the counters of processors that differ are corrected", claims)
