/* SPDX-License-Identifier: MIT
 *
 * How far the counters of the processors differ, measured: what the table of skews in a timekeep
 * page is made from. The publisher's side; not part of the library.
 *
 * Keeps the calling thread on one processor, the reference, from the first measurement on; makes a
 * thread on another one for each, and spins on both for a bounded time.
 */
#ifndef FASTCLOCK_CORE_TIMEKEEP_PROCESSORS_H
#define FASTCLOCK_CORE_TIMEKEEP_PROCESSORS_H

#include <fastclock/timekeep.h>
#include <stdbool.h>

#pragma GCC visibility push(hidden)

enum { FC_TIMEKEEP_PROCESSORS = 1024 }; /* numbers that are known; as many as a cpu_set_t has */

/* What is known of one processor's counter: how far it is ahead of the reference's, as bounds. */
struct fc_timekeep_processor {
    int64_t low, high;
    int64_t skew; /* what the page's table was given */
    bool online, measured;
};

struct fc_timekeep_processors {
    uint32_t reference; /* the processor that the others are compared with */
    uint32_t turn;      /* the one that was looked at last */
    bool differ;        /* some counter differs visibly, or could not be measured */
    bool stale;         /* all have to be measured anew */
    bool beyond;        /* there are processors whose numbers are too large */
    struct fc_timekeep_processor of[FC_TIMEKEEP_PROCESSORS];
};

/* Measures every processor anew, in comparison with the same one as before. Some milliseconds for
 * each, on a machine whose processors are busy some seconds. */
void fc_timekeep_processors_measure(struct fc_timekeep_processors *processors);

/* Before the first measuring: takes the reference over from the table of a page, if it has one. */
void fc_timekeep_processors_adopt(struct fc_timekeep_processors *processors,
                                  const struct fc_timekeep *page);

/* Looks at one processor more, in turn, and for such as were switched on or off. Returns NULL, or
 * why the page cannot go on with its table, a constant sentence. */
const char *fc_timekeep_processors_watch(struct fc_timekeep_processors *processors);

/* Gives the page, which has to be out of service, the table that was measured: none if the counters
 * agree. */
void fc_timekeep_processors_write(struct fc_timekeep_processors *processors,
                                  struct fc_timekeep *page);

#pragma GCC visibility pop

#endif
