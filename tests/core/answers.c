/* SPDX-License-Identifier: MIT
 *
 * Every question gets the kernel's answer: value or error, for clocks that exist and for numbers
 * that are none, by number and by the POSIX-shaped calls.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <sys/time.h>

#include "clocks.h"

/* -1 to 20 are all the small ones; beyond them numbers that would be ours if a bit were lost, and
 * those that stand for a process, a thread or a descriptor. */
static const int32_t numbers[] = {-1,      0,  1,  2,  3,  4,  5,  6,   7,          8,
                                  9,       10, 11, 12, 13, 14, 15, 16,  17,         18,
                                  19,      20, 32, 33, 36, 39, 43, 64,  0x10000001, INT_MAX,
                                  INT_MIN, -2, -3, -5, -6, -7, -8, 256, 257,        260};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static long raw_getres(int32_t clock, int64_t *sec, int64_t *nsec) {
#ifdef SYS_clock_getres_time64
    struct {
        int64_t sec, nsec;
    } r;
    const long result = syscall(SYS_clock_getres_time64, clock, sec ? &r : NULL);
#else
    struct {
        long sec, nsec;
    } r;
    const long result = syscall(SYS_clock_getres, clock, sec ? &r : NULL);
#endif
    if (result == 0 && sec) {
        *sec = r.sec;
        *nsec = r.nsec;
    }
    return result == 0 ? 0 : -errno;
}

static void read_ns_answers_as_the_kernel(const void *argument) {
    use_source(argument);
    for (int i = 0; i < NUMBERS; i++) {
        const int32_t clock = numbers[i];
        uint64_t before = 0, after = 0, ours = 42;
        const int32_t expected = bracket_syscall_ns(clock, &before);
        const int32_t error = fc_read_ns(clock, &ours);
        CHECK(error == expected, "clock %d: %d, but the kernel says %d", (int)clock, (int)error,
              (int)expected);
        if (expected != 0) {
            CHECK(ours == 42, "clock %d: the result was written on error", (int)clock);
            continue;
        }
        CHECK(bracket_syscall_ns(clock, &after) == 0, "clock %d", (int)clock);
        CHECK(before <= ours && ours <= after, "clock %d: %" PRIu64 ", not %" PRIu64 " to %" PRIu64,
              (int)clock, ours, before, after);
    }
}

static void gettime_answers_as_the_kernel(const void *argument) {
    use_source(argument);
    for (int i = 0; i < NUMBERS; i++) {
        const int32_t clock = numbers[i];
        uint64_t before = 0, after = 0, ours;
        struct timespec ts = {42, 42};
        const int32_t expected = bracket_syscall_ns(clock, &before);
        int result;
        errno = 0;
        result = fc_clock_gettime(clock, &ts);
        CHECK(result == (expected ? -1 : 0) && errno == -expected,
              "clock %d: %d, errno %d, but the kernel says %d", (int)clock, result, errno,
              (int)expected);
        if (expected != 0) {
            CHECK(ts.tv_sec == 42 && ts.tv_nsec == 42, "clock %d: written on error", (int)clock);
            continue;
        }
        CHECK(ts.tv_nsec >= 0 && ts.tv_nsec < 1000000000, "clock %d: %ld ns", (int)clock,
              (long)ts.tv_nsec);
        CHECK(bracket_syscall_ns(clock, &after) == 0, "clock %d", (int)clock);
        ours = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
        CHECK(before <= ours && ours <= after, "clock %d: %" PRIu64 ", not %" PRIu64 " to %" PRIu64,
              (int)clock, ours, before, after);
    }
}

static void gettime_of_null_is_the_kernels_error(const void *argument) {
    use_source(argument);
    for (int i = 0; i < NUMBERS; i++) {
        const int32_t clock = numbers[i];
        const int expected = syscall(SYS_clock_gettime, clock, NULL) == 0 ? 0 : errno;
        CHECK(fc_clock_gettime(clock, NULL) == -1 && errno == expected,
              "clock %d: errno %d, but the kernel says %d", (int)clock, errno, expected);
        CHECK(fc_read_ns(clock, NULL) == -EFAULT, "clock %d", (int)clock);
    }
}

static void getres_answers_as_the_kernel(const void *argument) {
    use_source(argument);
    for (int i = 0; i < NUMBERS; i++) {
        const int32_t clock = numbers[i];
        int64_t sec = 0, nsec = 0;
        struct timespec ts = {42, 42};
        const long expected = raw_getres(clock, &sec, &nsec);
        errno = 0;
        CHECK(fc_clock_getres(clock, &ts) == (expected ? -1 : 0) && errno == -expected,
              "clock %d: errno %d, but the kernel says %ld", (int)clock, errno, expected);
        if (expected)
            CHECK(ts.tv_sec == 42 && ts.tv_nsec == 42, "clock %d: written on error", (int)clock);
        else
            CHECK(ts.tv_sec == sec && ts.tv_nsec == nsec,
                  "clock %d: %lld s %ld ns, but the kernel says %" PRId64 " s %" PRId64 " ns",
                  (int)clock, (long long)ts.tv_sec, (long)ts.tv_nsec, sec, nsec);
        errno = 0;
        CHECK(fc_clock_getres(clock, NULL) == (raw_getres(clock, NULL, NULL) ? -1 : 0),
              "clock %d with NULL: errno %d", (int)clock, errno);
    }
}

static int32_t by_gettimeofday(int32_t clock, uint64_t *ns) {
    struct timeval tv;
    (void)clock;
    if (fc_gettimeofday(&tv, NULL) != 0)
        return -errno;
    if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
        return -ERANGE;
    *ns = (uint64_t)tv.tv_sec * 1000000000u + (uint64_t)tv.tv_usec * 1000u;
    return 0;
}

/* A microsecond is cut off, never rounded up. */
static void gettimeofday_lies_in_brackets(const void *argument) {
    const struct bracket_setup setup = {
        .clock = FC_REALTIME, .read_number = by_gettimeofday, .early_ns = 999};
    use_source(argument);
    must_lie_in_brackets("fc_gettimeofday", &setup, check_rounds(100000));
}

static void gettimeofday_fills_the_zone(const void *argument) {
    struct timezone expected = {1, 1}, zone = {2, 2};
    struct timeval tv = {0, 0};
    use_source(argument);
    MUST(syscall(SYS_gettimeofday, NULL, &expected));
    CHECK(fc_gettimeofday(&tv, &zone) == 0, "errno %d", errno);
    CHECK(zone.tz_minuteswest == expected.tz_minuteswest && zone.tz_dsttime == expected.tz_dsttime,
          "%d %d", zone.tz_minuteswest, zone.tz_dsttime);
    CHECK(tv.tv_sec != 0, "the time was left out");
    CHECK(fc_gettimeofday(NULL, &zone) == 0, "errno %d", errno);
    CHECK(fc_gettimeofday(NULL, NULL) == 0, "errno %d", errno);
}

static void time_is_the_second_of_the_coarse_clock(const void *argument) {
    use_source(argument);
    for (uint64_t i = 0; i < check_rounds(100000); i++) {
        uint64_t before = 0, after = 0;
        time_t ours, out = 42;
        CHECK(bracket_syscall_ns(FC_REALTIME_COARSE, &before) == 0, "the system call was refused");
        ours = fc_time(&out);
        CHECK(bracket_syscall_ns(FC_REALTIME_COARSE, &after) == 0, "the system call was refused");
        CHECK(ours == out, "%lld and %lld", (long long)ours, (long long)out);
        CHECK(before / 1000000000u <= (uint64_t)ours && (uint64_t)ours <= after / 1000000000u,
              "%lld s is not between %" PRIu64 " and %" PRIu64 " ns", (long long)ours, before,
              after);
    }
    CHECK(fc_time(NULL) > 1700000000, "fc_time(NULL)");
}

/* ---- fc_get_info and the texts ----------------------------------------------------------------
 */

static void info_is_filled_as_far_as_asked(const void *argument) {
    enum { ROOM = sizeof(struct fc_info) + 64 };
    const struct fc_info whole = info_now();
    (void)argument;
    CHECK(whole.size == sizeof whole, "size is %u", (unsigned)whole.size);
    for (uint32_t size = 0; size <= ROOM; size++) {
        union {
            struct fc_info info;
            unsigned char bytes[ROOM];
        } room;
        const uint32_t filled = size < sizeof whole ? size : (uint32_t)sizeof whole;
        memset(&room, 0xa5, sizeof room);
        CHECK(fc_get_info(&room.info, size) == 0, "size %u", (unsigned)size);
        for (uint32_t i = filled; i < ROOM; i++)
            CHECK(room.bytes[i] == 0xa5, "size %u: byte %u was written", (unsigned)size,
                  (unsigned)i);
        if (size >= 4)
            CHECK(room.info.size == filled, "size %u: it says %u", (unsigned)size,
                  (unsigned)room.info.size);
        if (size >= 8)
            CHECK(room.info.source == whole.source, "size %u: source %d", (unsigned)size,
                  (int)room.info.source);
    }
    CHECK(fc_get_info(NULL, sizeof whole) == -EFAULT, "NULL");
    CHECK(fc_get_info(NULL, 0) == -EFAULT, "NULL of size 0");
}

static void info_tells_what_the_kernel_tells(const void *argument) {
    int64_t sec = 0, nsec = 0;
    struct fc_info info;
    use_source(argument);
    info = info_now();
    CHECK(raw_getres(FC_MONOTONIC, &sec, &nsec) == 0, "the system call was refused");
    CHECK(info.resolution_ns == (uint64_t)nsec, "%" PRIu64, info.resolution_ns);
    CHECK(raw_getres(FC_MONOTONIC_COARSE, &sec, &nsec) == 0, "the system call was refused");
    CHECK(info.coarse_resolution_ns == (uint64_t)nsec, "%" PRIu64, info.coarse_resolution_ns);
    {
        uint64_t realtime = 0, tai = 0;
        int64_t offset_s;
        CHECK(bracket_syscall_ns(FC_REALTIME, &realtime) == 0, "the system call was refused");
        CHECK(bracket_syscall_ns(FC_TAI, &tai) == 0, "the system call was refused");
        offset_s = (int64_t)(tai - realtime + 500000000u) / 1000000000;
        CHECK(info.tai_offset_s == offset_s, "%d, not %" PRId64, (int)info.tai_offset_s, offset_s);
    }
}

static void texts_are_there_for_every_number(const void *argument) {
    (void)argument;
    for (int32_t i = -100; i < 1000; i++) {
        CHECK(fc_source_name(i) && *fc_source_name(i), "source %d", (int)i);
        CHECK(fc_reason_text(i) && *fc_reason_text(i), "reason %d", (int)i);
        if (i < FC_SOURCE_AUTO || i > FC_SOURCE_LIBC)
            CHECK(strcmp(fc_source_name(i), "unknown") == 0, "source %d is %s", (int)i,
                  fc_source_name(i));
    }
    for (int32_t i = FC_REASON_NONE; i <= FC_REASON_OUT_OF_SERVICE; i++)
        CHECK(strcmp(fc_reason_text(i), fc_reason_text(-1)) != 0, "reason %d has no text", (int)i);
    for (int i = 0; i < SOURCES; i++)
        if (sources[i].number != FC_SOURCE_LIBC)
            CHECK(strcmp(fc_source_name(sources[i].number), sources[i].name) == 0, "%s",
                  sources[i].name);
}

static void version_is_the_headers(const void *argument) {
    char expected[64];
    (void)argument;
    snprintf(expected, sizeof expected, "%d.%d.%d", FASTCLOCK_VERSION_MAJOR,
             FASTCLOCK_VERSION_MINOR, FASTCLOCK_VERSION_PATCH);
    CHECK(strcmp(fc_version(), expected) == 0, "%s, not %s", fc_version(), expected);
}

/* ---- fc_fill_ns -------------------------------------------------------------------------------
 */

static void fill_is_a_run_of_readings(const void *argument) {
    enum { COUNT = 1000 };
    static uint64_t out[COUNT + 1];
    use_source(argument);
    for (int i = 0; i < CLOCKS; i++) {
        uint64_t before = 0, after = 0;
        memset(out, 0, sizeof out);
        out[COUNT] = 42;
        CHECK(bracket_syscall_ns(clocks[i], &before) == 0, "the system call was refused");
        CHECK(fc_fill_ns(clocks[i], out, COUNT) == 0, "clock %d", (int)clocks[i]);
        CHECK(bracket_syscall_ns(clocks[i], &after) == 0, "the system call was refused");
        CHECK(before <= out[0] && out[COUNT - 1] <= after, "clock %d", (int)clocks[i]);
        for (int k = 1; k < COUNT; k++)
            CHECK(out[k - 1] <= out[k], "clock %d: element %d goes back", (int)clocks[i], k);
        CHECK(out[COUNT] == 42, "one element too many was written");
    }
}

static void fill_says_what_is_wrong(const void *argument) {
    uint64_t out[2] = {42, 43};
    (void)argument;
    CHECK(fc_fill_ns(FC_MONOTONIC, NULL, 0) == 0, "nothing into NULL");
    CHECK(fc_fill_ns(FC_MONOTONIC, NULL, 1) == -EFAULT, "one into NULL");
    CHECK(fc_fill_ns(15, out, 2) == -EINVAL, "no such clock");
    CHECK(fc_fill_ns(FC_MONOTONIC, out, 0) == 0, "none");
    CHECK(out[0] == 42 && out[1] == 43, "written on error");
}

int main(int argc, char **argv) {
    static const struct {
        const char *sentence;
        void (*claim)(const void *);
    } claims[] = {
        {"fc_read_ns answers every number as the kernel does", read_ns_answers_as_the_kernel},
        {"fc_clock_gettime answers every number as the kernel does", gettime_answers_as_the_kernel},
        {"fc_clock_gettime of NULL is the kernel's error", gettime_of_null_is_the_kernels_error},
        {"fc_clock_getres answers every number as the kernel does", getres_answers_as_the_kernel},
        {"fc_gettimeofday is the realtime clock cut to microseconds",
         gettimeofday_lies_in_brackets},
        {"fc_gettimeofday fills in the kernel's time zone", gettimeofday_fills_the_zone},
        {"fc_time is the second of the coarse clock", time_is_the_second_of_the_coarse_clock},
        {"fc_get_info has the kernel's resolutions and TAI offset",
         info_tells_what_the_kernel_tells},
        {"fc_fill_ns writes a run of readings that never go back", fill_is_a_run_of_readings},
    };
    char sentence[128];
    check_begin(argc, argv);
    for (int s = 0; s < SOURCES; s++)
        for (unsigned i = 0; i < sizeof claims / sizeof *claims; i++) {
            snprintf(sentence, sizeof sentence, "%s: %s", sources[s].name, claims[i].sentence);
            check_that(sentence, claims[i].claim, &sources[s]);
        }
    check_that("fc_get_info fills as many bytes as it is given, and says how many",
               info_is_filled_as_far_as_asked, NULL);
    check_that("every source and reason has a text, and every other number one that says so",
               texts_are_there_for_every_number, NULL);
    check_that("fc_version is the header's version", version_is_the_headers, NULL);
    check_that("fc_fill_ns says what is wrong, and writes nothing then", fill_says_what_is_wrong,
               NULL);
    return check_end();
}
