/* SPDX-License-Identifier: MIT
 *
 * Finds the kernel's mappings in the text of /proc/self/maps, fed in pieces of any size. Pure: it
 * sees text alone and trusts none of it.
 */
#ifndef FASTCLOCK_CORE_MAPS_H
#define FASTCLOCK_CORE_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

struct fc_mapping {
    uintptr_t start, end; /* end 0: not seen */
};

struct fc_maps {
    struct fc_mapping vvar, vclock, vdso;
    char line[128]; /* the line so far; what is longer is none of ours */
    size_t length;
};

/* `maps` must start as all zero bytes. Only whole lines, ended by a newline, count. */
void fc_maps_feed(struct fc_maps *maps, const char *text, size_t size);

/* The [vvar] that lies right before the vDSO at `vdso`, perhaps with other mappings of the kernel's
 * between them; false if there is none. */
bool fc_maps_vvar(const struct fc_maps *maps, uintptr_t vdso, struct fc_mapping *vvar);

/* The [vvar_vclock] between the two, the hypervisors' pages; false if there is none, as before
 * Linux 6.13. */
bool fc_maps_vclock(const struct fc_maps *maps, uintptr_t vdso, struct fc_mapping *vclock);

#pragma GCC visibility pop

#endif
