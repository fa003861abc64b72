/* SPDX-License-Identifier: MIT
 *
 * In place of core/cli/check_clock.c: a clock that is right but for one lie, which the environment
 * variable LIE names. `fastclock check` has to find each.
 */
#define _GNU_SOURCE
#include "check.h"

#include <fastclock.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SELDOM = 1000 };

static int lie(const char *name) {
    const char *asked = getenv("LIE");
    return asked && strcmp(asked, name) == 0;
}

/* Every now and then. */
static int now_and_then(void) {
    static _Thread_local unsigned count;
    return ++count % SELDOM == 0;
}

uint64_t check_monotonic_ns(void) {
    uint64_t ns = fc_monotonic_ns();
    if (lie("goes-back") && now_and_then())
        ns -= 1000000;
    if (lie("differs-between-processors") && sched_getcpu() == 0)
        ns += 100000;
    return ns;
}

uint64_t check_read_ns(int32_t clock) {
    uint64_t ns;
    if (lie("cannot-be-read") && clock == FC_RAW && now_and_then())
        return FC_NO_TIME;
    if (fc_read_ns(clock, &ns) < 0)
        return FC_NO_TIME;
    if (lie("is-ahead") && clock == FC_BOOTTIME && now_and_then())
        ns += 1000000;
    if (lie("is-behind") && clock == FC_REALTIME_COARSE && now_and_then())
        ns -= 100000000;
    return ns;
}
