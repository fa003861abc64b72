/* SPDX-License-Identifier: MIT
 *
 * fastclock info: the doctor. What is in use and why nothing better, what that costs against what
 * it could cost, and what can be done about it. Advice comes from what was measured and from what
 * the kernel says of itself, never from the name of a machine.
 */
#define _GNU_SOURCE
#include <fastclock.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "machine.h"
#include "measure.h"
#include "threads.h"

enum cost {
    COST_EMPTY,
    COST_COUNTER_RELAXED,
    COST_COUNTER_ORDERED,
    COST_RELAXED,
    COST_ORDERED,
    COST_COARSE,
    COST_LIBC,
    COST_LIBC_COARSE,
    COST_VDSO,
    COST_SYSCALL,
    COSTS
};

/* One paragraph of advice. */
struct advice {
    bool problem; /* else: as it should be */
    char text[640];
};

enum { ADVICE_MAX = 8 };

struct findings {
    struct machine machine;
    struct fc_info info;
    uint64_t counter_hz;
    const char *hz_from;
    uint64_t resolution_ns[CLI_CLOCKS]; /* 0: the kernel does not know the clock */
    struct measured costs[COSTS];
    bool skew_tested;
    uint64_t skew_steps, skew_back_ticks;
    struct advice advice[ADVICE_MAX];
    uint32_t advice_count;
};

/* ---- Looking ----------------------------------------------------------------------------------
 */

static bool look(struct findings *f) {
    const int any = MEASURE_ANY_SOURCE;
    const struct measured costs[COSTS] = {
        [COST_EMPTY] = {CLI_WAY_EMPTY, FC_MONOTONIC, any, false, 0, 0},
        [COST_COUNTER_RELAXED] = {CLI_WAY_COUNTER_RELAXED, FC_MONOTONIC, any, false, 0, 0},
        [COST_COUNTER_ORDERED] = {CLI_WAY_COUNTER_ORDERED, FC_MONOTONIC, any, false, 0, 0},
        [COST_RELAXED] = {CLI_WAY_RELAXED, FC_MONOTONIC, any, false, 0, 0},
        [COST_ORDERED] = {CLI_WAY_ORDERED, FC_MONOTONIC, any, false, 0, 0},
        [COST_COARSE] = {CLI_WAY_ORDERED, FC_MONOTONIC_COARSE, any, false, 0, 0},
        [COST_LIBC] = {CLI_WAY_LIBC, FC_MONOTONIC, any, false, 0, 0},
        [COST_LIBC_COARSE] = {CLI_WAY_LIBC, FC_MONOTONIC_COARSE, any, false, 0, 0},
        [COST_VDSO] = {CLI_WAY_VDSO, FC_MONOTONIC, any, false, 0, 0},
        [COST_SYSCALL] = {CLI_WAY_SYSCALL, FC_MONOTONIC, any, false, 0, 0},
    };
    const uint32_t rounds = 300;
    const uint64_t skew_test_ns = 200000000;
    cli_ways_open(); /* if nothing serves, that is what is reported */
    fc_get_info(&f->info, sizeof f->info);
    machine_look(&f->machine);
    if (f->info.counter != 1) {
        f->hz_from = "the counter may not be read: ticks are nanoseconds";
    } else if (f->info.counter_hz) {
        f->hz_from = "the scale in the kernel's page";
    } else {
        f->hz_from = "measured against the raw clock";
    }
    f->counter_hz = fc_ticks_hz();
    for (int i = 0; i < CLI_CLOCKS; i++) {
        struct timespec ts;
        if (fc_clock_getres(cli_clocks[i].id, &ts) == 0)
            f->resolution_ns[i] = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
    }
    memcpy(f->costs, costs, sizeof costs);
    if (!measure(f->costs, COSTS, rounds, "what a read costs"))
        return false;
    /* Where the kernel does not read the counter: whether it could be trusted at all. */
    if (f->info.counter == 1 && f->info.serving != FC_SOURCE_KERNEL_PAGE)
        f->skew_tested =
            handover_test(fc_ticks_ordered, skew_test_ns, &f->skew_steps, &f->skew_back_ticks);
    return true;
}

/* ---- Advice -----------------------------------------------------------------------------------
 */

__attribute__((format(printf, 3, 4))) static void advise(struct findings *f, bool problem,
                                                         const char *format, ...) {
    va_list arguments;
    if (f->advice_count == ADVICE_MAX)
        return;
    f->advice[f->advice_count].problem = problem;
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is right before it */
    vsnprintf(f->advice[f->advice_count].text, sizeof f->advice->text, format, arguments);
    va_end(arguments);
    f->advice_count++;
}

static double cost(const struct findings *f, enum cost which) {
    return f->costs[which].works ? f->costs[which].min_ns : -1;
}

/* Whether the C library enters the kernel for every reading. */
static bool libc_enters_kernel(const struct findings *f) {
    return f->costs[COST_LIBC].works && f->costs[COST_SYSCALL].works &&
           cost(f, COST_LIBC) > .7 * cost(f, COST_SYSCALL);
}

#if defined(__x86_64__) || defined(__i386__)

/* The kernel does not use the TSC, or not in a way that programs can follow. */
static void advise_on_counter(struct findings *f) {
    const struct machine *m = &f->machine;
    const bool in_step = f->skew_tested && f->skew_back_ticks == 0;
    const bool sound = in_step && machine_feature(m, "invariant") == FLAG_YES;
    if (machine_has_word(m->clocksources, "tsc") && strcmp(m->clocksource, "tsc") != 0) {
        advise(f, true,
               "The kernel's clocksource is %s, although it still offers tsc. As root: echo tsc > "
               "/sys/devices/system/clocksource/clocksource0/current_clocksource; to keep it, boot "
               "with clocksource=tsc. fastclock takes it up at the next read.",
               m->clocksource);
    } else {
        advise(
            f, true,
            "The kernel does not offer the TSC as a clocksource (it offers: %s)%s%s. Its log says "
            "why: journalctl -k | grep -i -e tsc -e clocksource.",
            *m->clocksources ? m->clocksources : "nothing that can be seen",
            *m->boot_tsc ? "; it was booted with " : "", m->boot_tsc);
    }
    if (!f->skew_tested)
        return;
    if (sound)
        advise(f, true,
               "In %" PRIu64
               " hand-overs between %u threads the counters of all processors were in "
               "step, and the processor calls them invariant. If whoever runs the machine vouches "
               "for that, boot with tsc=reliable; or opt in to the timekeep page "
               "(FASTCLOCK_SOURCE=timekeep), at the risk that the kernel had its reasons.",
               f->skew_steps, threads_wanted());
    else if (!in_step)
        advise(
            f, true,
            "The counters of the processors are not in step: a hand-over went back by %" PRIu64
            " ticks. The kernel is right not to use them. Where the last tick is good enough, the "
            "coarse clocks cost %.0f ns.",
            f->skew_back_ticks, cost(f, COST_COARSE));
    else
        advise(f, true,
               "The processor does not call its counter invariant: its rate may change with power "
               "saving. Where the last tick is good enough, the coarse clocks cost %.0f ns.",
               cost(f, COST_COARSE));
}

#else

static void advise_on_counter(struct findings *f) {
    advise(
        f, true,
        "The kernel keeps its clocksource (%s) from programs. On Arm this is mostly for an "
        "erratum of the processor's timer, which the kernel's log names: journalctl -k | grep -i "
        "-e arch_timer -e erratum. Where the last tick is good enough, the coarse clocks cost "
        "%.0f ns.",
        *f->machine.clocksource ? f->machine.clocksource : "unknown", cost(f, COST_COARSE));
}

#endif

static void advise_on_refusal(struct findings *f, int32_t reason) {
    switch (reason) {
    case FC_REASON_MODE_NONE:
    case FC_REASON_MODE_UNKNOWN:
    case FC_REASON_PARAVIRTUAL:
    case FC_REASON_COUNTER_STUCK: advise_on_counter(f); break;
    case FC_REASON_COUNTER_DISABLED:
        advise(f, true,
               "This process may not read the counter: prctl(PR_SET_TSC) was called in it or in a "
               "parent. The vDSO would be killed too; every reading is a system call, but for the "
               "coarse clocks.");
        break;
    case FC_REASON_NO_VDSO:
        if (f->machine.boot_vdso_off)
            advise(f, true, "The kernel was booted with vdso=0; boot without it.");
        else
            advise(f, true,
                   "The kernel gave this process no vDSO. A tool that emulates the processor or "
                   "records the process does that on purpose; otherwise the kernel was built "
                   "without it.");
        break;
    case FC_REASON_COUNTER_UNCERTAIN:
    case FC_REASON_NO_MAPS:
    case FC_REASON_UNREADABLE:
    case FC_REASON_REFUSED:
        advise(f, true,
               "A sandbox stands between this process and the kernel (seccomp: %s). What has to be "
               "allowed at start: openat, read and close of /proc/self/maps, rt_sigprocmask, "
               "prctl(PR_GET_TSC), clock_gettime.",
               f->machine.seccomp == 2   ? "a filter"
               : f->machine.seccomp == 0 ? "none; is /proc mounted?"
                                         : "unknown");
        break;
    case FC_REASON_NO_VVAR:
    case FC_REASON_LAYOUT:
    case FC_REASON_PROOF:
        advise(f, true,
               "The kernel's page is not one that this version can read. That is worth a report, "
               "with the output of this command; the vDSO is correct meanwhile.");
        break;
    default: break;
    }
}

static void advise_all(struct findings *f) {
    const struct fc_info *i = &f->info;
    const int32_t page_reason =
        i->serving_reason ? i->serving_reason : i->reason[FC_SOURCE_KERNEL_PAGE];
    if (i->wanted_reason)
        advise(f, true, "FASTCLOCK_SOURCE is not followed: %s.", fc_reason_text(i->wanted_reason));
    if (i->source == FC_SOURCE_NONE) {
        advise(f, true, "No source serves: no clock can be read in this process.");
    } else if (i->wanted != FC_SOURCE_AUTO && i->wanted == i->source &&
               i->source != FC_SOURCE_KERNEL_PAGE) {
        advise(
            f, true,
            "FASTCLOCK_SOURCE asks for %s. Without it the quickest source that can be trusted is "
            "taken.",
            fc_source_name(i->source));
    } else if (i->serving == FC_SOURCE_KERNEL_PAGE || i->serving == FC_SOURCE_TIMEKEEP) {
        if (f->costs[COST_COUNTER_ORDERED].works)
            advise(f, false,
                   "As quick as it gets: a reading costs %.2f times the counter itself, %.2f times "
                   "the C library's.",
                   cost(f, COST_ORDERED) / cost(f, COST_COUNTER_ORDERED),
                   cost(f, COST_ORDERED) / cost(f, COST_LIBC));
    } else {
        advise_on_refusal(f, page_reason);
    }
    if (i->reason[FC_SOURCE_TIMEKEEP] == FC_REASON_SWITCHED_OFF ||
        i->serving_reason == FC_REASON_SWITCHED_OFF)
        advise(
            f, true,
            "Somebody has switched the host's timekeep page off. `fastclock publish --on`, as "
            "root, lets the programs that are attached to it read it again, and those that start "
            "afterwards.");
    if (libc_enters_kernel(f))
        advise(
            f, true,
            "clock_gettime of the C library enters the kernel at every call here (%.0f ns; a bare "
            "system call is %.0f ns): every program on this machine pays that.",
            cost(f, COST_LIBC), cost(f, COST_SYSCALL));
    if (i->time_namespace == 1)
        advise(f, false,
               "This process is in a time namespace: its monotonic clocks are moved, which costs a "
               "little at each reading.");
}

/* ---- Telling ----------------------------------------------------------------------------------
 */

static const char *flag_word(enum machine_flag value) {
    return value == FLAG_YES ? "yes" : value == FLAG_NO ? "no" : "unknown";
}

/* What became of a source: `in use`, `refused` and so on, with the reason in *why or NULL. */
static const char *source_state(const struct fc_info *info, int32_t source, const char **why) {
    const int32_t reason = info->reason[source];
    *why = NULL;
    if (source == info->source)
        return info->serving == source ? "in use" : "standing back";
    if (reason == FC_REASON_NOT_TRIED)
        return "not needed";
    if (reason == FC_REASON_NONE)
        return "available";
    *why = fc_reason_text(reason);
    return reason == FC_REASON_NOT_OPTED_IN ? "not asked for" : "refused";
}

static const char *cost_name(const struct findings *f, enum cost which) {
    static const char *const names[COSTS] = {
        [COST_COARSE] = "fastclock, coarse",
        [COST_LIBC_COARSE] = "libc, coarse",
    };
    return names[which] ? names[which] : cli_way_name(f->costs[which].way);
}

static void wrap(const char *lead, const char *text) {
    const size_t width = 92;
    size_t column = strlen(lead);
    fputs(lead, stdout);
    while (*text) {
        const size_t word = strcspn(text, " ");
        if (column + 1 + word > width) {
            fputs("\n   ", stdout);
            column = 3;
        }
        printf(" %.*s", (int)word, text);
        column += 1 + word;
        text += word;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_text(const struct findings *f) {
    const struct machine *m = &f->machine;
    const struct fc_info *i = &f->info;
    printf("fastclock %s\n\n", fc_version());
    printf("processor      %s, %ld online, %s\n", *m->processor ? m->processor : "unnamed",
           m->processors_online, m->architecture);
    printf("kernel         %s%s%s\n", m->kernel, *m->boot_tsc ? ", booted with " : "", m->boot_tsc);
    printf("hypervisor     %s%s%s%s\n", *m->hypervisor ? m->hypervisor : "none seen",
           *m->hypervisor_signature ? " (" : "", m->hypervisor_signature,
           *m->hypervisor_signature ? ")" : "");
    printf("clocksource    %s; available: %s\n", *m->clocksource ? m->clocksource : "unknown",
           *m->clocksources ? m->clocksources : "unknown");
    printf("counter        %s, %" PRIu64 " Hz (%s)\n",
           i->counter == 1 ? "may be read" : "may not be read", f->counter_hz, f->hz_from);
    for (uint32_t k = 0; k < m->feature_count; k++)
        printf("  %-12s %-8s %s\n", m->features[k].name, flag_word(m->features[k].flag),
               m->features[k].meaning);
    printf("page           layout %s, mode %" PRId32 "\n",
           *i->layout ? i->layout : "not recognised", i->mode);
    if (i->time_namespace == 1)
        printf("time namespace monotonic %+" PRId64 " s, boottime %+" PRId64 " s\n",
               m->namespace_monotonic_s, m->namespace_boottime_s);
    else
        printf("time namespace %s\n", i->time_namespace == 0 ? "none" : "unknown");

    printf("\nsource         state\n");
    for (int32_t source = FC_SOURCE_KERNEL_PAGE; source <= FC_SOURCE_LIBC; source++) {
        const char *why, *state = source_state(i, source, &why);
        printf("  %-12s %s%s%s\n", fc_source_name(source), state, why ? ": " : "", why ? why : "");
    }
    if (i->serving != i->source)
        printf("  readings are answered by %s: %s\n", fc_source_name(i->serving),
               fc_reason_text(i->serving_reason));

    printf("\nclock            resolution\n");
    for (int k = 0; k < CLI_CLOCKS; k++)
        if (f->resolution_ns[k])
            printf("  %-16s%9" PRIu64 " ns\n", cli_clocks[k].name, f->resolution_ns[k]);
        else
            printf("  %-16s  unknown to the kernel\n", cli_clocks[k].name);
    if (i->tai_offset_s)
        printf("  tai is %" PRId32 " s ahead of realtime\n", i->tai_offset_s);
    else
        printf("  tai equals realtime: most likely nobody told the kernel the offset\n");

    printf("\na read of the monotonic clock, ns    minimum   median\n");
    for (int k = 0; k < COSTS; k++) {
        printf("  %-34s", cost_name(f, (enum cost)k));
        if (f->costs[k].works)
            printf(" %7.1f  %7.1f\n", f->costs[k].min_ns, f->costs[k].median_ns);
        else
            printf("       –        –\n");
    }
    putchar('\n');
    for (uint32_t k = 0; k < f->advice_count; k++)
        wrap(f->advice[k].problem ? "  !" : "  ok", f->advice[k].text);
}

static void print_machine_json(struct json *j, const struct findings *f) {
    const struct machine *m = &f->machine;
    json_object(j, "machine");
    json_string(j, "processor", *m->processor ? m->processor : NULL);
    json_string(j, "architecture", m->architecture);
    json_string(j, "kernel", m->kernel);
    json_int(j, "processors_online", m->processors_online);
    json_string(j, "boot_options", m->boot_tsc);
    json_int(j, "seccomp", m->seccomp);
    if (*m->hypervisor) {
        json_object(j, "hypervisor");
        json_string(j, "name", m->hypervisor);
        json_string(j, "signature", m->hypervisor_signature);
        json_object_end(j);
    } else {
        json_null(j, "hypervisor");
    }
    json_object(j, "clocksource");
    json_string(j, "current", *m->clocksource ? m->clocksource : NULL);
    json_array(j, "available");
    for (const char *at = m->clocksources; *at;) {
        char name[64];
        const size_t length = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        json_string(j, NULL, name);
        at += length;
        at += strspn(at, " ");
    }
    json_array_end(j);
    json_object_end(j);
    json_object(j, "counter");
    json_bool(j, "readable", f->info.counter == 1);
    json_uint(j, "hz", f->counter_hz);
    json_string(j, "hz_from", f->hz_from);
    json_object(j, "features");
    for (uint32_t k = 0; k < m->feature_count; k++)
        if (m->features[k].flag == FLAG_UNKNOWN)
            json_null(j, m->features[k].name);
        else
            json_bool(j, m->features[k].name, m->features[k].flag == FLAG_YES);
    json_object_end(j);
    if (f->skew_tested) {
        json_object(j, "hand_over");
        json_uint(j, "steps", f->skew_steps);
        json_uint(j, "largest_step_back_ticks", f->skew_back_ticks);
        json_object_end(j);
    } else {
        json_null(j, "hand_over");
    }
    json_object_end(j);
    json_object_end(j);
}

static void print_source_json(struct json *j, const struct fc_info *i, const struct machine *m) {
    json_string(j, "source", fc_source_name(i->source));
    json_string(j, "serving", fc_source_name(i->serving));
    json_string(j, "serving_reason", i->serving_reason ? fc_reason_text(i->serving_reason) : NULL);
    json_string(j, "coarse_serving", fc_source_name(i->coarse_serving));
    json_string(j, "wanted", fc_source_name(i->wanted));
    json_string(j, "wanted_reason", i->wanted_reason ? fc_reason_text(i->wanted_reason) : NULL);
    json_array(j, "sources");
    for (int32_t source = FC_SOURCE_KERNEL_PAGE; source <= FC_SOURCE_LIBC; source++) {
        const char *why, *state = source_state(i, source, &why);
        json_object(j, NULL);
        json_string(j, "name", fc_source_name(source));
        json_string(j, "state", state);
        json_string(j, "reason", why);
        json_object_end(j);
    }
    json_array_end(j);
    json_string(j, "layout", *i->layout ? i->layout : NULL);
    json_int(j, "mode", i->mode);
    json_uint(j, "proof_rounds", i->proof_rounds);
    json_uint(j, "slow_reads", i->slow_reads);
    json_object(j, "time_namespace");
    if (i->time_namespace < 0)
        json_null(j, "inside");
    else
        json_bool(j, "inside", i->time_namespace == 1);
    json_int(j, "monotonic_offset_s", m->namespace_monotonic_s);
    json_int(j, "boottime_offset_s", m->namespace_boottime_s);
    json_object_end(j);
    json_int(j, "tai_offset_s", i->tai_offset_s);
}

static void print_json(const struct cli_args *args, const struct findings *f) {
    struct json j;
    cli_json_begin(args, &j);
    print_machine_json(&j, f);
    print_source_json(&j, &f->info, &f->machine);
    json_array(&j, "clocks");
    for (int k = 0; k < CLI_CLOCKS; k++) {
        json_object(&j, NULL);
        json_string(&j, "name", cli_clocks[k].name);
        json_int(&j, "id", cli_clocks[k].id);
        if (f->resolution_ns[k])
            json_uint(&j, "resolution_ns", f->resolution_ns[k]);
        else
            json_null(&j, "resolution_ns");
        json_object_end(&j);
    }
    json_array_end(&j);
    json_array(&j, "costs");
    for (int k = 0; k < COSTS; k++) {
        json_object(&j, NULL);
        json_string(&j, "name", cost_name(f, (enum cost)k));
        json_double(&j, "min_ns", f->costs[k].works ? f->costs[k].min_ns : (double)NAN, 2);
        json_double(&j, "median_ns", f->costs[k].works ? f->costs[k].median_ns : (double)NAN, 2);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_array(&j, "advice");
    for (uint32_t k = 0; k < f->advice_count; k++) {
        json_object(&j, NULL);
        json_bool(&j, "problem", f->advice[k].problem);
        json_string(&j, "text", f->advice[k].text);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_end(&j);
}

static int run(struct cli_args *args) {
    struct findings *f;
    const char *value;
    int code, id;
    while ((id = cli_next(args, &value, &code)) != CLI_END)
        if (id == CLI_STOP)
            return code;
    if (args->argc) {
        cli_error(args, "takes no operands, and so not '%s'", args->argv[0]);
        return CLI_USAGE;
    }
    f = calloc(1, sizeof *f);
    if (!f || !look(f)) {
        cli_error(args, "no memory");
        free(f);
        return CLI_UNAVAILABLE;
    }
    advise_all(f);
    if (args->json)
        print_json(args, f);
    else
        print_text(f);
    code = f->info.source == FC_SOURCE_NONE ? CLI_UNAVAILABLE : CLI_OK;
    free(f);
    return code;
}

const struct cli_command command_info = {
    .name = "info",
    .operands = "",
    .summary = "which source of time is used here and why, what a read costs, what to do",
    .text = "Tells which source of time is in use and why each earlier one was refused; what the\n"
            "kernel and the processor say of their clocks; what a read costs here against what it\n"
            "could; and, where it is slow, what to do. Takes less than a second.\n"
            "Exit code 3 if no source serves.",
    .run = run,
};
