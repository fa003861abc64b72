/* SPDX-License-Identifier: MIT
 *
 * The place before each single store of a publisher, see timekeep_page.c.
 */
#ifndef FASTCLOCK_TESTS_FAILPOINT_H
#define FASTCLOCK_TESTS_FAILPOINT_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* While `armed`, stores are counted; before the store number `at`, the signal is raised, once. */
extern struct failpoint {
    bool armed;
    uint64_t passed, at;
    int signal;
    void (*act)(void); /* instead of the signal, if set */
} failpoint;

void fc_timekeep_failpoint(void);

#endif
