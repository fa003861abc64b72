/* SPDX-License-Identifier: MIT
 *
 * The counter as a clock of its own: its rate.
 */
#ifndef FASTCLOCK_CORE_TICKS_H
#define FASTCLOCK_CORE_TICKS_H

#include <stdint.h>

#pragma GCC visibility push(hidden)

/* fc_ticks_hz if it is known without measuring, else 0. */
uint64_t fc_ticks_hz_known(void);

/* Forgets the rate: a process restored elsewhere has another counter. */
void fc_ticks_forget(void);

#pragma GCC visibility pop

#endif
