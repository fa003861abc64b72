/* SPDX-License-Identifier: MIT
 *
 * The words for numbers: names of sources, sentences for reasons, the version.
 */
#ifndef FASTCLOCK_CORE_TEXT_H
#define FASTCLOCK_CORE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* The source of a name that FASTCLOCK_SOURCE may hold; false for any other. */
bool fc_source_by_name(const char *name, int32_t *source);

#pragma GCC visibility pop

#endif
