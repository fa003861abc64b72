/* SPDX-License-Identifier: MIT
 *
 * The source `vdso`: the function that the kernel maps into the process for this very purpose,
 * found by a parser of our own, without the dynamic linker and so also where there is none.
 */
#ifndef FASTCLOCK_CORE_VDSO_H
#define FASTCLOCK_CORE_VDSO_H

#include <stddef.h>

#include "sys.h"

#pragma GCC visibility push(hidden)

/* Finds the first of `names` (ended by NULL) among the dynamic symbols of the ELF image of `size`
 * bytes at `image`, as loaded, by whichever hash table it has. Returns the symbol's offset in the
 * image, or 0. Pure; trusts nothing in the image. */
size_t fc_elf_find(const unsigned char *image, size_t size, const char *const *names);

/* Finds and proves the vDSO's functions. Returns FC_REASON_NONE or why they cannot be used. */
int32_t fc_vdso_open(void);

/* Forgets them: where the counter is disabled, the vDSO's own read of it would kill. */
void fc_vdso_close(void);

/* Reads any clock that the vDSO knows; false if it is not open or did not answer. */
bool fc_vdso_gettime(int32_t clock, struct fc_reading *out);
bool fc_vdso_getres(int32_t clock, struct fc_reading *out);

/* The address of the first of `names` (ended by NULL) in this process's vDSO, or 0. Not proved. */
uintptr_t fc_vdso_function(const char *const *names);

#pragma GCC visibility pop

#endif
