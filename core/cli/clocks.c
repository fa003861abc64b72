/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include "clocks.h"

#include <fastclock.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys.h"
#include "vdso.h"

const struct cli_clock cli_clocks[CLI_CLOCKS] = {
    {"realtime", FC_REALTIME},
    {"monotonic", FC_MONOTONIC},
    {"raw", FC_RAW},
    {"boottime", FC_BOOTTIME},
    {"tai", FC_TAI},
    {"realtime-coarse", FC_REALTIME_COARSE},
    {"monotonic-coarse", FC_MONOTONIC_COARSE},
};

const struct cli_clock *cli_clock_by_name(const char *name) {
    for (int i = 0; i < CLI_CLOCKS; i++)
        if (strcmp(name, cli_clocks[i].name) == 0)
            return &cli_clocks[i];
    return NULL;
}

const char *cli_clock_name(int32_t clock) {
    for (int i = 0; i < CLI_CLOCKS; i++)
        if (cli_clocks[i].id == clock)
            return cli_clocks[i].name;
    return "unknown";
}

bool cli_clock_is_coarse(int32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

const char *cli_way_name(enum cli_way way) {
    switch (way) {
    case CLI_WAY_EMPTY: return "empty call";
    case CLI_WAY_COUNTER_RELAXED: return "counter, relaxed";
    case CLI_WAY_COUNTER_ORDERED: return "counter, ordered";
    case CLI_WAY_SYSCALL: return "system call";
    case CLI_WAY_VDSO: return "vDSO";
    case CLI_WAY_LIBC: return "libc";
    case CLI_WAY_ORDERED: return "fastclock";
    case CLI_WAY_RELAXED: return "fastclock, relaxed";
    default: return "unknown";
    }
}

bool cli_ways_open(void) {
    struct fc_info info;
    const bool serves = fc_init() == 0;
    fc_get_info(&info, sizeof info);
    if (info.counter == 1) /* the vDSO reads it too */
        fc_vdso_open();
    return serves;
}

/* ---- The loops --------------------------------------------------------------------------------
 */

/* Keeps the compiler from dropping a reading, or moving it out of the loop. */
#define USE(value) __asm__ volatile("" : : "r"(value) : "memory")
#define LOOP(read)                                                                                 \
    for (uint64_t i_ = 0; i_ < reads; i_++)                                                        \
        USE(read);                                                                                 \
    return

static __attribute__((noinline)) uint64_t empty(void) {
    __asm__ volatile("");
    return 0;
}

/* The kernel's timespec has 64-bit members in the vDSO's function that is used; see vdso.c. */
static void read_by_vdso(int32_t clock, uint64_t reads) {
    struct fc_reading r;
    LOOP((fc_vdso_gettime(clock, &r), r.ns));
}

static void read_by_libc(int32_t clock, uint64_t reads) {
    struct timespec ts;
    LOOP((clock_gettime(clock, &ts), ts.tv_nsec));
}

static void read_by_syscall(int32_t clock, uint64_t reads) {
    int64_t ts[2] = {0, 0};
#ifdef SYS_clock_gettime64
    LOOP((syscall(SYS_clock_gettime64, clock, ts), ts[1]));
#else
    LOOP((syscall(SYS_clock_gettime, clock, ts), ts[1]));
#endif
}

static void read_ordered(int32_t clock, uint64_t reads) {
    switch (clock) {
    case FC_REALTIME: LOOP(fc_realtime_ns());
    case FC_MONOTONIC: LOOP(fc_monotonic_ns());
    case FC_RAW: LOOP(fc_raw_ns());
    case FC_BOOTTIME: LOOP(fc_boottime_ns());
    case FC_TAI: LOOP(fc_tai_ns());
    case FC_REALTIME_COARSE: LOOP(fc_realtime_coarse_ns());
    case FC_MONOTONIC_COARSE: LOOP(fc_monotonic_coarse_ns());
    default: abort(); /* cli_way_works says no */
    }
}

static void read_relaxed(int32_t clock, uint64_t reads) {
    switch (clock) {
    case FC_REALTIME: LOOP(fc_realtime_relaxed_ns());
    case FC_MONOTONIC: LOOP(fc_monotonic_relaxed_ns());
    case FC_RAW: LOOP(fc_raw_relaxed_ns());
    default: abort();
    }
}

static void read_empty(uint64_t reads) {
    LOOP(empty());
}

static void read_counter_relaxed(uint64_t reads) {
    LOOP(fc_ticks());
}

static void read_counter_ordered(uint64_t reads) {
    LOOP(fc_ticks_ordered());
}

void cli_read(enum cli_way way, int32_t clock, uint64_t reads) {
    switch (way) {
    case CLI_WAY_EMPTY: read_empty(reads); return;
    case CLI_WAY_COUNTER_RELAXED: read_counter_relaxed(reads); return;
    case CLI_WAY_COUNTER_ORDERED: read_counter_ordered(reads); return;
    case CLI_WAY_SYSCALL: read_by_syscall(clock, reads); return;
    case CLI_WAY_VDSO: read_by_vdso(clock, reads); return;
    case CLI_WAY_LIBC: read_by_libc(clock, reads); return;
    case CLI_WAY_ORDERED: read_ordered(clock, reads); return;
    case CLI_WAY_RELAXED: read_relaxed(clock, reads); return;
    default: abort();
    }
}

/* ---- One reading ------------------------------------------------------------------------------
 */

static bool read_relaxed_once(int32_t clock, uint64_t *ns) {
    switch (clock) {
    case FC_REALTIME: *ns = fc_realtime_relaxed_ns(); break;
    case FC_MONOTONIC: *ns = fc_monotonic_relaxed_ns(); break;
    case FC_RAW: *ns = fc_raw_relaxed_ns(); break;
    default: return false; /* the ABI has no relaxed read of it */
    }
    return *ns != FC_NO_TIME;
}

bool cli_read_once(enum cli_way way, int32_t clock, uint64_t *ns) {
    struct fc_reading r;
    struct timespec ts;
    bool works = false;
    switch (way) {
    case CLI_WAY_SYSCALL: works = fc_sys_gettime(clock, &r) == 0; break;
    case CLI_WAY_VDSO: works = fc_vdso_gettime(clock, &r); break;
    case CLI_WAY_LIBC:
        works = clock_gettime(clock, &ts) == 0;
        if (works)
            r = (struct fc_reading){(uint64_t)ts.tv_sec, (uint64_t)ts.tv_nsec};
        break;
    case CLI_WAY_ORDERED: return fc_read_ns(clock, ns) == 0;
    case CLI_WAY_RELAXED: return read_relaxed_once(clock, ns);
    default: return false;
    }
    if (works)
        *ns = fc_reading_count(r);
    return works;
}

bool cli_counter_may_be_read(void) {
    struct fc_info info;
    fc_get_info(&info, sizeof info);
    return info.counter == 1;
}

bool cli_way_works(enum cli_way way, int32_t clock) {
    uint64_t ns;
    switch (way) {
    case CLI_WAY_EMPTY: return true;
    case CLI_WAY_COUNTER_RELAXED:
    case CLI_WAY_COUNTER_ORDERED: return cli_counter_may_be_read();
    case CLI_WAY_LIBC:
        /* The C library calls the vDSO, which reads the counter and would be killed. */
        if (!cli_clock_is_coarse(clock) && !cli_counter_may_be_read())
            return false;
        return cli_read_once(way, clock, &ns);
    default: return cli_read_once(way, clock, &ns);
    }
}
