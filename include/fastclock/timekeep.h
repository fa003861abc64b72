/* SPDX-License-Identifier: MIT
 *
 * The timekeep page: the binary format, version 1.
 *
 * A page of time-keeping data that fastclock publishes where the kernel's own cannot serve, in the
 * process or for the whole host (`fastclock publish`, /run/fastclock/timekeep). Declarations alone,
 * as in abi.h, for programs that want to look at a page; reading the time needs none of this.
 *
 * Every field has the same offset and size for 32-bit and 64-bit programs, in the machine's own
 * byte order. Counts are of the CPU's counter. One publisher writes; readers map read-only.
 *
 * A block is shaped like those in the kernel's page (Linux 6.10 and later), so that one read loop
 * serves both:
 *
 *     time = base.sec * 10^9 + (((count - last) * mult + base.nsec) >> shift)
 *
 * if the sequence was even and the same before and after, the mode was 1, and count - last was at
 * most max_cycles. The four timehands are a ring: each holds from its `last` to the `last` of the
 * next one, which begins where the former ends. docs/timekeep.md tells how a publisher goes from
 * one to the next, and why a reader never waits for it.
 *
 * In mode 2 `count` is the counter less the skew of the processor that it was read on. The skews
 * are changed while the modes of all blocks are 0: a reader that finds mode and sequence of a block
 * the same before it has taken count and skew, and afterwards, has used skews that belong to the
 * block.
 */
#ifndef FASTCLOCK_TIMEKEEP_H
#define FASTCLOCK_TIMEKEEP_H

#include <stdint.h>

enum {
    FC_TIMEKEEP_VERSION = 1,
    FC_TIMEKEEP_HANDS = 4,   /* timehands in the ring */
    FC_TIMEKEEP_CPUS = 512,  /* processors that the skew table has room for */
    FC_TIMEKEEP_CLOCKS = 12, /* bases in a block, by the clock's number */
    FC_TIMEKEEP_SIZE = 8192
};

/* "fcTimekp", read as a number by the machine itself: another byte order is another magic. */
#define FC_TIMEKEEP_MAGIC 0x666354696d656b70ull

/* In the table of skews: this processor's is not known, so that the page is not read on it. */
#define FC_TIMEKEEP_SKEW_UNKNOWN INT64_MIN

/* Modes of a block. */
enum {
    FC_TIMEKEEP_MODE_OFF = 0,     /* not to be read with the counter; its coarse bases hold */
    FC_TIMEKEEP_MODE_COUNTER = 1, /* the counter alone */
    FC_TIMEKEEP_MODE_SKEWED = 2   /* the counter less the skew of the processor it was read on */
};

struct fc_timekeep_base {
    uint64_t sec;
    uint64_t nsec; /* shifted left by `shift`; plain for the two coarse clocks */
};

struct fc_timekeep_block {
    uint32_t sequence;   /* the generation: odd while it is written */
    uint32_t mode;       /* one of FC_TIMEKEEP_MODE_; every read looks at it: `enabled`, for the
                            timehands in force */
    uint64_t last;       /* the count from which on the block holds */
    uint64_t max_cycles; /* and for how many counts a reader may use it by itself; below 2^32 */
    uint64_t mask;       /* bits that the counter has */
    uint32_t mult;
    uint32_t shift;
    struct fc_timekeep_base base[12];
    uint64_t unused[3];
};

/* One of the ring, on cache lines of its own. */
struct fc_timekeep_hands {
    struct fc_timekeep_block fine; /* every clock but FC_RAW */
    struct fc_timekeep_block raw;  /* FC_RAW, which has a scale of its own */
    uint64_t valid_cycles; /* counts from `last` on in which the readings are vouched for; at
                              least max_cycles, below 2^32; lowered when a successor comes */
    uint64_t valid_ns;     /* the same in nanoseconds, as it was first published */
    uint64_t number;       /* of this publication, counted from 1 */
    uint64_t steps;        /* times that the realtime clock was set, until now */
    int64_t error_ns;      /* FC_MONOTONIC in the kernel less in the page, at this update */
    uint64_t told_cycles; /* counts from `last` on that readers can have gone; valid_cycles, or more
                             while it is not known whether a lower one was seen in time */
    uint64_t unused[10];
};

struct fc_timekeep {
    /* Fixed while the page exists. */
    uint64_t magic;           /* FC_TIMEKEEP_MAGIC */
    uint32_t version;         /* FC_TIMEKEEP_VERSION; a reader refuses one that it does not know */
    uint32_t size;            /* bytes in all: FC_TIMEKEEP_SIZE */
    uint32_t hands_offset;    /* of the first timehands */
    uint32_t hands_size;      /* of each */
    uint32_t skew_offset;     /* of the skew table */
    uint32_t cpus;            /* its length; 0 where the counters of the processors agree */
    uint64_t interval_ns;     /* between two updates at most */
    uint64_t namespace_dev;   /* the publisher's time namespace: the numbers of */
    uint64_t namespace_inode; /* /proc/self/ns/time; 0 and 0 on a kernel without them */
    uint64_t unused0;
    /* The switch and the index: what a reader outside the fast path looks at. */
    uint32_t enabled; /* 1: the page may be read. 0: take the kernel's word instead */
    uint32_t current; /* the timehands published last; the low two bits are its index */
    uint64_t unused1[7];
    /* The publisher's own. */
    uint64_t heartbeat;      /* updates tried, sampled or not */
    uint64_t heartbeat_ns;   /* FC_BOOTTIME of the last of them */
    uint64_t dropped;        /* samples that were out of bounds */
    uint64_t outages;        /* times that the page was taken out of service */
    uint64_t worst_error_ns; /* the largest |error_ns| since the page was last put into service */
    uint64_t steps;          /* as in the timehands */
    uint32_t publisher;      /* process that publishes */
    uint32_t in_service;     /* 1 while the counter is trusted by the publisher */
    uint32_t wanted; /* 1 or 0: what `enabled` is to become with the next update; the one field
                        that a program other than the publisher may store into */
    uint32_t unused4;
    uint64_t next_ns; /* from the last update to the next: less than interval_ns while the kernel's
                         clock is being slewed */
    uint64_t unused2[7];
    struct fc_timekeep_hands hands[4];
    uint64_t unused3[160];
    int64_t
        skew[512]; /* counts that a processor's counter is ahead of the reference, by its number */
};

#endif /* FASTCLOCK_TIMEKEEP_H */
