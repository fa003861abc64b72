/* SPDX-License-Identifier: MIT
 *
 * checks: runs one check and prints what it found as a line of JSON.
 *
 *     checks --list PROFILE             the checks of a profile, one a line
 *     checks [--target N] [--may-set-clock] NAME
 *
 * A profile is a way to boot: `guest` for a machine of one's own, whose clock may be set; `host`,
 * where nothing may be changed for good; and one for each special boot. Linked statically, so that
 * it runs where there is nothing else.
 */
#define _GNU_SOURCE
#include "checks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

uint64_t target = 20000;
bool clock_may_be_set;

enum { GUEST = 1, HOST = 2, NO_VDSO = 4, UNSTABLE = 8, HPET = 16, ARM64 = 32, VMCLOCK = 64 };

static const struct {
    const char *name;
    unsigned bit;
} profiles[] = {
    {"guest", GUEST},           {"host", HOST},   {"vdso=0", NO_VDSO}, {"tsc=unstable", UNSTABLE},
    {"clocksource=hpet", HPET}, {"arm64", ARM64}, {"vmclock", VMCLOCK}};

static const struct {
    const char *name;
    unsigned where;
    void (*run)(void);
} checks[] = {
    {"source", GUEST | HOST | ARM64, check_source},
    {"sources-forced", GUEST | HOST | ARM64, check_sources_forced},
    {"rotation", GUEST | HOST | ARM64, check_rotation},
    {"inconsistency", GUEST | HOST | ARM64, check_inconsistency},
    {"threads", GUEST | HOST | ARM64, check_threads},
    {"raw-rate", GUEST | HOST | ARM64, check_raw_rate},
    {"set-hour", GUEST | ARM64, check_set_hour},
    {"set-millisecond", GUEST | ARM64, check_set_millisecond},
    {"frequency", GUEST | ARM64, check_frequency},
    {"tick", GUEST | ARM64, check_tick},
    {"leap-inserted", GUEST | ARM64, check_leap_inserted},
    {"leap-deleted", GUEST | ARM64, check_leap_deleted},
    {"tai-offset", GUEST | ARM64, check_tai_offset},
    {"year-2038", GUEST | ARM64, check_year_2038},
    {"year-2106", GUEST | ARM64, check_year_2106},
    {"clocksource-exact", GUEST, check_clocksource_exact},
    {"clocksource-round", GUEST, check_clocksource_round},
    {"cpu-offline", GUEST | ARM64, check_cpu_offline},
    {"namespace-exec", GUEST | HOST | ARM64, check_namespace_exec},
    {"namespace-fork", GUEST | HOST | ARM64, check_namespace_fork},
    {"namespace-setns", GUEST | HOST | ARM64, check_namespace_setns},
    {"namespace-clocksource", GUEST, check_namespace_clocksource},
    {"suspend-idle", GUEST, check_suspend_idle},
    {"suspend-memory", GUEST, check_suspend_memory},
    {"kvm-clock", HOST, check_kvm_clock},
    {"namespace-kvm-clock", HOST, check_namespace_kvm_clock},
    {"kvm-clock-killed", HOST, check_kvm_clock_killed},
    {"no-vdso", NO_VDSO, check_no_vdso},
    {"tsc-unstable", UNSTABLE, check_tsc_unstable},
    {"timekeep-hpet", HPET, check_timekeep_hpet},
    {"hpet-then-tsc", HPET, check_hpet_then_tsc},
    {"timekeep-vmclock", VMCLOCK, check_timekeep_vmclock},
    {"idle", GUEST | HOST | ARM64, check_idle},
};

enum { CHECKS = sizeof checks / sizeof *checks, PROFILES = sizeof profiles / sizeof *profiles };

static int list(const char *profile) {
    for (int p = 0; p < PROFILES; p++) {
        if (strcmp(profiles[p].name, profile) != 0)
            continue;
        for (int i = 0; i < CHECKS; i++)
            if (checks[i].where & profiles[p].bit)
                puts(checks[i].name);
        return 0;
    }
    fprintf(stderr, "checks: no profile '%s'; there are:", profile);
    for (int p = 0; p < PROFILES; p++)
        fprintf(stderr, " %s", profiles[p].name);
    fprintf(stderr, "\n");
    return 2;
}

static int usage(void) {
    fprintf(stderr, "usage: checks --list PROFILE\n"
                    "       checks [--target N] [--may-set-clock] NAME\n");
    return 2;
}

int main(int argc, char **argv) {
    int i = 1;
    if (argc == 3 && strcmp(argv[1], "--list") == 0)
        return list(argv[2]);
    if (argc > 2 && strcmp(argv[1], "--namespace") == 0)
        return namespace_exec_main(argc - 2, argv + 2);
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--target") == 0 && i + 1 < argc)
            target = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--may-set-clock") == 0)
            clock_may_be_set = true;
        else
            return usage();
    }
    if (i + 1 != argc || target == 0)
        return usage();
    for (int k = 0; k < CHECKS; k++) {
        if (strcmp(checks[k].name, argv[i]) != 0)
            continue;
        report_begin();
        checks[k].run();
        expect(report->good > 0 || report->impossible, "nothing was read");
        report_end(argv[i]);
        return 0;
    }
    fprintf(stderr, "checks: no check '%s'\n", argv[i]);
    return 2;
}
