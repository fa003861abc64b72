/* SPDX-License-Identifier: MIT
 *
 * The checks, one function each, and what they share.
 */
#ifndef FASTCLOCK_TESTS_KERNELS_CHECKS_H
#define FASTCLOCK_TESTS_KERNELS_CHECKS_H

#include <fastclock.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Good brackets that each check asks for; --target. */
extern uint64_t target;

enum { NS_PER_S = 1000000000, NS_PER_MS = 1000000 };

struct fc_info get_info(void);
uint64_t slow_reads(void);

/* Whether the fast path serves, and says so. `when` is for the words. */
bool expect_fast(const char *when);
/* Whether the counter has been left, and says so; the coarse clocks stay on the page. */
bool expect_slow(const char *when);

/* Reads a file of /sys or /proc, the last newline cut off; false if it cannot. */
bool file_read(const char *path, char *text, size_t size);
/* 0 or a negative errno. */
int file_write(const char *path, const char *text);

bool clocksource_is(const char *name);
bool clocksource_available(const char *name);
int clocksource_set(const char *name);

/* checks_clock.c: what is done to the clocks */
void check_idle(void);
void check_set_hour(void);
void check_set_millisecond(void);
void check_frequency(void);
void check_tick(void);
void check_leap_inserted(void);
void check_leap_deleted(void);
void check_tai_offset(void);
void check_year_2038(void);
void check_year_2106(void);

/* checks_machine.c: what is done to the machine */
void check_source(void);
void check_sources_forced(void);
void check_clocksource_exact(void);
void check_clocksource_round(void);
void check_cpu_offline(void);
void check_suspend_idle(void);
void check_suspend_memory(void);
void check_no_vdso(void);
void check_tsc_unstable(void);
void check_hpet_then_tsc(void);
void check_kvm_clock(void);
void check_kvm_clock_killed(void);

/* checks_namespace.c */
void check_namespace_exec(void);
void check_namespace_fork(void);
void check_namespace_setns(void);
void check_namespace_clocksource(void);
void check_namespace_kvm_clock(void);
/* What check_namespace_exec executes: argv after its name. */
int namespace_exec_main(int argc, char **argv);

/* checks_timekeep.c */
void check_timekeep_hpet(void);
void check_timekeep_vmclock(void);

/* checks_agree.c: the questions of the kernel's own tests */
void check_rotation(void);
void check_inconsistency(void);
void check_threads(void);
void check_raw_rate(void);

#endif
