/* SPDX-License-Identifier: MIT
 *
 * The source `libc`: clock_gettime of the C library, in which `off` ends, and what there is where
 * there is no Linux.
 */
#ifndef FASTCLOCK_CORE_LIBC_H
#define FASTCLOCK_CORE_LIBC_H

#include "sys.h"

#pragma GCC visibility push(hidden)

/* Reads one clock of enum fc_clock; false if the C library knows no such clock. Keeps errno. */
bool fc_libc_gettime(uint32_t clock, struct fc_reading *out);

#pragma GCC visibility pop

#endif
