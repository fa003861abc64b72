/* SPDX-License-Identifier: MIT
 *
 * The page under a writer at full speed. Every field of a publication follows from its number by a
 * known factor, so that a reading made of two publications betrays itself.
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include <fastclock.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../core/check.h"
#include "failpoint.h"
#include "timekeep.h"

#ifndef FC_MODE_COUNTER_
#error "these tests need a counter"
#endif

enum { SHIFT = 8, SINCE = 1000, EXTRA = 8, LAP = 1000000007 };

static struct fc_timekeep page;
static uint64_t began_at; /* counts; the publications' beginnings lie within LAP after it */
static atomic_bool stop;
static _Atomic uint64_t published;

static uint32_t mult_of(uint64_t n) {
    return (uint32_t)(n * 7 % 1000000 + 1);
}
static uint32_t raw_mult_of(uint64_t n) {
    return (uint32_t)(n * 11 % 1000000 + 1);
}
static uint64_t nsec_of(uint64_t n, uint32_t clock) {
    return clock == FC_RAW ? n * 23 % 1000000007 : n * 17 % 1000000007 * (clock + 1);
}
static uint64_t sec_of(uint64_t n, uint32_t clock) {
    return clock == FC_RAW ? n * 19 : n * 13 + clock;
}
static uint64_t number_of(uint64_t sec, uint32_t clock) {
    return clock == FC_RAW ? sec / 19 : (sec - clock) / 13;
}

/* The publication number `n`. Its readings at SINCE counts after its beginning are known. */
static struct fc_timekeep_values values_of(uint64_t n) {
    struct fc_timekeep_values v;
    memset(&v, 0, sizeof v);
    v.last = began_at + n * 1000003 % LAP;
    v.max_cycles = v.valid_cycles = (uint64_t)1 << 40; /* as long as a run may take */
    v.mask = UINT64_MAX;
    v.mode = FC_TIMEKEEP_MODE_COUNTER;
    v.shift = SHIFT;
    v.mult = mult_of(n);
    v.raw_mult = raw_mult_of(n);
    for (uint32_t clock = 0; clock < FC_TIMEKEEP_CLOCKS; clock++) {
        v.base[clock].sec = sec_of(n, clock);
        v.base[clock].nsec = nsec_of(n, clock);
    }
    v.raw = v.base[FC_RAW];
    v.steps = n;
    return v;
}

static void publish(uint64_t n) {
    const struct fc_timekeep_values v = values_of(n);
    fc_timekeep_page_write(&page, &v);
    fc_timekeep_page_turn(&page);
}

/* The counter that the read loop is given: SINCE after the `last` that the block holds at that
 * moment, so that a `last` from another publication than the rest shows too. */
static int counter_after_last(const void *block, uint64_t *cycles) {
    *cycles = fc_load64_((const unsigned char *)block + FC_BLOCK_LAST_) + SINCE;
    return 1;
}

static void check_reading(uint32_t clock, uint64_t sec, uint64_t ns) {
    const uint64_t n = number_of(sec, clock);
    const uint64_t mult = clock == FC_RAW ? raw_mult_of(n) : mult_of(n);
    const uint64_t wanted = (nsec_of(n, clock) + SINCE * mult) >> SHIFT;
    CHECK(ns == wanted && sec == sec_of(n, clock),
          "clock %u, publication %" PRIu64 ": %" PRIu64 " s and %" PRIu64 " instead of %" PRIu64,
          clock, n, sec, ns, wanted);
}

static void *write_at_full_speed(void *unused) {
    uint64_t n = atomic_load(&published);
    (void)unused;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        publish(++n);
        atomic_store_explicit(&published, n, memory_order_relaxed);
    }
    return NULL;
}

/* Two readers: with the writer they are one more than many a machine has processors, so that each
 * of the three is held up amid its work now and then. */
enum { READERS = 2, PARTS = 10 };
static const uint32_t looked_at[] = {FC_MONOTONIC, FC_REALTIME, FC_RAW, FC_TAI, FC_BOOTTIME};

struct reader {
    void (*read)(struct reader *, uint64_t i);
    uint64_t rounds, good, torn;
    bool tells; /* how far it is */
    pthread_t thread;
};

/* One look at any of the ring, as inlined reads do; most are at one that is about to be written. */
static void look_anywhere(struct reader *r, uint64_t i) {
    const uint32_t clock = looked_at[i % 5];
    const struct fc_timekeep_hands *hands = &page.hands[(i >> 4) % FC_TIMEKEEP_HANDS];
    const unsigned char *block =
        (const unsigned char *)(clock == FC_RAW ? &hands->raw : &hands->fine);
    uint64_t sec, ns;
    if (fc_try_fine_(block, EXTRA, clock, FC_TIMEKEEP_MODE_COUNTER, counter_after_last, block, &sec,
                     &ns) == FC_TRY_OK_) {
        check_reading(clock, sec, ns);
        r->good++;
    } else {
        r->torn++;
    }
}

/* A reading by call, which takes the machine's counter: between one before it and one after. */
static void read_by_call(struct reader *r, uint64_t i) {
    const uint32_t clock = looked_at[i % 5];
    const uint64_t before = fc_counter_ordered_();
    struct fc_reading reading;
    int32_t hands;
    if (fc_timekeep_page_read(&page, clock, true, &reading, &hands) == FC_REASON_NONE) {
        const uint64_t after = fc_counter_ordered_();
        const uint64_t n = number_of(reading.sec, clock);
        const uint64_t mult = clock == FC_RAW ? raw_mult_of(n) : mult_of(n);
        const uint64_t base = nsec_of(n, clock), last = values_of(n).last;
        CHECK(reading.sec == sec_of(n, clock) &&
                  reading.ns >= (base + (before - last) * mult) >> SHIFT &&
                  reading.ns <= (base + (after - last) * mult) >> SHIFT,
              "clock %u, publication %" PRIu64 ": %" PRIu64 " s and %" PRIu64, clock, n,
              reading.sec, reading.ns);
        r->good++;
    } else {
        r->torn++;
    }
}

static void *read_rounds(void *argument) {
    struct reader *r = argument;
    for (uint64_t i = 0; i < r->rounds; i++) {
        r->read(r, i);
        if (r->tells && (i + 1) % (r->rounds / PARTS) == 0)
            printf("    %" PRIu64 " of %" PRIu64 " million\n", (i + 1) * READERS / 1000000,
                   r->rounds * READERS / 1000000);
    }
    return NULL;
}

struct beside_writer {
    void (*read)(struct reader *, uint64_t i);
    uint64_t rounds;
    bool disturbed; /* readings fail of it */
};

static void read_beside_writer(const void *argument) {
    const struct beside_writer *wanted = argument;
    const uint64_t rounds = check_rounds(wanted->rounds);
    struct reader reader[READERS];
    uint64_t good = 0, torn = 0;
    pthread_t writer;
    memset(&page, 0, sizeof page);
    fc_timekeep_page_create(&page, 10000000);
    began_at = fc_counter_ordered_() - (uint64_t)LAP * 2;
    for (uint64_t n = 1; n <= FC_TIMEKEEP_HANDS; n++)
        publish(n);
    atomic_store(&published, FC_TIMEKEEP_HANDS);
    MUST(-pthread_create(&writer, NULL, write_at_full_speed, NULL));
    for (int i = 0; i < READERS; i++) {
        reader[i] = (struct reader){wanted->read, rounds / READERS + 1, 0, 0, i == 0, writer};
        MUST(-pthread_create(&reader[i].thread, NULL, read_rounds, &reader[i]));
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(reader[i].thread, NULL);
        good += reader[i].good;
        torn += reader[i].torn;
    }
    atomic_store(&stop, true);
    pthread_join(writer, NULL);
    printf("    %" PRIu64 " were right, %" PRIu64 " refused, beside %" PRIu64 " publications\n",
           good, torn, atomic_load(&published));
    CHECK(good > rounds / 100, "only %" PRIu64 " of %" PRIu64 " succeeded", good, rounds);
    CHECK((torn > 0 || !wanted->disturbed) && atomic_load(&published) > 1000,
          "%" PRIu64 " failed, %" PRIu64 " publications: the writer did not disturb", torn,
          atomic_load(&published));
}

/* Before each store the kernel's answer would be lifted to all that the page has told until then;
 * and then the page is read in all ways that there are, also by those who were turned to any of the
 * timehands long ago. */
static struct {
    struct fc_timekeep_discipline discipline;
    uint64_t told_ns, at, readings;
} publisher;

static void read_told(void) {
    struct fc_reading reading;
    int32_t hands;
    uint64_t ns = 0;
    if (fc_timekeep_page_read(&page, FC_MONOTONIC, true, &reading, &hands) == FC_REASON_NONE)
        ns = fc_reading_count(reading);
    for (int i = 0; i < FC_TIMEKEEP_HANDS; i++)
        if (fc_try_fine_((const unsigned char *)&page.hands[i].fine, EXTRA, FC_MONOTONIC,
                         FC_TIMEKEEP_MODE_COUNTER, fc_cpu_counter_ordered_, NULL, &reading.sec,
                         &reading.ns) == FC_TRY_OK_ &&
            fc_reading_count(reading) > ns)
            ns = fc_reading_count(reading);
    publisher.readings += ns != 0;
    if (ns > publisher.told_ns)
        publisher.told_ns = ns;
}

static void before_store(void) {
    struct fc_reading floor;
    const uint64_t store = failpoint.passed;
    if (publisher.told_ns)
        CHECK(fc_timekeep_page_floor(&page, FC_MONOTONIC, fc_counter_ordered_(), &floor) &&
                  fc_reading_count(floor) >= publisher.told_ns,
              "held up at store %" PRIu64 ", it is not known at store %" PRIu64
              " what the page has told",
              publisher.at, store);
    read_told();
    if (store == publisher.at) {
        struct fc_reading began, now;
        MUST(fc_sys_gettime(FC_MONOTONIC, &began));
        do {
            read_told();
            MUST(fc_sys_gettime(FC_MONOTONIC, &now));
        } while (fc_reading_count(now) - fc_reading_count(began) < 2 * FC_TIMEKEEP_SWITCH_NS);
    }
    failpoint.at = store + 1;
}

static uint64_t update_held_up(uint64_t at) {
    failpoint = (struct failpoint){.armed = true, .at = 1, .act = before_store};
    publisher.at = at;
    fc_timekeep_update(&publisher.discipline, &page, &fc_timekeep_machine, false);
    failpoint.armed = false;
    return failpoint.passed;
}

static void held_up(const void *argument) {
    uint64_t stores;
    (void)argument;
    memset(&page, 0, sizeof page);
    fc_timekeep_page_create(&page, FC_TIMEKEEP_INTERVAL_NS);
    fc_timekeep_discipline_init(&publisher.discipline, FC_TIMEKEEP_INTERVAL_NS);
    while (fc_timekeep_update(&publisher.discipline, &page, &fc_timekeep_machine, false) !=
           FC_TIMEKEEP_SERVES)
        continue;
    stores = update_held_up(0);
    CHECK(stores > 40, "an update has %" PRIu64 " stores", stores);
    for (uint64_t at = 1; at <= stores + 40; at++) {
        update_held_up(at);
        update_held_up(0);
    }
    CHECK(publisher.readings > stores, "only %" PRIu64 " readings", publisher.readings);
}

static void wraps(const void *argument) {
    (void)argument;
    memset(&page, 0, sizeof page);
    fc_timekeep_page_create(&page, 10000000);
    page.current = UINT32_MAX - 20;
    for (int i = 0; i < FC_TIMEKEEP_HANDS; i++)
        page.hands[i].fine.sequence = page.hands[i].raw.sequence =
            UINT32_MAX - 11 + (uint32_t)i * 2;
    for (uint64_t n = 1; n < 100; n++) {
        const struct fc_timekeep_hands *hands;
        uint64_t sec, ns;
        publish(n);
        hands = &page.hands[page.current % FC_TIMEKEEP_HANDS];
        CHECK((hands->fine.sequence & 1) == 0 && (hands->raw.sequence & 1) == 0,
              "a sequence stays odd: %#x", hands->fine.sequence);
        CHECK(fc_try_fine_((const unsigned char *)&hands->fine, EXTRA, FC_MONOTONIC,
                           FC_TIMEKEEP_MODE_COUNTER, counter_after_last, &hands->fine, &sec,
                           &ns) == FC_TRY_OK_,
              "publication %" PRIu64 " cannot be read", n);
        CHECK(sec == n * 13 + FC_MONOTONIC, "another publication is read");
    }
    CHECK(page.current < 100, "the index did not wrap: %u", page.current);
}

/* Publishes one that is valid now. */
static void publish_now(uint64_t valid_cycles) {
    struct fc_timekeep_values v = values_of(1);
    v.last = fc_counter_ordered_();
    v.max_cycles = v.valid_cycles = valid_cycles;
    fc_timekeep_page_write(&page, &v);
    fc_timekeep_page_turn(&page);
}

static int32_t read_page(uint32_t clock) {
    struct fc_reading reading;
    int32_t hands;
    return fc_timekeep_page_read(&page, clock, true, &reading, &hands);
}

static void switched(const void *argument) {
    (void)argument;
    memset(&page, 0, sizeof page);
    fc_timekeep_page_create(&page, 10000000);
    CHECK(read_page(FC_MONOTONIC) == FC_REASON_OUT_OF_SERVICE, "a page without timehands is read");
    publish_now(UINT32_MAX);
    CHECK(read_page(FC_MONOTONIC) == FC_REASON_NONE, "what was published is not read");
    fc_timekeep_page_enable(&page, false);
    CHECK(read_page(FC_MONOTONIC) == FC_REASON_SWITCHED_OFF, "it is read when switched off");
    for (int i = 0; i < FC_TIMEKEEP_HANDS; i++)
        CHECK(page.hands[i].fine.mode == FC_TIMEKEEP_MODE_OFF, "timehands %d stays on", i);
    fc_timekeep_page_enable(&page, true);
    publish_now(UINT32_MAX);
    CHECK(read_page(FC_MONOTONIC) == FC_REASON_NONE, "it is not read when switched on again");
    page.hands[page.current % FC_TIMEKEEP_HANDS].fine.mode = 0; /* the one store */
    CHECK(read_page(FC_MONOTONIC) == FC_REASON_OUT_OF_SERVICE, "one store does not switch it off");
}

static void ended(const void *argument) {
    uint64_t now;
    (void)argument;
    memset(&page, 0, sizeof page);
    fc_timekeep_page_create(&page, 10000000);
    publish_now(UINT32_MAX);
    now = fc_counter_ordered_();
    fc_timekeep_page_end(&page, now + 4000000000u);
    CHECK(read_page(FC_RAW) == FC_REASON_NONE, "an end that is to come ends it");
    fc_timekeep_page_end(&page, now);
    CHECK(read_page(FC_MONOTONIC) == FC_REASON_BUSY, "it is read after its end");
    CHECK(read_page(FC_RAW) == FC_REASON_BUSY, "raw is read after its end");
    CHECK(read_page(FC_MONOTONIC_COARSE) == FC_REASON_BUSY, "coarse is read after its end");
}

/* Whatever the bytes: a reason or a reading, and an end. */
static void hostile(const void *argument) {
    const uint64_t rounds = check_rounds(300000);
    uint32_t random = 12345;
    (void)argument;
    for (uint64_t i = 0; i < rounds; i++) {
        static const uint32_t clocks[] = {0, 1, 4, 5, 6, 7, 11};
        unsigned char *bytes = (unsigned char *)&page;
        struct fc_reading reading;
        int32_t hands;
        if (i % 64 == 0)
            for (size_t k = 0; k < 4096; k++) {
                random = random * 1664525u + 1013904223u;
                bytes[k] = (unsigned char)(random >> 24);
            }
        random = random * 1664525u + 1013904223u;
        bytes[(random >> 8) % 4096] = (unsigned char)random;
        /* Deep enough: what the reader looks at first holds most of the time. */
        page.enabled = 1;
        if (i % 2) {
            struct fc_timekeep_hands *h = &page.hands[page.current % FC_TIMEKEEP_HANDS];
            h->fine.mode = h->raw.mode = FC_TIMEKEEP_MODE_COUNTER;
            h->fine.sequence &= ~1u;
            h->raw.sequence &= ~1u;
            if (i % 4 == 1)
                h->fine.last = h->raw.last = fc_counter_ordered_() - (random >> 4);
        }
        fc_timekeep_is_page(&page, sizeof page);
        fc_timekeep_page_read(&page, clocks[i % 7], i % 3 == 0, &reading, &hands);
        CHECK(hands >= -1 && hands < FC_TIMEKEEP_HANDS, "timehands %d", hands);
        fc_timekeep_page_floor(&page, clocks[i % 7], fc_counter_relaxed_(), &reading);
    }
}

static void foreign(const void *argument) {
    (void)argument;
    memset(&page, 0, sizeof page);
    CHECK(!fc_timekeep_is_page(&page, sizeof page), "zeros are a page");
    fc_timekeep_page_create(&page, 10000000);
    CHECK(fc_timekeep_is_page(&page, sizeof page), "what was created is none");
    CHECK(!fc_timekeep_is_page(&page, sizeof page - 1), "a byte less is a page");
    page.version = FC_TIMEKEEP_VERSION + 1;
    CHECK(!fc_timekeep_is_page(&page, sizeof page), "a later version is a page");
    page.version = FC_TIMEKEEP_VERSION;
    page.magic = __builtin_bswap64(page.magic);
    CHECK(!fc_timekeep_is_page(&page, sizeof page), "the other byte order is a page");
    page.magic = FC_TIMEKEEP_MAGIC;
    page.hands_size = 0;
    CHECK(!fc_timekeep_is_page(&page, sizeof page), "timehands without a size are a page");
}

int main(int argc, char **argv) {
    static const struct beside_writer looks = {look_anywhere, 1000000000, true};
    static const struct beside_writer calls = {read_by_call, 20000000, false};
    check_begin(argc, argv);
    check_that("no look beside a writer at full speed mixes two publications", read_beside_writer,
               &looks);
    check_that("no reading by call beside a writer at full speed mixes two publications",
               read_beside_writer, &calls);
    check_that("what the page has told is known wherever the publisher is held up", held_up, NULL);
    check_that("sequences and the index wrap without a trace", wraps, NULL);
    check_that("the switch turns the page off at once and on with the next update", switched, NULL);
    check_that("a timehands that was ended is not read", ended, NULL);
    check_that("a page of another kind is refused", foreign, NULL);
    check_that("no page, whatever it holds, makes a reader crash or hang", hostile, NULL);
    return check_end();
}
