/* SPDX-License-Identifier: MIT
 *
 * The publisher's measuring of counters that differ. The machine's own agree; the core that this is
 * linked with adds to each count what the test says of the processor that it came from. Which
 * processors there are is told by a file that the test puts in the place of the kernel's.
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include <fastclock.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "publisher.h"
#include "skewed.h"

#ifdef FC_HAVE_PROCESSOR_REGISTER

static struct fc_timekeep_processors processors;
static struct fc_timekeep page;
static void run_on(int which) {
    MUST(move(0, (unsigned)which));
}

/* Puts a file in the place of the kernel's list of processors; later calls change what it says. */
static void say_online(const char *list) {
    static int file = -1;
    if (file < 0) {
        own_run("");
        file = open("/run/online", O_RDWR | O_CREAT | O_TRUNC, 0644);
        MUST(file);
        MUST(mount("/run/online", "/sys/devices/system/cpu/online", NULL, MS_BIND, NULL));
    }
    MUST(ftruncate(file, 0));
    CHECK(pwrite(file, list, strlen(list), 0) == (ssize_t)strlen(list));
}

static char *list_of(const char *format, int a, int b) {
    static char text[64];
    snprintf(text, sizeof text, format, a, b);
    return text;
}

/* ---- Measuring --------------------------------------------------------------------------------
 */

static void agree(const void *argument) {
    (void)argument;
    find_cpus();
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
    fc_timekeep_processors_measure(&processors);
    for (int i = 0; i < 2; i++)
        CHECK(processors.of[cpus[i]].online && processors.of[cpus[i]].measured,
              "processor %d was not measured", cpus[i]);
    CHECK(!processors.differ);
    fc_timekeep_processors_write(&processors, &page);
    CHECK(page.cpus == 0, "a table of %u", page.cpus);
    for (int i = 0; i < 100; i++) {
        const char *why = fc_timekeep_processors_watch(&processors);
        CHECK(!why, "look %d: %s", i, why);
    }
}

static void found(const void *argument) {
    const int64_t skew = *(const int64_t *)argument;
    int64_t from_reference;
    const struct fc_timekeep_processor *other;
    find_cpus();
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
    fc_skew_injected[cpus[1]] = skew;
    fc_timekeep_processors_measure(&processors);
    CHECK(processors.differ);
    from_reference = processors.reference == (uint32_t)cpus[1] ? -skew : skew;
    other = &processors.of[processors.reference == (uint32_t)cpus[1] ? cpus[0] : cpus[1]];
    CHECK(other->low <= from_reference && other->high >= from_reference,
          "%" PRId64 " is not in [%" PRId64 ", %" PRId64 "]", from_reference, other->low,
          other->high);
    fc_timekeep_processors_write(&processors, &page);
    CHECK(page.cpus > (uint32_t)cpus[1] && page.skew[processors.reference] == 0);
    CHECK(page.skew[other - processors.of] >= other->low &&
              page.skew[other - processors.of] <= other->high,
          "the table has %" PRId64, page.skew[other - processors.of]);
    for (int i = 0; i < 20; i++) {
        fc_timekeep_processors_watch(&processors);
        CHECK(!processors.stale, "look %d finds it moved", i);
        CHECK(other->low <= from_reference && other->high >= from_reference,
              "after look %d %" PRId64 " is not in [%" PRId64 ", %" PRId64 "]", i, from_reference,
              other->low, other->high);
    }
}

static void moved(const void *argument) {
    const int64_t by = *(const int64_t *)argument;
    const char *why = NULL;
    find_cpus();
    fc_timekeep_processors_measure(&processors);
    CHECK(!processors.differ);
    fc_skew_injected[cpus[1]] = by;
    for (int looks = 0; !why; looks++) {
        CHECK(looks < 1000, "it is not noticed");
        why = fc_timekeep_processors_watch(&processors);
    }
    CHECK(processors.stale, "the others are still taken for known: %s", why);
}

/* ---- Which processors there are ---------------------------------------------------------------
 */

static void unmeasured(const void *argument) {
    uint64_t count;
    (void)argument;
    find_cpus();
    say_online(list_of("%d-%d,500\n", cpus[0], cpus[1])); /* no such processor can be run on */
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
    fc_timekeep_processors_measure(&processors);
    CHECK(processors.of[500].online && !processors.of[500].measured && processors.differ);
    fc_timekeep_processors_write(&processors, &page);
    CHECK(page.cpus == 501 && page.skew[500] == FC_TIMEKEEP_SKEW_UNKNOWN, "%u skews", page.cpus);
    for (int i = 0; i < 2; i++) {
        run_on(i);
        CHECK(fc_skew_rdtscp(&page, &count), "processor %d has no count", cpus[i]);
        page.skew[cpus[i]] = FC_TIMEKEEP_SKEW_UNKNOWN;
        CHECK(!fc_skew_rdtscp(&page, &count), "processor %d has a count without a skew", cpus[i]);
        CHECK(!fc_skew_count(&page, &count));
        page.skew[cpus[i]] = 0;
    }
}

static void too_many(const void *argument) {
    (void)argument;
    find_cpus();
    say_online(list_of("%d,%d,1024\n", cpus[0], cpus[1]));
    fc_timekeep_processors_measure(&processors);
    CHECK(processors.differ, "a processor whose number is too large is trusted");
}

/* Looks until something is to change, and puts that into the page. */
static const char *look_until_change(void) {
    const char *why = NULL;
    while (!why) /* the claim's deadline ends it */
        why = fc_timekeep_processors_watch(&processors);
    CHECK(!processors.stale, "all have to be measured anew: %s", why);
    fc_timekeep_processors_write(&processors, &page);
    return why;
}

static void begin_with_one(void) {
    find_cpus();
    run_on(0); /* the reference */
    say_online(list_of("%d\n", cpus[0], 0));
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
    fc_timekeep_processors_measure(&processors);
    fc_timekeep_processors_write(&processors, &page);
    CHECK(!processors.differ && !processors.of[cpus[1]].online && page.cpus == 0);
}

static void comes_agreeing(const void *argument) {
    const char *why = NULL;
    (void)argument;
    begin_with_one();
    say_online(list_of("%d,%d\n", cpus[0], cpus[1]));
    /* On a busy machine a look can come to nothing; then there is a table for a while. */
    do {
        why = fc_timekeep_processors_watch(&processors);
        fc_timekeep_processors_write(&processors, &page);
    } while (why || !processors.of[cpus[1]].measured);
    CHECK(page.cpus == 0, "a table of %u", page.cpus);
    say_online(list_of("%d\n", cpus[0], 0));
    why = fc_timekeep_processors_watch(&processors);
    CHECK(!why && !processors.of[cpus[1]].measured, "%s", why ? why : "what was known stays");
}

static void comes_differing(const void *argument) {
    (void)argument;
    begin_with_one();
    fc_skew_injected[cpus[1]] = (int64_t)1 << 40;
    say_online(list_of("%d,%d\n", cpus[0], cpus[1]));
    do
        look_until_change();
    while (!processors.of[cpus[1]].measured);
    CHECK(page.cpus > (uint32_t)cpus[1] && page.skew[cpus[0]] == 0 &&
              page.skew[cpus[1]] >= processors.of[cpus[1]].low &&
              page.skew[cpus[1]] <= processors.of[cpus[1]].high,
          "the table of %u has %" PRId64, page.cpus, page.skew[cpus[1]]);
}

static void reference_goes(const void *argument) {
    const char *why;
    (void)argument;
    begin_with_one();
    say_online(list_of("%d\n", cpus[1], 0));
    why = fc_timekeep_processors_watch(&processors);
    CHECK(why && processors.stale, "the reference is not missed");
}

/* As when there was no time to measure one of them. */
static void measured_later(const void *argument) {
    const int64_t skew = *(const int64_t *)argument;
    struct fc_timekeep_processor *one;
    find_cpus();
    run_on(0);
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
    fc_skew_injected[cpus[1]] = skew;
    fc_timekeep_processors_measure(&processors);
    one = &processors.of[cpus[1]];
    one->measured = false;
    fc_timekeep_processors_write(&processors, &page);
    CHECK(page.skew[cpus[1]] == FC_TIMEKEEP_SKEW_UNKNOWN);
    look_until_change();
    CHECK(one->measured && one->low <= skew && one->high >= skew);
    CHECK(page.cpus == (skew ? (uint32_t)cpus[1] + 1 : 0), "a table of %u", page.cpus);
}

static void stays_where_allowed(const void *argument) {
    cpu_set_t set;
    (void)argument;
    find_cpus();
    run_on(1);
    fc_timekeep_processors_measure(&processors);
    for (int i = 0; i < 10; i++)
        fc_timekeep_processors_watch(&processors);
    MUST(sched_getaffinity(0, sizeof set, &set));
    CHECK(CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)cpus[1], &set), "the thread runs elsewhere");
}

/* ---- A host whose counters differ -------------------------------------------------------------
 */

static struct fc_timekeep_host host;
static atomic_bool over;

static void *keep_publishing(void *unused) {
    (void)unused;
    while (!atomic_load(&over)) {
        const struct timespec pause = {0, FAST_INTERVAL_NS * 3 / 4};
        const enum fc_timekeep_end end = fc_timekeep_host_update(&host);
        CHECK(end != FC_TIMEKEEP_FAILS, "%s", host.discipline.outage);
        if (end == FC_TIMEKEEP_SERVES && !fc_timekeep_host_show(&host))
            FAIL("the page cannot be shown: %s", strerror(errno));
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static pthread_t publish_host(void) {
    pthread_t publisher;
    int error;
    const char *wrong;
    own_run("");
    wrong = fc_timekeep_host_open(&host, FC_TIMEKEEP_DIRECTORY, FAST_INTERVAL_NS, &error);
    CHECK(!wrong, "%s: %s", wrong, strerror(error));
    MUST(-pthread_create(&publisher, NULL, keep_publishing, NULL));
    return publisher;
}

static void stop_host(pthread_t publisher) {
    atomic_store(&over, true);
    pthread_join(publisher, NULL);
    fc_timekeep_host_close(&host);
}

/* Reads the page on each processor in turn, until it has answered so often, near the kernel. */
static void near_on_both(uint64_t answers) {
    uint64_t answered[2] = {0, 0};
    for (unsigned turn = 0; answered[0] < answers || answered[1] < answers; turn++) {
        run_on((int)(turn % 2));
        for (int i = 0; i < 100; i++) {
            struct fc_reading reading;
            int32_t hands;
            const uint64_t before = kernel_now_ns(FC_MONOTONIC);
            const bool had = fc_timekeep_page_read(host.page, FC_MONOTONIC, true, &reading,
                                                   &hands) == FC_REASON_NONE;
            const uint64_t after = kernel_now_ns(FC_MONOTONIC);
            if (!had)
                continue;
            answered[turn % 2]++;
            CHECK(fc_reading_count(reading) + NEAR_NS > before &&
                      fc_reading_count(reading) < after + NEAR_NS,
                  "processor %d: %" PRId64 " ns before, %" PRId64 " ns after", cpus[turn % 2],
                  (int64_t)(fc_reading_count(reading) - before),
                  (int64_t)(after - fc_reading_count(reading)));
        }
    }
}

static void served(const void *argument) {
    const uint64_t answers = check_rounds(2000);
    pthread_t publisher;
    (void)argument;
    find_cpus();
    fc_skew_injected[cpus[1]] = (int64_t)1 << 33; /* seconds */
    publisher = publish_host();
    near_on_both(answers);
    CHECK(__atomic_load_n(&host.page->cpus, __ATOMIC_ACQUIRE) > (uint32_t)cpus[1]);
    stop_host(publisher);
}

static void served_after_a_move(const void *argument) {
    const int64_t by = *(const int64_t *)argument;
    const uint64_t answers = check_rounds(500);
    pthread_t publisher;
    find_cpus();
    publisher = publish_host();
    near_on_both(answers);
    CHECK(__atomic_load_n(&host.page->cpus, __ATOMIC_ACQUIRE) == 0, "there is a table");
    __atomic_store_n(&fc_skew_injected[cpus[1]], by, __ATOMIC_RELAXED);
    while (__atomic_load_n(&host.page->cpus, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    CHECK(__atomic_load_n(&host.page->outages, __ATOMIC_RELAXED) >= 1,
          "the table was changed under the readers");
    near_on_both(answers);
    /* And back: a table that is not needed any more. */
    __atomic_store_n(&fc_skew_injected[cpus[1]], 0, __ATOMIC_RELAXED);
    while (__atomic_load_n(&host.page->cpus, __ATOMIC_ACQUIRE) != 0)
        sched_yield();
    near_on_both(answers);
    stop_host(publisher);
}

/* A process that goes from a processor with a skew in the table to one without, and back. */
static void unknown_on_one(const void *argument) {
    const uint64_t turns = check_rounds(400);
    struct reader reader = {0};
    pthread_t publisher;
    (void)argument;
    find_cpus();
    fc_skew_injected[cpus[1]] = (int64_t)1 << 33;
    run_on(0); /* and so does the publisher */
    publisher = publish_host();
    wait_for_page();
    attach(&reader);
    read_until_page(&reader);
    for (uint64_t turn = 0; turn < turns; turn++) {
        /* A publisher that has looked at it anew may have put its skew there again. */
        __atomic_store_n(&host.page->skew[cpus[1]], FC_TIMEKEEP_SKEW_UNKNOWN, __ATOMIC_RELAXED);
        run_on((int)(turn % 2));
        for (int i = 0; i < 100; i++)
            read_and_check(&reader);
    }
    CHECK(reader.from_page > turns && reader.from_kernel > turns,
          "%" PRIu64 " readings from the page, %" PRIu64 " from the kernel", reader.from_page,
          reader.from_kernel);
    stop_host(publisher);
}

static void taken_over(const void *argument) {
    int64_t skew[FC_TIMEKEEP_CPUS];
    uint32_t other = 0;
    cpu_set_t both;
    int error;
    (void)argument;
    find_cpus();
    MUST(sched_getaffinity(0, sizeof both, &both));
    own_run("");
    for (int i = 0; i < 2; i++) {
        const char *wrong =
            fc_timekeep_host_open(&host, FC_TIMEKEEP_DIRECTORY, FC_TIMEKEEP_INTERVAL_NS, &error);
        CHECK(!wrong, "%s: %s", wrong, strerror(error));
        CHECK(host.taken_over == (i == 1));
        CHECK(fc_timekeep_host_update(&host) == FC_TIMEKEEP_PROVES);
        CHECK(host.page->cpus == 0, "%u skews", host.page->cpus);
        CHECK(i == 0 || host.processors.reference == other, "the reference was %u and is %u", other,
              host.processors.reference);
        /* A page with skews, whose reference is not the processor that this runs on. */
        MUST(sched_setaffinity(0, sizeof both, &both));
        other =
            host.processors.reference == (uint32_t)cpus[0] ? (uint32_t)cpus[1] : (uint32_t)cpus[0];
        for (int k = 0; k < FC_TIMEKEEP_CPUS; k++)
            skew[k] = (uint32_t)k == other ? 0 : FC_TIMEKEEP_SKEW_UNKNOWN;
        fc_timekeep_page_skew(host.page, skew, FC_TIMEKEEP_CPUS);
        CHECK(fc_timekeep_host_show(&host));
        fc_timekeep_host_close(&host);
    }
}

static void claims(void) {
    static const int64_t skews[] = {(int64_t)1 << 40, -((int64_t)1 << 33), 1000000, -1000000};
    static const int64_t moves[] = {(int64_t)1 << 33, -100000000};
    static const int64_t none = 0;
    char sentence[128];
    check_that("counters that agree are found to agree, and stay so", agree, NULL);
    for (size_t i = 0; i < sizeof skews / sizeof *skews; i++) {
        snprintf(sentence, sizeof sentence,
                 "a counter that is %" PRId64 " counts ahead is found to be, by bounds that hold",
                 skews[i]);
        check_that(sentence, found, &skews[i]);
    }
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        snprintf(sentence, sizeof sentence, "a counter that moves by %" PRId64 " is noticed",
                 moves[i]);
        check_that(sentence, moved, &moves[i]);
    }
    check_that("a processor that cannot be measured has no place in the table", unmeasured, NULL);
    check_that("a processor whose number is too large is not trusted", too_many, NULL);
    check_that("a processor that comes and agrees needs no table, and is forgotten when it goes",
               comes_agreeing, NULL);
    check_that("a processor that comes and differs is corrected", comes_differing, NULL);
    check_that("when the reference goes all are measured anew", reference_goes, NULL);
    check_that("a processor that can be measured later gets its skew", measured_later, &skews[0]);
    check_that("a processor that can be measured later and agrees ends the table", measured_later,
               &none);
    check_that("measuring leaves the thread where it was allowed to be", stays_where_allowed, NULL);
    check_that("a host whose counters differ is served on every processor", served, NULL);
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        snprintf(sentence, sizeof sentence,
                 "a counter that moves by %" PRId64 " is corrected from then on, and back",
                 moves[i]);
        check_that(sentence, served_after_a_move, &moves[i]);
    }
    check_that("on a processor without a skew the kernel answers, and nothing goes back",
               unknown_on_one, NULL);
    check_that("a publisher that takes over a page measures its table anew", taken_over, NULL);
}

#endif

SKEWED_MAIN("the counters of processors that differ are measured", claims)
