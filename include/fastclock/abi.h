/* SPDX-License-Identifier: MIT
 *
 * The ABI of fastclock, and the only place where it is declared.
 *
 * This file holds declarations alone: no preprocessor line, no include, no inline code, so that a C
 * compiler, CFFI's cdef() and LuaJIT's ffi.cdef() read it as it is. C programs include
 * <fastclock.h>, which brings <stdint.h> and what a compiler wants around it.
 *
 * Conventions. Every function may be called from any thread, in a signal handler, after fork and
 * before main; none allocates memory, takes a lock or changes errno. Errors are negative errno
 * values. Times are counts of nanoseconds (`_ns`). Structures carry their size, grow at the end
 * only, and are never passed by value.
 */

/* ---- Clocks, by the kernel's own numbers ---------------------------------------------------- */

enum fc_clock {
    FC_REALTIME = 0,         /* Unix time; steps when it is set, slewed by NTP */
    FC_MONOTONIC = 1,        /* never steps, slewed by NTP, stands still in suspend */
    FC_RAW = 4,              /* never steps, never slewed, stands still in suspend */
    FC_REALTIME_COARSE = 5,  /* FC_REALTIME at the last tick */
    FC_MONOTONIC_COARSE = 6, /* FC_MONOTONIC at the last tick */
    FC_BOOTTIME = 7,         /* FC_MONOTONIC plus the time spent in suspend */
    FC_TAI = 11              /* International Atomic Time; equals realtime where nobody told the
                                kernel the offset */
};

/* ---- Sources: how the time is got ----------------------------------------------------------- */

enum fc_source {
    FC_SOURCE_AUTO = -1,       /* for fc_select: the first of the list that is proved */
    FC_SOURCE_NONE = 0,        /* nothing serves */
    FC_SOURCE_KERNEL_PAGE = 1, /* the kernel's page beside the vDSO, read directly */
    FC_SOURCE_TIMEKEEP = 2,    /* our own shared page; only when asked for */
    FC_SOURCE_VDSO = 3,        /* the function that the kernel put into the process */
    FC_SOURCE_SYSCALL = 4,     /* the raw system call */
    FC_SOURCE_LIBC = 5         /* clock_gettime of the C library; what `off` chooses */
};

/* ---- Reasons: why a source does not serve. fc_reason_text gives the sentence ---------------- */

enum fc_reason {
    FC_REASON_NONE = 0,              /* nothing against it */
    FC_REASON_NOT_TRIED = 1,         /* an earlier source serves, or another one was asked for */
    FC_REASON_NOT_LINUX = 2,         /* this source exists on Linux only */
    FC_REASON_NO_COUNTER = 3,        /* no counter is known for this architecture */
    FC_REASON_COUNTER_DISABLED = 4,  /* prctl(PR_SET_TSC): reading the counter would kill */
    FC_REASON_COUNTER_UNCERTAIN = 5, /* prctl(PR_GET_TSC) was refused: it could kill */
    FC_REASON_COUNTER_STUCK = 6,     /* the counter does not advance */
    FC_REASON_NO_VDSO = 7,           /* the kernel gave this process no vDSO */
    FC_REASON_NO_MAPS = 8,           /* /proc/self/maps cannot be read */
    FC_REASON_NO_VVAR = 9,           /* no [vvar] mapping right before the vDSO */
    FC_REASON_UNREADABLE = 10,       /* the page is mapped but cannot be read */
    FC_REASON_LAYOUT = 11,           /* the page has none of the shapes that are known */
    FC_REASON_PROOF = 12,            /* a reading lay outside its bracket of two system calls */
    FC_REASON_UNSTABLE = 13,         /* the clocks were set so often that nothing could be proved */
    FC_REASON_MODE_NONE = 14,        /* the clocksource cannot be read without the kernel */
    FC_REASON_MODE_UNKNOWN = 15,     /* the clocksource has a mode that this version cannot read */
    FC_REASON_BUSY = 16,             /* the page was being written at every look */
    FC_REASON_NO_SYMBOL = 17,        /* the vDSO has no clock function that could be found */
    FC_REASON_REFUSED = 18,          /* the system call was refused */
    FC_REASON_NOT_OPTED_IN = 19,     /* chosen only by name */
    FC_REASON_NO_PAGE = 20,          /* no timekeep page is published, or it is not to be trusted */
    FC_REASON_UNKNOWN_NAME = 21,     /* FASTCLOCK_SOURCE holds none of the allowed names */
    FC_REASON_SECURE = 22,           /* set-user-id or the like: the environment is ignored */
    FC_REASON_PARAVIRTUAL = 23,      /* the hypervisor's page is not marked as usable */
    FC_REASON_SWITCHED_OFF = 24,     /* the host's timekeep page is, by `fastclock publish --off` */
    FC_REASON_OUT_OF_SERVICE = 25    /* the timekeep page's publisher does not trust the counter */
};

/* ---- Reads ---------------------------------------------------------------------------------- */

/* Each returns the clock in its name, in nanoseconds.
 *
 * The first read of a process chooses and proves a source (see fc_init); later ones cost a read of
 * the counter. Realtime and TAI count from 1970-01-01 00:00:00; the others from an unspecified
 * point, boot on today's kernels. The count fits until the year 2554.
 *
 * Ordered (no suffix): the counter is not read before earlier instructions are done, which is the
 * guarantee of clock_gettime: two threads that pass readings to each other never see time go back
 * (realtime and TAI excepted, which can be set).
 * Relaxed: no fence, half the cost; a reading may be early by the depth of the pipeline, and two
 * threads that hand readings to each other may see them out of order.
 * Coarse: the value at the kernel's last tick, 1 to 10 ms old; see coarse_resolution_ns in fc_info.
 *
 * They do not fail once fc_init has returned 0. Where no source serves (every system call is
 * refused) they return UINT64_MAX, FC_NO_TIME in fastclock.h, and never an invented time.
 */
uint64_t
vtime64(void); /* realtime since the Unix epoch as one count: fc_realtime_ns by its old name */
uint64_t fc_realtime_ns(void);
uint64_t fc_monotonic_ns(void);
uint64_t fc_raw_ns(void);
uint64_t fc_boottime_ns(void);
uint64_t fc_tai_ns(void);
uint64_t fc_realtime_coarse_ns(void);
uint64_t fc_monotonic_coarse_ns(void);
uint64_t fc_realtime_relaxed_ns(void);
uint64_t fc_monotonic_relaxed_ns(void);
uint64_t fc_raw_relaxed_ns(void);

/* Reads a clock by number: one of enum fc_clock, ordered, from the source in use; any other number
 * is handed to the kernel, which may know it (processor-time clocks, /dev/ptp clocks).
 * ns: where the nanoseconds go; untouched on error.
 * Returns 0; -EINVAL for a clock that the kernel does not know; -EFAULT for ns NULL; -ENOTSUP where
 * no source serves; or the kernel's own error, negative. */
int32_t fc_read_ns(int32_t clock, uint64_t *ns);

/* Writes `count` successive readings of one clock, in one crossing from another language.
 * out: an array of `count` elements; may be NULL if count is 0. Readings as by fc_read_ns.
 * Returns 0 or the error of fc_read_ns; on error, elements from the failed one on are untouched. */
int32_t fc_fill_ns(int32_t clock, uint64_t *out, uint64_t count);

/* ---- The counter ---------------------------------------------------------------------------- */

/* The CPU's time-stamp counter, relaxed and ordered. Where it may not be read (see fc_get_info),
 * these count the nanoseconds of FC_RAW instead, and fc_ticks_hz answers 10^9. */
uint64_t fc_ticks(void);
uint64_t fc_ticks_ordered(void);

/* Ticks a second, rounded to the nearest; never 0. From the kernel's own scale where its page
 * serves, else measured once against FC_RAW, which takes about 20 ms. */
uint64_t fc_ticks_hz(void);

/* Converts a difference of ticks to nanoseconds, at the rate of FC_RAW: ticks * mult >> shift with
 * the kernel's mult and shift and a 128-bit product; rounds down, saturates at UINT64_MAX. */
uint64_t fc_ticks_to_ns(uint64_t ticks);

/* ---- The processor -------------------------------------------------------------------------- */

/* Which processor and NUMA node this thread is on; it may have moved before the call returns.
 * cpu, node: where the numbers go; either may be NULL.
 * Returns 0, or the kernel's error, negative; nothing is written on error. */
int32_t fc_getcpu(uint32_t *cpu, uint32_t *node);

/* ---- Choice --------------------------------------------------------------------------------- */

/* Chooses a source, as FASTCLOCK_SOURCE says or by itself, and proves it against the system call.
 * Done by the first read too, so that calling it is a matter of taste: it moves the cost (well
 * under a millisecond) and the possible error to a place of one's own. Does nothing if a source
 * serves. Returns 0, or -ENOTSUP if no source serves; fc_get_info says why. */
int32_t fc_init(void);

/* Changes the source of the whole process, proving it anew: also the call to make after a process
 * was restored from a checkpoint. Reads in other threads go on meanwhile.
 * source: one of enum fc_source but FC_SOURCE_NONE.
 * Returns 0 if that source serves now; -EINVAL for a number that is no source; -ENOTSUP if it was
 * refused: then the former choice stands, unless it was the very one, or needs a counter that has
 * been forbidden since, and the next source that serves takes its place. fc_get_info says why. */
int32_t fc_select(int32_t source);

/* What fc_get_info tells. */
struct fc_info {
    uint32_t size;          /* bytes that fc_get_info filled */
    int32_t source;         /* the source chosen, enum fc_source */
    int32_t wanted;         /* the source asked for; FC_SOURCE_AUTO if none was */
    int32_t wanted_reason;  /* why FASTCLOCK_SOURCE was not followed, else 0 */
    int32_t serving;        /* what answers an ordered read of FC_MONOTONIC at this moment;
                               differs from `source` while that one has to stand back */
    int32_t serving_reason; /* why it differs, else 0 */
    int32_t coarse_serving; /* what answers a read of the coarse clocks at this moment */
    int32_t mode;           /* the kernel's clock mode as read from its page now; -1 unknown */
    int32_t reason[8];      /* for each source, by number: why it was refused, else 0 */
    int32_t time_namespace; /* 1 in a time namespace, 0 not, -1 unknown */
    int32_t counter;        /* 1 if the counter may be read, else 0 */
    int32_t tai_offset_s;   /* seconds that FC_TAI is ahead of FC_REALTIME; 0: most likely
                               nobody told the kernel */
    uint32_t proof_rounds;  /* bracketed readings that the source in use has passed */
    uint64_t counter_hz;    /* as fc_ticks_hz, but never measured for this: 0 if unknown yet */
    uint64_t resolution_ns; /* of the clocks that are not coarse, by clock_getres */
    uint64_t coarse_resolution_ns; /* of the coarse clocks: the length of the kernel's tick */
    uint64_t slow_reads;           /* reads that left the fast path since the process began */
    char layout[16];               /* name of the page's layout; empty if not recognised */
    int32_t timekeep;              /* the timekeep page in use: 0 none, 1 one of this process's own,
                                      2 the host's */
    int32_t timekeep_in_service;   /* 1 while its publisher trusts the counter, else 0 */
    uint64_t timekeep_interval_ns; /* between two of its updates at most */
    uint64_t timekeep_error_ns;    /* the furthest that FC_MONOTONIC was seen from the kernel's
                                      while it was in service; half a sample's width is in it */
    uint64_t timekeep_steps;       /* times that the realtime clock was set meanwhile */
    uint64_t timekeep_outages;     /* times that it had to be taken out of service */
};

/* Tells what was chosen and why, as things stand now.
 * info: filled as far as `size` goes. size: sizeof(struct fc_info) as the caller knows it.
 * Returns 0, or -EFAULT for info NULL. */
int32_t fc_get_info(struct fc_info *info, uint32_t size);

/* The name of a source, as FASTCLOCK_SOURCE takes it (`libc` is asked for as `off`); "unknown" for
 * other numbers. The string is constant. */
const char *fc_source_name(int32_t source);

/* A sentence for a person, for a value of enum fc_reason; one that says so for other numbers. The
 * string is constant. */
const char *fc_reason_text(int32_t reason);

/* The library's version, such as "0.1.0". The string is constant. */
const char *fc_version(void);
