/* SPDX-License-Identifier: MIT
 *
 * The vDSO's own function, without the C library before it.
 */
#ifndef FASTCLOCK_TESTS_KERNELS_VDSO_ENTRY_H
#define FASTCLOCK_TESTS_KERNELS_VDSO_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

bool vdso_entry_open(void);
bool vdso_entry_ns(int32_t clock, uint64_t *ns);

#endif
