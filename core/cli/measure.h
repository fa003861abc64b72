/* SPDX-License-Identifier: MIT
 *
 * What a read costs. All that is to be compared is measured by turns, in short rounds whose order
 * changes, so that whatever disturbs the machine meets all of it alike; the minimum over the rounds
 * is what the read costs, the median what it cost while others had their part of the machine.
 */
#ifndef FASTCLOCK_CLI_MEASURE_H
#define FASTCLOCK_CLI_MEASURE_H

#include "clocks.h"

enum { MEASURE_ANY_SOURCE = -2, MEASURE_MAX = 128 };

struct measured {
    enum cli_way way;
    int32_t clock;
    int32_t
        source; /* selected with fc_select before each round; MEASURE_ANY_SOURCE: as it stands */
    /* Results, in nanoseconds for each read; `works` false: nothing was measured. */
    bool works;
    double min_ns, median_ns;
};

/* Measures `count` entries, MEASURE_MAX at most, over about `rounds` rounds; `what` is shown as
 * progress where it takes long. Afterwards the source is what it was. False, after an error,
 * without memory. */
bool measure(struct measured *entries, uint32_t count, uint32_t rounds, const char *what);

#endif
