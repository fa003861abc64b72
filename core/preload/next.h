/* SPDX-License-Identifier: MIT
 *
 * Whether another library between this one and the C library answers the clock calls as well: one
 * that changes the time, such as libfaketime, or the runtime of a sanitizer. What it says is what
 * the program would have been told without this library, and so it has the word.
 */
#ifndef FASTCLOCK_PRELOAD_NEXT_H
#define FASTCLOCK_PRELOAD_NEXT_H

#include <stdint.h>

/* The address of the function `name` in the first library behind this one that defines it; 0 if
 * none does before the C library. Walks the dynamic linker's list, which takes no lock and calls
 * nothing; safe wherever the list is not being changed at this moment behind this library, and it
 * only grows at its end, behind the C library. */
uintptr_t fc_next_function(const char *name);

#endif
