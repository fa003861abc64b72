/* SPDX-License-Identifier: MIT
 *
 * A user's program, built against the installed copy in every way that users build: C and C++, with
 * and without inlined reads, position-independent or not. Exits with 0 if the clock is right and,
 * where reads are inlined, if what they look at is alive: the page and not the dead block.
 */
#include <fastclock.h>

#include <stdio.h>
#include <time.h>

static uint64_t libc_ns(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

int main(void) {
    struct fc_info info;
    struct timespec ts;
    int i;
    if (fc_init() != 0 || fc_get_info(&info, sizeof info) != 0)
        return 2;
    printf("fastclock %s: %s\n", fc_version(), fc_source_name(info.source));
    for (i = 0; i < 100000; i++) {
        const uint64_t before = libc_ns(), ours = fc_monotonic_ns(), after = libc_ns();
        if (ours < before || ours > after) {
            fprintf(stderr, "%llu is not between %llu and %llu\n", (unsigned long long)ours,
                    (unsigned long long)before, (unsigned long long)after);
            return 3;
        }
    }
    if (vtime64() == FC_NO_TIME || fc_clock_gettime(FC_REALTIME, &ts) != 0)
        return 4;
#ifdef FASTCLOCK_INLINE
    /* fc_get_info tries the page, and shows it to inlined reads again if its mode went and came
     * back just now. Where the clocksource is not the counter they rightly stand back. */
    if (fc_get_info(&info, sizeof info) != 0 || info.source != FC_SOURCE_KERNEL_PAGE)
        return 6;
    if (info.mode != (int32_t)FC_MODE_COUNTER_) {
        printf("the clocksource is not the counter: mode %d\n", (int)info.mode);
        return 0;
    }
    /* The sequence of a dead block is odd for ever; that of the page is even almost always. */
    for (i = 0; i < 1000; i++)
        if (!(*(const volatile uint32_t *)(const volatile void *)fc_view_v1.fine & 1))
            return 0;
    fprintf(stderr, "the inlined reads are not on the page\n");
    return 5;
#else
    return 0;
#endif
}
