/* SPDX-License-Identifier: MIT
 *
 * The few system calls that fastclock makes, raw: past the C library's wrappers, which tests and
 * preloaded libraries replace, and without a trace in errno.
 */
#ifndef FASTCLOCK_CORE_SYS_H
#define FASTCLOCK_CORE_SYS_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* A time as sources give it: `ns` may exceed a second where a source leaves it so. */
struct fc_reading {
    uint64_t sec;
    uint64_t ns;
};

static inline uint64_t fc_reading_count(struct fc_reading r) {
    return r.sec * 1000000000u + r.ns;
}

/* clock_gettime and clock_getres by system call, for any clock number. 0 or a negative errno. */
int32_t fc_sys_gettime(int32_t clock, struct fc_reading *out);
int32_t fc_sys_getres(int32_t clock, struct fc_reading *out);
int32_t fc_sys_getcpu(uint32_t *cpu, uint32_t *node);

/* The kernel's time zone, as gettimeofday gives it in its second argument, a struct timezone. */
int32_t fc_sys_timezone(void *zone);

/* Whether the eight bytes at `at`, which must be aligned to eight, can be read. Never faults. */
bool fc_sys_readable(const void *at);

/* prctl(PR_GET_TSC): 1 the counter may be read, 0 it would kill this thread, or a negative errno.
 * Where the kernel knows no such switch, 1. */
int32_t fc_sys_counter_allowed(void);

/* Open for reading, read, close; negative errno on error. */
int32_t fc_sys_open(const char *path);
int64_t fc_sys_read(int32_t descriptor, void *buffer, uint64_t size);
void fc_sys_close(int32_t descriptor);

/* Keeps every signal of this thread waiting; false, and nothing done, if that is refused. */
bool fc_sys_block_signals(uint64_t *former);
void fc_sys_restore_signals(uint64_t former);

#pragma GCC visibility pop

#endif
