/* SPDX-License-Identifier: MIT
 *
 * The source that is asked for is the one that is used: seen by the instructions that a read
 * executes, and by taking away the system calls that it must not need.
 */
#define _GNU_SOURCE
#include "clocks.h"
#include "deny.h"
#include "step.h"

/* ---- Seen by the instructions -----------------------------------------------------------------
 */

/* Calls on the C library's clock_gettime are resolved, and everything is mapped in. */
static void warm_up(void) {
    uint64_t ns;
    struct timespec ts;
    for (int i = 0; i < CLOCK_READS; i++)
        clock_reads[i].read();
    for (int i = 0; i < CLOCKS; i++) {
        CHECK(fc_read_ns(clocks[i], &ns) == 0, "clock %d", (int)clocks[i]);
        CHECK(fc_clock_gettime(clocks[i], &ts) == 0, "clock %d", (int)clocks[i]);
    }
}

static void judge(const char *name, int32_t source, enum kind kind, struct step_seen seen) {
    const bool by_kernel = source == FC_SOURCE_SYSCALL;
    const bool by_vdso = source == FC_SOURCE_VDSO || source == FC_SOURCE_LIBC;
    CHECK(seen.instructions > 0, "%s: nothing was seen", name);
    CHECK(seen.allocations == 0, "%s allocates memory", name);
    CHECK(seen.system_calls == (by_kernel ? 1u : 0u), "%s: %u system calls", name,
          seen.system_calls);
    CHECK((seen.libc_gettimes != 0) == (source == FC_SOURCE_LIBC), "%s: %u calls of clock_gettime",
          name, seen.libc_gettimes);
#ifdef __x86_64__ /* in 32-bit programs a system call goes through the vDSO too */
    CHECK((seen.in_vdso != 0) == by_vdso, "%s: %u of %u instructions are the vDSO's", name,
          seen.in_vdso, seen.instructions);
#else
    CHECK((seen.in_vdso != 0) == (by_vdso || by_kernel), "%s: %u of %u instructions are the vDSO's",
          name, seen.in_vdso, seen.instructions);
#endif
    /* The page's sequence may move under the magnifying glass, and then the counter is read once
     * more. */
    if (by_kernel || kind == COARSE)
        CHECK(seen.counter_reads == 0, "%s: %u reads of the counter", name, seen.counter_reads);
    else
        CHECK(seen.counter_reads >= 1, "%s does not read the counter", name);
    if (kind == RELAXED && source == FC_SOURCE_KERNEL_PAGE)
        CHECK(seen.fences == 0, "%s: %u fences", name, seen.fences);
}

/* Each instruction takes as long as hundreds do otherwise, so that the page may be written amid
 * every look, and the read leaves it. Such a read is looked at again. */
#define STEP(seen, call)                                                                           \
    do {                                                                                           \
        for (int tries_ = 0; tries_ < 10; tries_++) {                                              \
            const uint64_t slow_ = info_now().slow_reads;                                          \
            step_begin();                                                                          \
            call;                                                                                  \
            seen = step_end();                                                                     \
            if (info_now().slow_reads == slow_)                                                    \
                break;                                                                             \
        }                                                                                          \
    } while (0)

static void need_fewer_instructions(void) {
#ifdef __SANITIZE_THREAD__
    CANNOT("with " CHECK_SANITIZER " a read, one step at a time, takes longer than a tick");
#endif
}

static void source_is_what_is_executed(const void *argument) {
    const struct source *source = argument;
    struct step_seen seen;
    struct timespec ts;
    uint64_t ns;
    need_fewer_instructions();
    use_source(source);
    warm_up();
    for (int i = 0; i < CLOCK_READS; i++) {
        STEP(seen, clock_reads[i].read());
        judge(clock_reads[i].name, source->number, clock_reads[i].kind, seen);
    }
    for (int i = 0; i < CLOCKS; i++) {
        const enum kind kind = is_coarse(clocks[i]) ? COARSE : ORDERED;
        STEP(seen, fc_read_ns(clocks[i], &ns));
        judge("fc_read_ns", source->number, kind, seen);
        STEP(seen, fc_clock_gettime(clocks[i], &ts));
        judge("fc_clock_gettime", source->number, kind, seen);
    }
}

/* Selected while running, and back, the same holds. */
static void selected_source_is_what_is_executed(const void *argument) {
    (void)argument;
    need_fewer_instructions();
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < SOURCES; i++) {
            struct step_seen seen;
            CHECK(fc_select(sources[i].number) == 0, "%s: %s", sources[i].name,
                  fc_reason_text(info_now().reason[sources[i].number]));
            CHECK(info_now().wanted == sources[i].number, "wanted is %d", (int)info_now().wanted);
            warm_up();
            STEP(seen, fc_monotonic_ns());
            judge("fc_monotonic_ns", sources[i].number, ORDERED, seen);
        }
}

/* ---- Seen by what is taken away ---------------------------------------------------------------
 */

/* SIGSYS kills. */
static void reads_need_no_system_call(const void *argument) {
    use_source(argument);
    deny_time_calls(SECCOMP_RET_KILL_PROCESS);
    for (uint64_t i = 0; i < check_rounds(100000); i++)
        for (int r = 0; r < CLOCK_READS; r++)
            CHECK(clock_reads[r].read() != FC_NO_TIME, "%s tells no time", clock_reads[r].name);
}

/* Counts the calls, and answers each by the vDSO, which is not forbidden. */
static volatile sig_atomic_t trapped;

static void answer(int number, siginfo_t *info, void *context) {
    ucontext_t *registers = context;
    greg_t *r = registers->uc_mcontext.gregs;
    struct timespec ts;
    (void)number;
    (void)info;
    trapped = trapped + 1;
#ifdef __x86_64__
    clock_gettime((clockid_t)r[REG_RDI], &ts);
    ((int64_t *)r[REG_RSI])[0] = ts.tv_sec;
    ((int64_t *)r[REG_RSI])[1] = ts.tv_nsec;
    r[REG_RAX] = 0;
#else /* the 64-bit call, or its answer would have to be narrow */
    clock_gettime((clockid_t)r[REG_EBX], &ts);
    ((int64_t *)r[REG_ECX])[0] = ts.tv_sec;
    ((int64_t *)r[REG_ECX])[1] = ts.tv_nsec;
    r[REG_EAX] = 0;
#endif
}

static void syscall_traps_once(const void *argument) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO;
    use_source(argument);
    MUST(sigaction(SIGSYS, &action, NULL));
    deny_time_calls(SECCOMP_RET_TRAP);
    for (int i = 0; i < CLOCK_READS; i++) {
        uint64_t ns, control_before = 0, control_after = 0;
        bracket_libc_ns(clock_reads[i].clock, &control_before);
        trapped = 0;
        ns = clock_reads[i].read();
        CHECK(trapped == 1, "%s: %d system calls", clock_reads[i].name, (int)trapped);
        bracket_libc_ns(clock_reads[i].clock, &control_after);
        CHECK(control_before <= ns && ns <= control_after,
              "%s: %" PRIu64 " is not the call's answer", clock_reads[i].name, ns);
    }
}

static void auto_chooses_the_page(const void *argument) {
    const struct fc_info info = info_now();
    (void)argument;
    CHECK(info.source == FC_SOURCE_KERNEL_PAGE, "it chose %s; the page: %s",
          fc_source_name(info.source), fc_reason_text(info.reason[FC_SOURCE_KERNEL_PAGE]));
    CHECK(info.serving == FC_SOURCE_KERNEL_PAGE, "%s serves: %s", fc_source_name(info.serving),
          fc_reason_text(info.serving_reason));
    CHECK(info.wanted == FC_SOURCE_AUTO && info.wanted_reason == 0, "wanted %d, reason %d",
          (int)info.wanted, (int)info.wanted_reason);
    CHECK(info.layout[0] != '\0', "the layout has no name");
    CHECK(info.proof_rounds >= 16 * 5, "%u rounds", (unsigned)info.proof_rounds);
}

static void reads_stay_on_the_page(const void *argument) {
    const uint64_t rounds = check_rounds(1000000);
    uint64_t slow;
    (void)argument;
    use_source(&sources[0]);
    warm_up();
    slow = info_now().slow_reads;
    for (uint64_t i = 0; i < rounds; i++)
        fc_monotonic_ns();
    /* One in thousands may find the writer interrupted in the middle, if that is a virtual
     * machine's processor that lost its own. */
    CHECK(info_now().slow_reads - slow <= rounds / 1000, "%" PRIu64 " reads left the page",
          info_now().slow_reads - slow);
}

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    check_that("where the clocksource is the counter, auto chooses the kernel's page",
               auto_chooses_the_page, NULL);
    check_that("a million reads stay on the page", reads_stay_on_the_page, NULL);
    for (int s = 0; s < SOURCES; s++) {
        snprintf(sentence, sizeof sentence, "%s: it is what a read executes", sources[s].name);
        check_that(sentence, source_is_what_is_executed, &sources[s]);
    }
    check_that("what fc_select names is what a read executes", selected_source_is_what_is_executed,
               NULL);
    for (int s = 0; s < SOURCES; s++) {
        if (sources[s].number == FC_SOURCE_SYSCALL)
            continue;
        snprintf(sentence, sizeof sentence, "%s: reads go on where system calls for time kill",
                 sources[s].name);
        check_that(sentence, reads_need_no_system_call, &sources[s]);
    }
    check_that("syscall: each read is one system call and returns its answer", syscall_traps_once,
               &sources[2]);
    return check_end();
}
