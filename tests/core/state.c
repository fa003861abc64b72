/* SPDX-License-Identifier: MIT
 *
 * No function changes errno, but the POSIX-shaped ones that fail; and none allocates memory.
 */
#define _GNU_SOURCE
#include "clocks.h"
#include "deny.h"

enum { KEPT = 4711 };

#define KEEPS(call)                                                                                \
    do {                                                                                           \
        errno = KEPT;                                                                              \
        (void)(call);                                                                              \
        CHECK(errno == KEPT, "%s made errno %d", #call, errno);                                    \
    } while (0)

static void call_everything(void) {
    struct timespec ts;
    struct timeval tv;
    struct timezone zone;
    struct fc_info info;
    uint64_t ns[3];
    uint32_t cpu, node;
    for (int i = 0; i < CLOCK_READS; i++)
        KEEPS(clock_reads[i].read());
    for (int32_t clock = -10; clock <= 40; clock++) {
        KEEPS(fc_read_ns(clock, ns));
        KEEPS(fc_read_ns(clock, NULL));
        KEEPS(fc_fill_ns(clock, ns, 3));
        KEEPS(fc_fill_ns(clock, NULL, 3));
    }
    KEEPS(fc_ticks());
    KEEPS(fc_ticks_ordered());
    KEEPS(fc_ticks_hz());
    KEEPS(fc_ticks_to_ns(123456789));
    KEEPS(fc_getcpu(&cpu, &node));
    KEEPS(fc_getcpu(NULL, NULL));
    KEEPS(fc_init());
    KEEPS(fc_get_info(&info, sizeof info));
    KEEPS(fc_get_info(NULL, 0));
    KEEPS(fc_source_name(1));
    KEEPS(fc_source_name(99));
    KEEPS(fc_reason_text(1));
    KEEPS(fc_reason_text(99));
    KEEPS(fc_version());
    for (int i = 0; i < CLOCKS; i++)
        if (fc_clock_gettime(clocks[i], &ts) == 0) {
            KEEPS(fc_clock_gettime(clocks[i], &ts));
            KEEPS(fc_clock_getres(clocks[i], &ts));
        }
    if (fc_gettimeofday(&tv, &zone) == 0) {
        KEEPS(fc_gettimeofday(&tv, &zone));
        KEEPS(fc_time(NULL));
    }
}

static void errno_is_kept(const void *argument) {
    MUST(setenv("FASTCLOCK_SOURCE", ((const struct source *)argument)->name, 1));
    call_everything();
    for (int i = 0; i < SOURCES; i++)
        KEEPS(fc_select(sources[i].number));
    KEEPS(fc_select(FC_SOURCE_AUTO));
    KEEPS(fc_select(FC_SOURCE_TIMEKEEP));
    KEEPS(fc_select(12345));
}

/* The same where everything that start-up asks for fails. */
static void errno_is_kept_when_refused(const void *argument) {
    (void)argument;
    deny_time_calls(SECCOMP_RET_ERRNO | EPERM);
    call_everything();
    for (int i = 0; i < SOURCES; i++)
        KEEPS(fc_select(sources[i].number));
}

#if defined(__GLIBC__) && !defined(CHECK_SANITIZER)

/* The C library lets a program replace its allocator; this one counts. */
static volatile unsigned long allocations; /* the compiler takes setenv to call nothing of ours */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

void *malloc(size_t size) {
    allocations = allocations + 1;
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    allocations = allocations + 1;
    return __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) {
    allocations = allocations + 1;
    return __libc_realloc(old, size);
}

static void nothing_is_allocated(const void *argument) {
    unsigned long before;
    void *volatile proof = malloc(1);
    CHECK(proof && allocations > 0, "the allocator was not replaced");
    MUST(setenv("FASTCLOCK_SOURCE", ((const struct source *)argument)->name, 1));
    before = allocations;
    call_everything();
    for (int i = 0; i < SOURCES; i++)
        KEEPS(fc_select(sources[i].number));
    CHECK(allocations == before, "%lu allocations", allocations - before);
}

#else

static void nothing_is_allocated(const void *argument) {
    (void)argument;
    CANNOT("the allocator cannot be replaced here; the build with glibc tries this");
}

#endif

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    for (int s = 0; s < SOURCES; s++) {
        snprintf(sentence, sizeof sentence, "%s: errno is kept by every function", sources[s].name);
        check_that(sentence, errno_is_kept, &sources[s]);
        snprintf(sentence, sizeof sentence, "%s: no function allocates memory", sources[s].name);
        check_that(sentence, nothing_is_allocated, &sources[s]);
    }
    check_that("errno is kept where system calls are refused", errno_is_kept_when_refused, NULL);
    return check_end();
}
