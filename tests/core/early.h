/* SPDX-License-Identifier: MIT
 *
 * A read before main, bracketed by hand: nothing but system calls can be relied on there.
 */
#ifndef FASTCLOCK_TESTS_EARLY_H
#define FASTCLOCK_TESTS_EARLY_H

#include "clocks.h"

struct early {
    bool tried;
    unsigned outside;
};

/* From the shared library; the static program has it as another file. */
const struct early *early_library_reads(void);

/* getenv may not work yet. */
static inline bool early_here(const char *where, char **variables) {
    for (; variables && *variables; variables++)
        if (strncmp(*variables, "EARLY=", 6) == 0)
            return strcmp(*variables + 6, where) == 0;
    return false;
}

/* `variables`: the environment. */
static inline void early_read(const char *where, char **variables, struct early *early) {
    if (!early_here(where, variables))
        return;
    early->tried = true;
    for (int i = 0; i < CLOCK_READS; i++) {
        uint64_t before = 0, ns, after = 0;
        bracket_syscall_ns(clock_reads[i].clock, &before);
        ns = clock_reads[i].read();
        bracket_syscall_ns(clock_reads[i].clock, &after);
        if (ns + (clock_reads[i].kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0) < before ||
            ns > after)
            early->outside++;
    }
}

#endif /* FASTCLOCK_TESTS_EARLY_H */
