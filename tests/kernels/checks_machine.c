/* SPDX-License-Identifier: MIT
 *
 * What is done to the machine while threads read: clocksources, processors, suspend; and what is
 * claimed of a kernel that was booted without a vDSO or a counter that it trusts.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checks.h"
#include "readers.h"
#include "report.h"

static const struct readers_setup plain = {.limit_ns = 0};

#define CLOCKSOURCE "/sys/devices/system/clocksource/clocksource0/"
#if defined(__aarch64__)
#define COUNTER_CLOCKSOURCE "arch_sys_counter"
#else
#define COUNTER_CLOCKSOURCE "tsc"
#endif

/* ---- Files and facts --------------------------------------------------------------------------
 */

bool file_read(const char *path, char *text, size_t size) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;
    if (fd < 0)
        return false;
    length = read(fd, text, size - 1);
    close(fd);
    if (length < 0)
        return false;
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' '))
        length--;
    text[length] = '\0';
    return true;
}

int file_write(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    int error = 0;
    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        error = -errno;
    close(fd);
    return error;
}

bool clocksource_is(const char *name) {
    char text[64];
    return file_read(CLOCKSOURCE "current_clocksource", text, sizeof text) &&
           strcmp(text, name) == 0;
}

bool clocksource_available(const char *name) {
    char text[256], *rest = text, *word;
    if (!file_read(CLOCKSOURCE "available_clocksource", text, sizeof text))
        return false;
    while ((word = strsep(&rest, " ")))
        if (strcmp(word, name) == 0)
            return true;
    return false;
}

int clocksource_set(const char *name) {
    const int error = file_write(CLOCKSOURCE "current_clocksource", name);
    if (error)
        return error;
    return clocksource_is(name) ? 0 : -EINVAL; /* an unknown name is ignored without an error */
}

struct fc_info get_info(void) {
    struct fc_info info;
    const int32_t error = fc_get_info(&info, sizeof info);
    expect(error == 0, "fc_get_info: %d", (int)error);
    return info;
}

uint64_t slow_reads(void) {
    return get_info().slow_reads;
}

bool expect_fast(const char *when) {
    const struct fc_info info = get_info();
    return expect(info.source == FC_SOURCE_KERNEL_PAGE && info.serving == FC_SOURCE_KERNEL_PAGE &&
                      info.serving_reason == 0 && info.mode == 1,
                  "%s: source %s (%s), serving %s (%s), mode %d; wanted the kernel's page", when,
                  fc_source_name(info.source), fc_reason_text(info.reason[FC_SOURCE_KERNEL_PAGE]),
                  fc_source_name(info.serving), fc_reason_text(info.serving_reason), info.mode);
}

bool expect_slow(const char *when) {
    const struct fc_info info = get_info();
    return expect(
        info.source == FC_SOURCE_KERNEL_PAGE &&
            (info.serving == FC_SOURCE_VDSO || info.serving == FC_SOURCE_SYSCALL) &&
            info.serving_reason == FC_REASON_MODE_NONE && info.mode == 0 &&
            info.coarse_serving == FC_SOURCE_KERNEL_PAGE,
        "%s: source %s, serving %s (%s), mode %d, coarse %s; wanted the kernel to be asked", when,
        fc_source_name(info.source), fc_source_name(info.serving),
        fc_reason_text(info.serving_reason), info.mode, fc_source_name(info.coarse_serving));
}

/* ---- Sources ----------------------------------------------------------------------------------
 */

void check_source(void) {
    struct fc_info info;
    expect(fc_init() == 0, "fc_init: no source");
    expect(clocksource_is(COUNTER_CLOCKSOURCE), "the clocksource is not " COUNTER_CLOCKSOURCE);
    expect_fast("at start");
    info = get_info();
    expect(info.layout[0] != 0 && info.proof_rounds > 0, "layout '%s', %u rounds of proof",
           info.layout, info.proof_rounds);
    expect(info.time_namespace == 0, "time_namespace is %d", info.time_namespace);
    expect(info.counter_hz > 0 && info.coarse_resolution_ns > 0 && info.resolution_ns > 0,
           "counter %" PRIu64 " Hz, resolution %" PRIu64 " ns, coarse %" PRIu64 " ns",
           info.counter_hz, info.resolution_ns, info.coarse_resolution_ns);
    read_for(&plain, target);
    expect_fast("after the reads");
    note("layout %s", info.layout);
}

void check_sources_forced(void) {
    static const int32_t sources[] = {FC_SOURCE_KERNEL_PAGE, FC_SOURCE_VDSO, FC_SOURCE_SYSCALL,
                                      FC_SOURCE_LIBC};
    for (int i = 0; i < 4; i++) {
        const int32_t error = fc_select(sources[i]);
        struct fc_info info = get_info();
        if (!expect(error == 0, "fc_select(%s): %s", fc_source_name(sources[i]),
                    fc_reason_text(info.reason[sources[i]])))
            return;
        expect(info.source == sources[i] && info.serving == sources[i],
               "%s was selected, source is %s, serving %s", fc_source_name(sources[i]),
               fc_source_name(info.source), fc_source_name(info.serving));
        read_for(&plain, target / 4);
        info = get_info();
        expect(info.serving == sources[i], "%s was selected, serving %s after the reads",
               fc_source_name(sources[i]), fc_source_name(info.serving));
    }
    expect(fc_select(FC_SOURCE_AUTO) == 0, "fc_select(auto)");
}

/* ---- Clocksources -----------------------------------------------------------------------------
 */

/* With nobody else reading, every read can be accounted for. */
void check_clocksource_exact(void) {
    static const char *const others[] = {"hpet", "acpi_pm"};
    enum { ROUNDS = 4, READS = 200 };
    struct reader *alone = reader_alone(&plain);
    uint64_t fast = 0, slow = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 2; i++) {
            uint64_t before;
            int error = clocksource_set(others[i]);
            if (!expect(error == 0, "clocksource %s: %s", others[i], strerror(-error)))
                break;
            if (!expect_slow(others[i]))
                break;
            before = slow_reads();
            for (int k = 0; k < READS; k++)
                (void)fc_monotonic_ns();
            slow += READS;
            expect(slow_reads() - before >= READS, "%s: %" PRIu64 " of %d reads left the fast path",
                   others[i], slow_reads() - before, READS);
            reader_run(alone, READS);
            before = slow_reads();
            error = clocksource_set("tsc");
            if (!expect(error == 0, "clocksource tsc: %s", strerror(-error)))
                break;
            before = slow_reads() - before; /* what fc_get_info reads for itself, by now fast */
            expect(before == 0, "the first look after the return to tsc was slow");
            before = slow_reads();
            for (int k = 0; k < READS; k++)
                (void)fc_monotonic_ns();
            fast += READS;
            expect(slow_reads() == before, "%" PRIu64 " of %d reads were slow after the return",
                   slow_reads() - before, READS);
            expect_fast("back on tsc");
            reader_run(alone, READS);
        }
    }
    reader_judge(alone);
    free(alone);
    note("%" PRIu64 " fast, %" PRIu64 " slow, as they had to be", fast, slow);
}

void check_clocksource_round(void) {
    static const char *const names[] = {"hpet", "tsc", "acpi_pm", "tsc"};
    enum { SWITCHES_MIN = 40 };
    uint64_t slow, fine, switches = 0;
    expect_fast("before the first switch");
    slow = slow_reads();
    readers_start(&plain);
    while (readers_go_on(target) || switches < SWITCHES_MIN) {
        const char *name = names[switches % 4];
        const int error = clocksource_set(name);
        if (!expect(error == 0, "clocksource %s: %s", name, strerror(-error)))
            break;
        if (!(strcmp(name, "tsc") == 0 ? expect_fast(name) : expect_slow(name)))
            break;
        switches++;
        usleep(20000);
    }
    fine = readers_fine();
    slow = slow_reads() - slow;
    readers_stop();
    clocksource_set("tsc");
    expect_fast("after the last switch");
    expect(slow > 0 && fine > slow, "%" PRIu64 " fine reads, %" PRIu64 " of them slow", fine, slow);
    note("%" PRIu64 " switches, about %" PRIu64 " %% fast", switches,
         fine ? 100 * (fine - (slow < fine ? slow : fine)) / fine : 0);
}

/* ---- Processors -------------------------------------------------------------------------------
 */

void check_cpu_offline(void) {
    static const char path[] = "/sys/devices/system/cpu/cpu1/online";
    uint64_t times = 0;
    if (access(path, W_OK) != 0) {
        impossible("%s: %s", path, strerror(errno));
        return;
    }
    readers_start(&plain);
    do {
        int error = file_write(path, "0");
        if (!expect(error == 0, "taking a processor offline: %s", strerror(-error)))
            break;
        expect_fast("with a processor offline");
        usleep(50000);
        error = file_write(path, "1");
        if (!expect(error == 0, "bringing a processor back: %s", strerror(-error)))
            break;
        expect_fast("with the processor back");
        usleep(50000);
        times++;
    } while (readers_go_on(target) || times < 3);
    readers_stop();
    note("%" PRIu64 " times", times);
}

/* ---- Suspend ----------------------------------------------------------------------------------
 */

static bool word_in(const char *text, const char *word) {
    char copy[128], *rest = copy, *w;
    snprintf(copy, sizeof copy, "%s", text);
    while ((w = strsep(&rest, " [\n")))
        if (strncmp(w, word, strlen(word)) == 0)
            return true;
    return false;
}

static uint64_t by_kernel(int32_t clock) {
    uint64_t ns = 0;
    bracket_syscall_ns(clock, &ns);
    return ns;
}

static bool kernel_offers(const char *path, const char *word) {
    char text[64];
    if (file_read(path, text, sizeof text) && word_in(text, word))
        return true;
    impossible("%s does not offer %s", path, word);
    return false;
}

/* Writes the state and comes back when the machine has woken up. */
static void sleep_in(const char *state) {
    const uint64_t boot_before = by_kernel(FC_BOOTTIME), mono_before = by_kernel(FC_MONOTONIC);
    const int error = file_write("/sys/power/state", state);
    int64_t slept, ours;
    if (!expect(error == 0, "writing %s to /sys/power/state: %s", state, strerror(-error)))
        return;
    slept =
        (int64_t)((by_kernel(FC_BOOTTIME) - boot_before) - (by_kernel(FC_MONOTONIC) - mono_before));
    ours = (int64_t)((fc_boottime_ns() - boot_before) - (fc_monotonic_ns() - mono_before));
    /* Two readings one after the other: their difference is off by what lies between. */
    expect(ours + NS_PER_S / 10 > slept && slept + NS_PER_S / 10 > ours,
           "asleep for %" PRId64 " ns by fastclock, %" PRId64 " by the kernel", ours, slept);
    expect_fast("after the suspend");
    note("boottime counts %" PRId64 " ms of sleep, monotonic none", slept / NS_PER_MS);
}

/* Realtime and boottime go forward by what was slept: no bracket is good that holds it. */
static const struct readers_setup asleep = {.limit_ns = 100 * NS_PER_MS};

/* The console's next byte ends it; the runner sends one when it reads `wake`. */
void check_suspend_idle(void) {
    static const char line[] = "\n@fastclock {\"wake\": 2}\n";
    static const char wakeup[] = "/sys/class/tty/ttyS0/power/wakeup";
    int error;
    if (!kernel_offers("/sys/power/state", "freeze"))
        return;
    error = file_write(wakeup, "enabled");
    if (error) {
        impossible("nothing to wake up by: %s: %s", wakeup, strerror(-error));
        return;
    }
    readers_start(&asleep);
    error = file_write("/dev/console", line);
    if (expect(error == 0, "/dev/console: %s", strerror(-error)))
        sleep_in("freeze");
    while (readers_go_on(target))
        usleep(2000);
    readers_stop();
}

/* The alarm of the real-time clock ends it. */
void check_suspend_memory(void) {
    static const char alarm[] = "/sys/class/rtc/rtc0/wakealarm";
    int error;
    if (!kernel_offers("/sys/power/state", "mem") || !kernel_offers("/sys/power/mem_sleep", "deep"))
        return;
    file_write("/sys/power/mem_sleep", "deep");
    file_write(alarm, "0");
    error = file_write(alarm, "+2");
    if (error) {
        impossible("no alarm to wake up by: %s: %s", alarm, strerror(-error));
        return;
    }
    readers_start(&asleep);
    sleep_in("mem");
    while (readers_go_on(target))
        usleep(2000);
    readers_stop();
}

/* ---- Other boots ------------------------------------------------------------------------------
 */

void check_no_vdso(void) {
    const struct readers_setup setup = {.no_control = true};
    struct fc_info info;
    expect(fc_init() == 0, "fc_init: no source");
    info = get_info();
    expect(info.source == FC_SOURCE_SYSCALL && info.serving == FC_SOURCE_SYSCALL,
           "source %s, serving %s; wanted the system call", fc_source_name(info.source),
           fc_source_name(info.serving));
    expect(info.reason[FC_SOURCE_KERNEL_PAGE] == FC_REASON_NO_VDSO &&
               info.reason[FC_SOURCE_VDSO] == FC_REASON_NO_VDSO,
           "kernel-page: %s, vdso: %s; wanted: no vDSO",
           fc_reason_text(info.reason[FC_SOURCE_KERNEL_PAGE]),
           fc_reason_text(info.reason[FC_SOURCE_VDSO]));
    read_for(&setup, target);
}

void check_tsc_unstable(void) {
    expect(fc_init() == 0, "fc_init: no source");
    expect(!clocksource_is("tsc"), "the clocksource is tsc all the same");
    expect_slow("with tsc=unstable");
    read_for(&plain, target);
    expect_slow("with tsc=unstable, after the reads");
}

void check_hpet_then_tsc(void) {
    enum { ATTEMPTS = 100 };
    int error = -EINVAL;
    expect(fc_init() == 0, "fc_init: no source");
    expect(clocksource_is("hpet"), "the clocksource is not hpet");
    expect_slow("booted on hpet");
    /* The kernel registers tsc when it has measured it, a second or more after boot. */
    for (int i = 0; i < ATTEMPTS; i++) {
        read_for(&plain, target / 2);
        error = clocksource_set("tsc");
        if (error == 0)
            break;
        usleep(100000);
    }
    expect(error == 0, "clocksource tsc: %s", strerror(-error));
    /* Proved at this very read. */
    expect(fc_monotonic_ns() != FC_NO_TIME, "no time after the switch");
    {
        const uint64_t before = slow_reads();
        read_for(&plain, target / 2);
        expect(slow_reads() == before, "%" PRIu64 " reads were slow after the switch to tsc",
               slow_reads() - before);
    }
    expect_fast("after the switch to tsc");
}

/* ---- The host's clocksource -------------------------------------------------------------------
 */

/* A process that puts the host's clocksource back when this one has ended in whatever way: it holds
 * the reading end of a pipe of which only this process has the writing end. */
static int guard(const char *original) {
    int ends[2];
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    child = fork();
    if (child == 0) {
        char byte;
        setsid(); /* a signal to the group does not reach it */
        close(ends[1]);
        while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
            ;
        if (!clocksource_is(original))
            clocksource_set(original);
        _exit(clocksource_is(original) ? 0 : 1);
    }
    close(ends[0]);
    return child > 0 ? ends[1] : -1;
}

static char original_clocksource[64];

static void put_back(void) {
    if (original_clocksource[0] && !clocksource_is(original_clocksource))
        clocksource_set(original_clocksource);
}

/* kvm-clock is read from the hypervisor's page, on the fast path too. */
static bool expect_paravirtual(const char *when) {
    enum { PVCLOCK = 2 };
    const struct fc_info info = get_info();
    return expect(info.mode == PVCLOCK && info.serving == FC_SOURCE_KERNEL_PAGE &&
                      info.serving_reason == 0,
                  "%s: mode %d, serving %s (%s); wanted the kernel's page in mode 2", when,
                  info.mode, fc_source_name(info.serving), fc_reason_text(info.serving_reason));
}

static bool has_both_clocksources(void) {
    if (clocksource_is("tsc") && clocksource_available("kvm-clock"))
        return true;
    impossible("the clocksource is not tsc, or there is no kvm-clock");
    return false;
}

/* Whoever switches the clocksource and is killed has it put back all the same. */
void check_kvm_clock_killed(void) {
    enum { PATIENCE_MS = 5000 };
    int status = 0, waited = 0;
    pid_t child;
    if (!has_both_clocksources())
        return;
    strcpy(original_clocksource, "tsc");
    atexit(put_back);
    child = fork();
    if (child == 0) {
        if (guard("tsc") >= 0 && clocksource_set("kvm-clock") == 0)
            raise(SIGKILL);
        _exit(1);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (!expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                "the process that switches could not: status 0x%x", (unsigned)status))
        return;
    while (!clocksource_is("tsc") && waited++ < PATIENCE_MS)
        usleep(1000);
    expect(clocksource_is("tsc"), "after %d ms the clocksource is not put back", PATIENCE_MS);
    read_for(&plain, target / 4);
    expect_fast("put back by the guardian");
}

void check_kvm_clock(void) {
    enum { ROUNDS = 3, SWITCHED_US = 100000 };
    uint64_t slow, fine, switches = 0, slow_under = 0, fine_under = 0, slow_tsc = 0;
    int guardian, status;
    if (!has_both_clocksources())
        return;
    expect_fast("before the switch");
    file_read(CLOCKSOURCE "current_clocksource", original_clocksource, sizeof original_clocksource);
    guardian = guard(original_clocksource);
    if (!expect(guardian >= 0, "no guardian process: %s", strerror(errno)))
        return;
    atexit(put_back);
    readers_start(&plain);
    for (int round = 0; round < ROUNDS; round++) {
        int error;
        slow = slow_reads();
        error = clocksource_set("kvm-clock");
        if (!expect(error == 0, "clocksource kvm-clock: %s", strerror(-error)))
            break;
        fine = readers_fine();
        if (!expect_paravirtual("on kvm-clock"))
            break;
        usleep(SWITCHED_US);
        fine_under += readers_fine() - fine;
        slow_under += slow_reads() - slow;
        error = clocksource_set("tsc");
        if (!expect(error == 0, "clocksource tsc: %s", strerror(-error)))
            break;
        expect_fast("back on tsc");
        slow = slow_reads();
        usleep(SWITCHED_US);
        slow_tsc += slow_reads() - slow;
        switches++;
    }
    put_back();
    while (readers_go_on(target))
        usleep(2000);
    readers_stop();
    close(guardian);
    wait(&status);
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the guardian could not put it back");
    expect(clocksource_is(original_clocksource), "the clocksource was not put back");
    expect(slow_tsc == 0, "%" PRIu64 " reads were slow on tsc", slow_tsc);
    expect(fine_under > 0 && slow_under == 0,
           "%" PRIu64 " reads on kvm-clock, %" PRIu64 " of them slow", fine_under, slow_under);
    note("%" PRIu64 " switches there and back, %" PRIu64 " reads on kvm-clock, %" PRIu64 " slow",
         switches, fine_under, slow_under);
}
