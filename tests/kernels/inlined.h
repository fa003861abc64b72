/* SPDX-License-Identifier: MIT
 *
 * The inlined reads as functions, so that a table can hold them.
 */
#ifndef FASTCLOCK_TESTS_KERNELS_INLINED_H
#define FASTCLOCK_TESTS_KERNELS_INLINED_H

#include <stdint.h>

/* In the order of `clocks` in readers.h. */
extern uint64_t (*const inlined[])(void);

#endif
