/* SPDX-License-Identifier: MIT
 *
 * A machine whose counter is a skewed one: the core that the tests are linked with adds to each
 * count what fc_skew_injected says of the processor that it came from, which RDTSCP tells. And the
 * processors between which a test is moved.
 */
#ifndef FASTCLOCK_TESTS_SKEWED_H
#define FASTCLOCK_TESTS_SKEWED_H

#include <sched.h>

#include "../core/check.h"
#include "processor.h"
#include "skew.h"

#ifdef FC_HAVE_PROCESSOR_REGISTER

static int cpus[CPU_SETSIZE], cpu_count;

/* Those that this process may use; two at least. */
static inline void find_cpus(void) {
    cpu_set_t set;
    MUST(sched_getaffinity(0, sizeof set, &set));
    cpu_count = 0;
    for (int i = 0; i < FC_TIMEKEEP_CPUS; i++)
        if (CPU_ISSET((size_t)i, &set))
            cpus[cpu_count++] = i;
    if (cpu_count < 2)
        CANNOT("one processor alone");
    if (!fc_rdtscp_works())
        CANNOT("no RDTSCP, which the counter is made a skewed one with");
}

static inline int move(pid_t thread, unsigned turn) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpus[turn % (unsigned)cpu_count], &set);
    return sched_setaffinity(thread, sizeof set, &set);
}

#define SKEWED_MAIN(claim, claims)                                                                 \
    int main(int argc, char **argv) {                                                              \
        check_begin(argc, argv);                                                                   \
        claims();                                                                                  \
        return check_end();                                                                        \
    }

#else

static inline void no_register(const void *argument) {
    (void)argument;
    CANNOT("no counter here tells its processor");
}

#define SKEWED_MAIN(claim, claims)                                                                 \
    int main(int argc, char **argv) {                                                              \
        check_begin(argc, argv);                                                                   \
        check_that(claim, no_register, NULL);                                                      \
        return check_end();                                                                        \
    }

#endif

#endif
