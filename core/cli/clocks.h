/* SPDX-License-Identifier: MIT
 *
 * The clocks by name, and every way of reading one as a loop, to be measured side by side.
 */
#ifndef FASTCLOCK_CLI_CLOCKS_H
#define FASTCLOCK_CLI_CLOCKS_H

#include <stdbool.h>
#include <stdint.h>

struct cli_clock {
    const char *name;
    int32_t id; /* enum fc_clock */
};

enum { CLI_CLOCKS = 7 };
extern const struct cli_clock cli_clocks[CLI_CLOCKS];

/* NULL if there is no clock of that name. */
const struct cli_clock *cli_clock_by_name(const char *name);
const char *cli_clock_name(int32_t clock);

bool cli_clock_is_coarse(int32_t clock);

/* A way of reading the time. */
enum cli_way {
    CLI_WAY_EMPTY,           /* an empty function called in the same loop: the baseline */
    CLI_WAY_COUNTER_RELAXED, /* the bare counter */
    CLI_WAY_COUNTER_ORDERED,
    CLI_WAY_SYSCALL,
    CLI_WAY_VDSO, /* the kernel's function, called without the C library */
    CLI_WAY_LIBC,
    CLI_WAY_ORDERED, /* ours, in the source that is selected */
    CLI_WAY_RELAXED,
    CLI_WAYS
};

/* Chooses a source, and opens the vDSO even where the source does not need it. False if no source
 * serves. To be called before anything below. */
bool cli_ways_open(void);

const char *cli_way_name(enum cli_way way);

/* Whether `clock` can be read that way here; for the ways without a clock, whether they work. */
bool cli_way_works(enum cli_way way, int32_t clock);

/* Whether this process may read the counter. Where not, the C library may not be called for a clock
 * that needs it: it would be killed. */
bool cli_counter_may_be_read(void);

/* Reads `clock` that way `reads` times and throws the readings away. */
void cli_read(enum cli_way way, int32_t clock, uint64_t reads);

/* Reads once: false, with a negative errno in *ns, where it does not work. For the ways that give
 * nanoseconds. */
bool cli_read_once(enum cli_way way, int32_t clock, uint64_t *ns);

#endif
