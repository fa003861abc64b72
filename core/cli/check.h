/* SPDX-License-Identifier: MIT
 *
 * The reads that `fastclock check` checks. They are a file of their own, check_clock.c, so that the
 * tests can put a clock that lies in its place.
 */
#ifndef FASTCLOCK_CLI_CHECK_H
#define FASTCLOCK_CLI_CHECK_H

#include <stdint.h>

/* The ordered read of FC_MONOTONIC, in nanoseconds. */
uint64_t check_monotonic_ns(void);

/* The read of any clock of enum fc_clock; FC_NO_TIME if it cannot be read. */
uint64_t check_read_ns(int32_t clock);

#endif
