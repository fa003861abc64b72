/* SPDX-License-Identifier: MIT
 *
 * The read, beyond the one look of inline.h: what happens where that does not suffice.
 */
#ifndef FASTCLOCK_CORE_READ_H
#define FASTCLOCK_CORE_READ_H

#include "sys.h"

#pragma GCC visibility push(hidden)

/* Reads one clock of enum fc_clock from whatever serves; false if nothing does. `ns` stays below
 * 2^34 of what a second holds, at most a few seconds in practice. */
bool fc_read(uint32_t clock, struct fc_reading *out);

/* The same for who has looked and seen that a look does not suffice. */
bool fc_read_slow(uint32_t clock, bool ordered, struct fc_reading *out);

/* Whether the number is one of enum fc_clock. */
bool fc_is_ours(int32_t clock);

/* Reads that left the page since the process began. */
uint64_t fc_slow_reads(void);

#pragma GCC visibility pop

#endif
