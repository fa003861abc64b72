/* SPDX-License-Identifier: MIT */
#include "text.h"

#include <fastclock.h>
#include <string.h>

static const struct {
    int32_t source;
    const char *name;
} source_names[] = {
    {FC_SOURCE_AUTO, "auto"},
    {FC_SOURCE_NONE, "none"},
    {FC_SOURCE_KERNEL_PAGE, "kernel-page"},
    {FC_SOURCE_TIMEKEEP, "timekeep"},
    {FC_SOURCE_VDSO, "vdso"},
    {FC_SOURCE_SYSCALL, "syscall"},
    {FC_SOURCE_LIBC, "libc"},
};

enum { SOURCE_NAMES = sizeof source_names / sizeof *source_names };

const char *fc_source_name(int32_t source) {
    for (int i = 0; i < SOURCE_NAMES; i++)
        if (source_names[i].source == source)
            return source_names[i].name;
    return "unknown";
}

bool fc_source_by_name(const char *name, int32_t *source) {
    if (strcmp(name, "off") == 0) {
        *source = FC_SOURCE_LIBC;
        return true;
    }
    for (int i = 0; i < SOURCE_NAMES; i++) {
        const int32_t s = source_names[i].source;
        if (s != FC_SOURCE_NONE && s != FC_SOURCE_LIBC && strcmp(name, source_names[i].name) == 0) {
            *source = s;
            return true;
        }
    }
    return false;
}

const char *fc_reason_text(int32_t reason) {
    switch ((enum fc_reason)reason) {
    case FC_REASON_NONE: return "nothing is against it";
    case FC_REASON_NOT_TRIED: return "it was not needed, or another source was asked for";
    case FC_REASON_NOT_LINUX: return "it exists on Linux only";
    case FC_REASON_NO_COUNTER: return "no counter is known for this architecture";
    case FC_REASON_COUNTER_DISABLED:
        return "prctl(PR_SET_TSC) forbids this process to read the counter";
    case FC_REASON_COUNTER_UNCERTAIN:
        return "prctl(PR_GET_TSC) was refused, so that reading the counter could kill the process";
    case FC_REASON_COUNTER_STUCK: return "the counter does not advance";
    case FC_REASON_NO_VDSO: return "the kernel gave this process no vDSO";
    case FC_REASON_NO_MAPS: return "/proc/self/maps cannot be read";
    case FC_REASON_NO_VVAR: return "no [vvar] mapping lies before the vDSO";
    case FC_REASON_UNREADABLE: return "the page is mapped but cannot be read";
    case FC_REASON_LAYOUT: return "the page has no layout that this version knows";
    case FC_REASON_PROOF: return "a reading lay outside its bracket of two system calls";
    case FC_REASON_UNSTABLE: return "the clocks were set so often that nothing could be proved";
    case FC_REASON_MODE_NONE:
        return "the kernel's clocksource cannot be read from user space (it is not tsc)";
    case FC_REASON_MODE_UNKNOWN:
        return "the kernel's clocksource has a mode that this version cannot read";
    case FC_REASON_BUSY: return "the page was being written, or its count is out of range";
    case FC_REASON_NO_SYMBOL: return "no clock function was found in the vDSO";
    case FC_REASON_REFUSED: return "the system call was refused";
    case FC_REASON_NOT_OPTED_IN:
        return "it is used only when asked for by name (FASTCLOCK_SOURCE=timekeep): a read then "
               "costs "
               "what reading the counter costs, at the risk that the counter, which the kernel may "
               "have reason not to trust, is wrong";
    case FC_REASON_NO_PAGE: return "no timekeep page is published, or it is not to be trusted";
    case FC_REASON_UNKNOWN_NAME:
        return "FASTCLOCK_SOURCE must be auto, kernel-page, timekeep, vdso, syscall or off";
    case FC_REASON_SECURE:
        return "FASTCLOCK_SOURCE is ignored in a program that runs with raised privileges";
    case FC_REASON_PARAVIRTUAL: return "the hypervisor's page is not marked as usable";
    case FC_REASON_SWITCHED_OFF:
        return "the host's timekeep page is switched off (fastclock publish --off)";
    case FC_REASON_OUT_OF_SERVICE:
        return "the timekeep page is out of service: its publisher does not trust the counter, or "
               "not this processor's";
    }
    return "no such reason";
}

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

const char *fc_version(void) {
    return TEXT(FASTCLOCK_VERSION_MAJOR) "." TEXT(FASTCLOCK_VERSION_MINOR) "." TEXT(
        FASTCLOCK_VERSION_PATCH);
}
