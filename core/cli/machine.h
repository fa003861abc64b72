/* SPDX-License-Identifier: MIT
 *
 * What the kernel and the processor say of themselves, as far as clocks are concerned. Nothing here
 * is taken for true by the library: it is for people.
 */
#ifndef FASTCLOCK_CLI_MACHINE_H
#define FASTCLOCK_CLI_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

/* A yes or no that may not be known. */
enum machine_flag { FLAG_NO, FLAG_YES, FLAG_UNKNOWN };

/* What a processor can do with its counter. */
struct machine_feature {
    const char *name;
    const char *meaning;
    enum machine_flag flag;
};

enum { FEATURES_MAX = 8 };

struct machine {
    char processor[128]; /* the processor's own name; empty if it says none */
    char architecture[80];
    char kernel[128]; /* uname's release */
    long processors_online;
    char clocksource[64];   /* in use; empty if the kernel does not say */
    char clocksources[256]; /* that could be used, separated by spaces */
    char hypervisor[64];    /* empty: none is seen */
    char hypervisor_signature[16];
    struct machine_feature features[FEATURES_MAX];
    uint32_t feature_count;
    int seccomp;        /* of this process: 0 none, 1 strict, 2 a filter; -1 unknown */
    bool boot_vdso_off; /* the kernel was booted with vdso=0 */
    char boot_tsc[64];  /* what the kernel was booted with that concerns the TSC */
    int64_t namespace_monotonic_s, namespace_boottime_s; /* offsets of the time namespace */
};

void machine_look(struct machine *m);

/* Whether `word` is one of the words of `words`, separated by spaces. */
bool machine_has_word(const char *words, const char *word);

/* The feature of that name, FLAG_UNKNOWN where the architecture has none. */
enum machine_flag machine_feature(const struct machine *m, const char *name);

#endif
