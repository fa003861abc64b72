/* SPDX-License-Identifier: MIT
 *
 * The counter less the skew of the processor that it was read on, for pages whose mode is
 * FC_TIMEKEEP_MODE_SKEWED. Counter and processor have to belong together, although a thread can be
 * moved between any two instructions. Three ways:
 *
 * - RDTSCP gives both in one instruction;
 * - user restart: the processor before the counter and after it, and again if it has changed. Not
 *   noticed is a thread that was moved away and back between the two, for which it takes two moves
 *   within some twenty cycles of progress;
 * - kernel restart: both in a restartable sequence, to whose beginning the kernel puts back a
 *   thread that it has interrupted there.
 *
 * `page` is a struct fc_timekeep. Each returns 1 and the corrected count, ordered behind all
 * earlier instructions; or 0 if the way does not exist here, if the processor's skew is not in the
 * table, or if the thread was moved at every one of a bounded number of tries. As fc_try_fine_
 * of inline.h takes them. The caller guards the table by the sequence of a block. Signal-safe, no
 * lock, no system call but for finding out once whether an instruction works.
 */
#ifndef FASTCLOCK_CORE_SKEW_H
#define FASTCLOCK_CORE_SKEW_H

#include <fastclock/timekeep.h>
#include <stdbool.h>

#pragma GCC visibility push(hidden)

int fc_skew_rdtscp(const void *page, uint64_t *cycles);
int fc_skew_user_restart(const void *page, uint64_t *cycles);
int fc_skew_kernel_restart(const void *page, uint64_t *cycles);

/* The count by the first of the ways that can be relied on here: kernel restart, else RDTSCP. */
bool fc_skew_count(const struct fc_timekeep *page, uint64_t *cycles);

/* The counter of the processor that this thread happens to be on, ordered, with its skew. */
uint64_t fc_skew_uncorrected(void);

#ifdef FC_SKEW_INJECTED
/* For tests: what the counter of each processor is ahead, by the number that comes with it. And
 * user restart without the restart: the number before the counter, whatever happens in between. */
extern int64_t fc_skew_injected[FC_TIMEKEEP_CPUS];
int fc_skew_no_restart(const void *page, uint64_t *cycles);
/* Called, unless NULL, by fc_skew_count when it has its count. */
extern void (*fc_skew_counted)(void);
#endif

#pragma GCC visibility pop

#endif
