/* SPDX-License-Identifier: MIT
 *
 * The source `timekeep`: our own page, for hosts whose kernel page cannot serve.
 *
 * Three parts, each usable by itself. The page: how one is checked, read and written
 * (timekeep_page.c). The discipline: how the kernel's clocks are followed from samples
 * (timekeep_discipline.c). The source: which page this process reads, the host's or one of its own
 * that its reads keep up to date (timekeep.c). docs/timekeep.md explains all three in prose.
 *
 * Never waits for a writer without bound, never allocates on a read, takes no lock that a signal, a
 * fork or a killed process could leave behind.
 */
#ifndef FASTCLOCK_CORE_TIMEKEEP_H
#define FASTCLOCK_CORE_TIMEKEEP_H

#include <fastclock/timekeep.h>

#include <stdatomic.h>

#include "prove.h"

#pragma GCC visibility push(hidden)

/* ---- The page ---------------------------------------------------------------------------------
 */

enum {
    FC_TIMEKEEP_INTERVAL_NS = 10000000, /* between two updates, unless told otherwise */
    FC_TIMEKEEP_BOUND = 1000,           /* the page may be off by the interval divided by this */
    FC_TIMEKEEP_SWITCH_NS = 20000,      /* from announcing a switch of timehands to the switch:
                                           longer than any processor holds an instruction back */
    FC_TIMEKEEP_HOLD_NS = 1000000000 /* how long a clock stands still at most rather than go back:
                                        what was told and is further ahead than this is wrong, or
                                        another time namespace's */
};

/* Whether the `size` bytes at `page` are a page that this version can read. Looks at what is fixed
 * only; a page that changes afterwards can make readings wrong, but nothing else. */
bool fc_timekeep_is_page(const struct fc_timekeep *page, uint64_t size);

/* Reads one clock from a page. `*hands` becomes the index of the timehands in force if inlined
 * reads may be turned to it, else -1. Returns FC_REASON_NONE; FC_REASON_SWITCHED_OFF;
 * FC_REASON_OUT_OF_SERVICE, also where the skew of this processor is not known; FC_REASON_BUSY
 * where what it holds is no longer valid or was being written at every look, of which there are a
 * bounded number. */
int32_t fc_timekeep_page_read(const struct fc_timekeep *page, uint32_t clock, bool ordered,
                              struct fc_reading *out, int32_t *hands);

/* The latest that a reader can have been told by this page, until the counter showed `count`, about
 * a clock that never goes back; what answers instead of the page must not be earlier. False if the
 * page holds nothing to go by. */
bool fc_timekeep_page_floor(const struct fc_timekeep *page, uint32_t clock, uint64_t count,
                            struct fc_reading *out);

/* The counter now, on the page's scale: less the skew of its processor where the page has skews.
 * False where that skew is not known: then *count is the counter as it is. */
bool fc_timekeep_page_count(const struct fc_timekeep *page, uint64_t *count);

/* What a publication of one timehands says. */
struct fc_timekeep_values {
    uint64_t last, max_cycles, valid_cycles, valid_ns, mask;
    uint32_t mode, shift, mult, raw_mult;
    struct fc_timekeep_base base[FC_TIMEKEEP_CLOCKS], raw;
    uint64_t steps;
    int64_t error_ns;
};

/* Makes the FC_TIMEKEEP_SIZE zeroed bytes at `page` a page without timehands, switched on. */
void fc_timekeep_page_create(struct fc_timekeep *page, uint64_t interval_ns);

/* Writes the timehands after the current one; no reader looks there before fc_timekeep_page_turn.
 */
void fc_timekeep_page_write(struct fc_timekeep *page, const struct fc_timekeep_values *values);

/* Makes what was written last the current timehands. */
void fc_timekeep_page_turn(struct fc_timekeep *page);

/* Turns to what was written last if a publisher that was killed or late did not: its place is not
 * the next to be written, while somebody may have to know what it has told. */
void fc_timekeep_page_keep(struct fc_timekeep *page);

/* Lets every timehands that readers may be using end at the count `end`, unless it ends earlier. As
 * long as it is not known whether they saw it in time, they are taken to have gone on. */
void fc_timekeep_page_end(struct fc_timekeep *page, uint64_t end);

/* Notes that no reader has gone beyond the count `end`. */
void fc_timekeep_page_settle(struct fc_timekeep *page, uint64_t end);

/* Takes every timehands from its readers, before a full barrier: whoever has a reading has taken
 * the counter before. */
void fc_timekeep_page_close(struct fc_timekeep *page);

/* Turns the counter off or on for every attached reader, at once; the timehands stay. */
void fc_timekeep_page_mode(struct fc_timekeep *page, uint32_t mode);

/* Replaces the table of skews by `cpus` of them, at most FC_TIMEKEEP_CPUS; 0: none, the counters
 * agree. Turns the counter off. Timehands that were in force have to be ended before, and the
 * skews' reference stays the same, since the counts until which they have told are compared with
 * new ones.
 */
void fc_timekeep_page_skew(struct fc_timekeep *page, const int64_t *skew, uint32_t cpus);

/* The switch, for the publisher; others store into `wanted`. Off takes effect at once; after on,
 * the next update brings the readers back. */
void fc_timekeep_page_enable(struct fc_timekeep *page, bool enabled);

/* Turns the counter off for every attached reader and ends every timehands, a moment from now: what
 * a publisher does that stops, and one that takes over a page. */
void fc_timekeep_page_stop(struct fc_timekeep *page);

/* Stores into the publisher's own fields. */
void fc_timekeep_page_note(uint64_t *field, uint64_t value);
void fc_timekeep_page_note32(uint32_t *field, uint32_t value);

/* Copies what fc_get_info says about a page. */
struct fc_info;
void fc_timekeep_page_tell(const struct fc_timekeep *page, struct fc_info *info);

/* ---- The discipline ---------------------------------------------------------------------------
 */

/* Where counts and the kernel's clocks come from: the processor and the raw system call, or a test.
 */
struct fc_timekeep_ports {
    uint64_t (*counter)(void *context);
    int32_t (*gettime)(void *context, int32_t clock, struct fc_reading *out);
    void *context;
};

/* The machine's own. Its context is NULL, or the page that the counts are for, whose skews are then
 * taken off. */
extern const struct fc_timekeep_ports fc_timekeep_machine;

/* One clock as a straight line: at count `last` it is sec seconds and base / 2^shift nanoseconds,
 * and grows by mult / 2^shift nanoseconds a count. */
struct fc_timekeep_line {
    uint64_t last, sec, base;
    uint32_t mult;
    double rate;         /* nanoseconds a count that the kernel's clock was found to make */
    uint64_t seen_count; /* the last sample */
    uint64_t seen_ns;
    double seen_half_width_ns;
    uint64_t past_count[16], past_ns[16]; /* samples since the rate last changed, a ring */
    uint32_t past;                        /* how many there were */
    uint64_t narrowest;                   /* counts that a good bracket takes */
    double error_ns;                      /* kernel less line at the last sample */
};

/* The distance of two clocks of which one follows the other: an interval that holds it, and the
 * value in use. */
struct fc_timekeep_distance {
    bool known;
    int64_t low_ns, high_ns, value_ns;
};

struct fc_timekeep_discipline {
    uint64_t interval_ns;  /* as asked for: the longest time between two updates */
    uint64_t next_ns;      /* how long after this update the next one is due */
    uint64_t valid_cycles; /* for how many counts the timehands in force was published */
    uint32_t shift;
    bool proved;         /* the counter and the kernel's clock have agreed often enough */
    bool enabled;        /* the switch, at the last update */
    bool begun;          /* the lines have a beginning */
    uint32_t agreed;     /* successive samples that gave one rate */
    uint32_t bad;        /* successive samples that were dropped */
    uint32_t turn;       /* which of the rarer clocks is looked at next */
    uint64_t last_count; /* the highest count seen */
    struct fc_timekeep_line monotonic, raw;
    struct fc_timekeep_distance realtime, boottime, tai; /* from FC_MONOTONIC */
    uint64_t steps, dropped, outages;
    double worst_error_ns;
    const char *outage; /* why the page was last taken out of service, for a person */
};

/* What an update came to. */
enum fc_timekeep_end {
    FC_TIMEKEEP_SERVES, /* a new timehands is published */
    FC_TIMEKEEP_PROVES, /* samples are taken, but not enough of them yet */
    FC_TIMEKEEP_FAILS   /* the system call was refused */
};

/* Begins anew, with what is known of the rate forgotten. */
void fc_timekeep_discipline_init(struct fc_timekeep_discipline *d, uint64_t interval_ns);

/* Samples the clocks once and publishes what follows from it into `page`; takes the page out of
 * service if the sample says so. by_readers: inlined reads come back to the library when the next
 * update is due, to make it; else they go on for as long as the timehands is valid. Two updates of
 * one page must not overlap. Makes between 6 and 30 system calls. */
enum fc_timekeep_end fc_timekeep_update(struct fc_timekeep_discipline *d, struct fc_timekeep *page,
                                        const struct fc_timekeep_ports *ports, bool by_readers);

/* Takes the page out of service until it is proved anew; `why` is a constant sentence. */
void fc_timekeep_outage(struct fc_timekeep_discipline *d, struct fc_timekeep *page,
                        const struct fc_timekeep_ports *ports, const char *why);

/* ---- The source -------------------------------------------------------------------------------
 */

/* Bracketed readings that a page has passed before it is used. */
enum { FC_TIMEKEEP_ROUNDS = 16, FC_TIMEKEEP_PROOF_ROUNDS = FC_TIMEKEEP_ROUNDS * FC_FINE_COUNT };

enum fc_timekeep_kind {
    FC_TIMEKEEP_NONE = 0,
    FC_TIMEKEEP_OWN = 1, /* published in this process, by its reads */
    FC_TIMEKEEP_HOST = 2 /* published for the host */
};

/* Where the host's page is. */
#define FC_TIMEKEEP_DIRECTORY "/run/fastclock"
#define FC_TIMEKEEP_NAME "timekeep"

/* Attaches to the host's page if it is there, owned rightly, alive and of this time namespace, else
 * begins one in the process, which takes some milliseconds. The page is proved. Returns
 * FC_REASON_NONE or why neither can be. */
int32_t fc_timekeep_open(void);

/* Reads one clock of enum fc_clock from the page in use. Returns FC_REASON_NONE or why not. */
int32_t fc_timekeep_read(uint32_t clock, bool ordered, struct fc_reading *out);

/* Lifts an answer that another source gave to where the page's readers have been already. */
void fc_timekeep_lift(uint32_t clock, struct fc_reading *out);

/* Leaves the host's page for one of this process's own, which further reads bring up: the process
 * has changed its time namespace. Does nothing if a page of its own is in use. */
void fc_timekeep_leave_host(void);

/* The timehands that inlined reads may be turned to; NULL if there is none. */
const struct fc_timekeep_hands *fc_timekeep_shown(void);

/* The page in use and its kind, for fc_get_info; NULL without one. */
const struct fc_timekeep *fc_timekeep_page(enum fc_timekeep_kind *kind);

/* Maps the page `name` in `directory` for reading. It has to be a regular file of the right size,
 * owned by root, writable by nobody else, in a directory of which the same holds; links are not
 * followed. NULL and FC_REASON_NO_PAGE or the like in *reason. */
const struct fc_timekeep *fc_timekeep_map(const char *directory, const char *name, int32_t *reason);

/* The time namespace of this process, as struct fc_timekeep holds the publisher's. */
void fc_timekeep_namespace(uint64_t *device, uint64_t *inode);

#pragma GCC visibility pop

#endif
