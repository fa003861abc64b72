/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "machine.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- Files of the kernel ----------------------------------------------------------------------
 */

/* The first line of a file, without its end; empty if it cannot be read. */
static void first_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "re");
    *line = '\0';
    if (!file)
        return;
    if (!fgets(line, (int)size, file))
        *line = '\0';
    fclose(file);
    for (size_t length = strlen(line); length && isspace((unsigned char)line[length - 1]);)
        line[--length] = '\0';
}

/* The value of "key : value", as in /proc/cpuinfo and /proc/self/status. */
static bool value_of(const char *path, const char *key, char *value, size_t size) {
    FILE *file = fopen(path, "re");
    const size_t length = strlen(key);
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    *value = '\0';
    if (!file)
        return false;
    while (!found && getline(&line, &room, file) > 0) {
        const char *at = line + length;
        if (strncmp(line, key, length) != 0)
            continue;
        while (*at == ' ' || *at == '\t')
            at++;
        if (*at++ != ':')
            continue;
        while (isspace((unsigned char)*at))
            at++;
        snprintf(value, size, "%.*s", (int)strcspn(at, "\n"), at);
        found = true;
    }
    free(line);
    fclose(file);
    return found;
}

static bool is_word(const char *at, size_t length, const char *word) {
    return length == strlen(word) && memcmp(at, word, length) == 0;
}

bool machine_has_word(const char *words, const char *word) {
    while (*words) {
        const size_t here = strcspn(words, " ");
        if (is_word(words, here, word))
            return true;
        words += here;
        words += strspn(words, " ");
    }
    return false;
}

enum machine_flag machine_feature(const struct machine *m, const char *name) {
    for (uint32_t i = 0; i < m->feature_count; i++)
        if (strcmp(m->features[i].name, name) == 0)
            return m->features[i].flag;
    return FLAG_UNKNOWN;
}

/* Words of the kernel's command line that concern its clocks. */
static void look_at_boot(struct machine *m) {
    char line[4096], *rest = line, *word;
    first_line("/proc/cmdline", line, sizeof line);
    while ((word = strsep(&rest, " "))) {
        const size_t used = strlen(m->boot_tsc);
        if (strcmp(word, "vdso=0") == 0)
            m->boot_vdso_off = true;
        if (strncmp(word, "tsc=", 4) == 0 || strcmp(word, "notsc") == 0 ||
            strncmp(word, "clocksource=", 12) == 0 || strcmp(word, "nohpet") == 0 ||
            strcmp(word, "no-kvmclock") == 0)
            snprintf(m->boot_tsc + used, sizeof m->boot_tsc - used, "%s%s", used ? " " : "", word);
    }
}

/* A line is a clock, by its name or on older kernels by its number, and seconds and nanoseconds. */
static void look_at_namespace(struct machine *m) {
    FILE *file = fopen("/proc/self/timens_offsets", "re");
    char line[128];
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        const char *at = line + strspn(line, " ");
        const size_t length = strcspn(at, " ");
        const int64_t seconds = strtoll(at + length, NULL, 10);
        if (is_word(at, length, "monotonic") || is_word(at, length, "1"))
            m->namespace_monotonic_s = seconds;
        if (is_word(at, length, "boottime") || is_word(at, length, "7"))
            m->namespace_boottime_s = seconds;
    }
    fclose(file);
}

/* ---- The processor ----------------------------------------------------------------------------
 */

static void feature(struct machine *m, const char *name, enum machine_flag flag,
                    const char *meaning) {
    if (m->feature_count < FEATURES_MAX)
        m->features[m->feature_count++] = (struct machine_feature){name, meaning, flag};
}

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

static enum machine_flag bit(uint32_t word, int at) {
    return word >> at & 1 ? FLAG_YES : FLAG_NO;
}

/* A flag that the kernel works out from more than CPUID. */
static enum machine_flag kernel_flag(const char *flags, const char *name) {
    if (!*flags)
        return FLAG_UNKNOWN;
    return machine_has_word(flags, name) ? FLAG_YES : FLAG_NO;
}

static void look_at_hypervisor(struct machine *m) {
    static const struct {
        const char *signature, *name;
    } known[] = {{"KVMKVMKVM", "KVM"},
                 {"Microsoft Hv", "Hyper-V"},
                 {"XenVMMXenVMM", "Xen"},
                 {"VMwareVMware", "VMware"},
                 {"TCGTCGTCGTCG", "QEMU's emulation (TCG)"},
                 {"bhyve bhyve ", "bhyve"},
                 {"prl hyperv", "Parallels"},
                 {"VBoxVBoxVBox", "VirtualBox"},
                 {"QNXQVMBSQG", "QNX"},
                 {"ACRNACRNACRN", "ACRN"}};
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 31 & 1))
        return;
    __cpuid(0x40000000, a, b, c, d);
    memcpy(m->hypervisor_signature, &b, 4);
    memcpy(m->hypervisor_signature + 4, &c, 4);
    memcpy(m->hypervisor_signature + 8, &d, 4);
    snprintf(m->hypervisor, sizeof m->hypervisor, "unknown");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(m->hypervisor_signature, known[i].signature) == 0)
            snprintf(m->hypervisor, sizeof m->hypervisor, "%s", known[i].name);
}

static void look_at_processor(struct machine *m) {
    char flags[4096];
    uint32_t a, b, c, d, power = 0, extended = 0, structured = 0;
    value_of("/proc/cpuinfo", "flags", flags, sizeof flags);
    if (__get_cpuid(0x80000007, &a, &b, &c, &d))
        power = d;
    if (__get_cpuid(0x80000001, &a, &b, &c, &d))
        extended = d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        structured = c;
    feature(m, "invariant", bit(power, 8),
            "the TSC runs at one rate in every state of the processor");
    feature(m, "nonstop", kernel_flag(flags, "nonstop_tsc"),
            "it does not stop in deep idle states");
    feature(m, "known_rate", kernel_flag(flags, "tsc_known_freq"),
            "its rate was told to the kernel, not measured");
    feature(m, "rdtscp", bit(extended, 27), "counter and processor number in one instruction");
    feature(m, "rdpid", bit(structured, 22), "the processor number in one instruction");
    feature(m, "umip", kernel_flag(flags, "umip"),
            "the kernel keeps sgdt, sidt and sldt from programs");
    look_at_hypervisor(m);
}

#else

static void look_at_processor(struct machine *m) {
    char features[4096];
    value_of("/proc/cpuinfo", "Features", features, sizeof features);
    feature(m, "ecv",
            !*features                          ? FLAG_UNKNOWN
            : machine_has_word(features, "ecv") ? FLAG_YES
                                                : FLAG_NO,
            "the counter can be read in order without a barrier (FEAT_ECV)");
    first_line("/sys/hypervisor/type", m->hypervisor, sizeof m->hypervisor);
    if (!*m->hypervisor)
        first_line("/proc/device-tree/hypervisor/compatible", m->hypervisor, sizeof m->hypervisor);
}

#endif

void machine_look(struct machine *m) {
    static const char clocksource[] = "/sys/devices/system/clocksource/clocksource0/";
    struct utsname names;
    char path[96], text[16];
    memset(m, 0, sizeof *m);
    if (uname(&names) == 0) {
        snprintf(m->architecture, sizeof m->architecture, "%s", names.machine);
        snprintf(m->kernel, sizeof m->kernel, "%s", names.release);
    }
    if (!value_of("/proc/cpuinfo", "model name", m->processor, sizeof m->processor))
        value_of("/proc/cpuinfo", "CPU part", m->processor, sizeof m->processor);
    m->processors_online = sysconf(_SC_NPROCESSORS_ONLN);
    snprintf(path, sizeof path, "%scurrent_clocksource", clocksource);
    first_line(path, m->clocksource, sizeof m->clocksource);
    snprintf(path, sizeof path, "%savailable_clocksource", clocksource);
    first_line(path, m->clocksources, sizeof m->clocksources);
    m->seccomp = value_of("/proc/self/status", "Seccomp", text, sizeof text)
                     ? (int)strtol(text, NULL, 10)
                     : -1;
    look_at_boot(m);
    look_at_namespace(m);
    look_at_processor(m);
}
