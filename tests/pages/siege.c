/* SPDX-License-Identifier: MIT
 *
 * The process under attack: system calls that kill, a counter that is forbidden in the middle,
 * pages that are taken away, a debugger that shows the process another machine. What other programs
 * of claims have of the kind is not repeated here: refused calls, descriptors, stacks, storms and
 * forks are in tests/core.
 */
#define _GNU_SOURCE
#include <limits.h>
#include <linux/audit.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "../core/clocks.h"
#include "../core/deny.h"

/* ---- System calls that kill -------------------------------------------------------------------
 */

/* What README says that each source needs, and no more. On 32-bit machines the calls for the time
 * have another name. */
#ifdef SYS_clock_gettime64
#define TIME_CALL SYS_clock_gettime64
#else
#define TIME_CALL SYS_clock_gettime
#endif
enum { NEEDS_MAX = 6 };
static const struct need {
    const char *source;
    int calls[NEEDS_MAX];
    int count;
} needs[] = {
    {"kernel-page", {SYS_prctl, SYS_openat, SYS_read, SYS_close, SYS_rt_sigprocmask, TIME_CALL}, 6},
    {"vdso", {SYS_prctl, SYS_rt_sigprocmask, TIME_CALL}, 3},
    {"syscall", {TIME_CALL}, 1},
    {"off", {0}, 0},
};
enum { NEEDS = sizeof needs / sizeof *needs };

/* Whatever is not needed kills, but for what the end of a claim takes. */
static void allow_only(const int *numbers, int count) {
    struct sock_filter filter[2 * DENY_MAX + 2];
    struct sock_fprog program = {0, filter};
    int allowed[NEEDS_MAX + 3] = {SYS_write, SYS_exit_group, SYS_rt_sigreturn};
    memcpy(allowed + 3, numbers, (size_t)count * sizeof *numbers);
    filter[program.len++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count + 3; i++) {
        filter[program.len++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i], 0, 1);
        filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

/* In brackets of the C library's reads, which take no system call; every reading once. */
static void start_and_read(void) {
    CHECK(fc_init() == 0, "nothing serves");
    for (int round = 0; round < 1000; round++)
        for (int i = 0; i < CLOCK_READS; i++) {
            const struct clock_read *r = &clock_reads[i];
            uint64_t before, ours, after;
            CHECK(bracket_libc_ns(r->clock, &before) == 0, "libc");
            ours = r->read();
            CHECK(bracket_libc_ns(r->clock, &after) == 0, "libc");
            if (r->kind == RELAXED)
                before -= BRACKET_RELAXED_EARLY_NS;
            CHECK(before <= ours && ours <= after, "%s: %" PRIu64 " not in %" PRIu64 " to %" PRIu64,
                  r->name, ours, before, after);
        }
}

static void must_be_able_to_list_calls(void) {
#ifdef CHECK_SANITIZER
    CANNOT("%s makes system calls of its own", CHECK_SANITIZER);
#endif
#if defined(__i386__) && !defined(__GLIBC__)
    CANNOT("this C library makes system calls for the time by itself");
#endif
}

static void source_needs_no_more(const void *argument) {
    const struct need *need = argument;
    must_be_able_to_list_calls();
    MUST(setenv("FASTCLOCK_SOURCE", need->source, 1));
    allow_only(need->calls, need->count);
    start_and_read();
}

/* And so the list names nothing for nothing. */
static void source_needs_each(const void *argument) {
    const struct need *need = argument;
    must_be_able_to_list_calls();
    MUST(setenv("FASTCLOCK_SOURCE", need->source, 1));
    for (int missing = 0; missing < need->count; missing++) {
        int calls[NEEDS_MAX], count = 0, status;
        pid_t child;
        for (int i = 0; i < need->count; i++)
            if (i != missing)
                calls[count++] = need->calls[i];
        MUST(child = fork());
        if (child == 0) {
            allow_only(calls, count);
            start_and_read();
            _exit(0);
        }
        MUST(waitpid(child, &status, 0));
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS,
              "without system call %d it ends with %#x", need->calls[missing], (unsigned)status);
    }
}

/* ---- A counter that is forbidden in the middle ------------------------------------------------
 */

#if defined(PR_SET_TSC) && (defined(__x86_64__) || defined(__i386__))

static void set_counter(bool allowed) {
    MUST(prctl(PR_SET_TSC, allowed ? PR_TSC_ENABLE : PR_TSC_SIGSEGV, 0, 0, 0));
}

static void start_on_the_page(void) {
    CHECK(fc_init() == 0, "nothing serves");
    if (info_now().serving != FC_SOURCE_KERNEL_PAGE)
        CANNOT("the kernel's page does not serve here: %s",
               fc_reason_text(info_now().serving_reason));
}

/* As they do without the vDSO, which would read the counter. */
static void must_read_right(void) {
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct bracket_setup setup = {
            .clock = clock_reads[i].clock,
            .read = clock_reads[i].read,
            .no_control = 1,
            .early_ns = clock_reads[i].kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0};
        must_lie_in_brackets(clock_reads[i].name, &setup, 1000);
    }
}

static void forbidden_later_kills(const void *argument) {
    (void)argument;
    start_on_the_page();
    for (int i = 0; i < CLOCK_READS; i++) {
        int status;
        pid_t child;
        MUST(child = fork());
        if (child == 0) {
            signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would make a report of it */
            set_counter(false);
            clock_reads[i].read();
            _exit(0);
        }
        MUST(waitpid(child, &status, 0));
        if (clock_reads[i].kind == COARSE)
            CHECK(status == 0, "%s ends with %#x", clock_reads[i].name, (unsigned)status);
        else
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "%s ends with %#x",
                  clock_reads[i].name, (unsigned)status);
    }
}

static const struct selection {
    const char *words;
    int32_t first, then, result, source;
} selections[] = {
    {"auto anew", FC_SOURCE_AUTO, FC_SOURCE_AUTO, 0, FC_SOURCE_SYSCALL},
    {"the kernel's page", FC_SOURCE_AUTO, FC_SOURCE_KERNEL_PAGE, -ENOTSUP, FC_SOURCE_SYSCALL},
    {"the vDSO in place of the page", FC_SOURCE_AUTO, FC_SOURCE_VDSO, -ENOTSUP, FC_SOURCE_SYSCALL},
    {"the page in place of the vDSO", FC_SOURCE_VDSO, FC_SOURCE_KERNEL_PAGE, -ENOTSUP,
     FC_SOURCE_SYSCALL},
    {"the system call", FC_SOURCE_AUTO, FC_SOURCE_SYSCALL, 0, FC_SOURCE_SYSCALL},
};
enum { SELECTIONS = sizeof selections / sizeof *selections };

static void selection_looks_again(const void *argument) {
    const struct selection *s = argument;
    start_on_the_page();
    CHECK(fc_select(s->first) == 0, "%s", fc_source_name(s->first));
    (void)fc_ticks(); /* so that it is known that the counter may be read */
    set_counter(false);
    CHECK(fc_select(s->then) == s->result, "it is not %d", (int)s->result);
    CHECK(info_now().source == s->source, "%s serves", fc_source_name(info_now().source));
    CHECK(info_now().counter == 0, "it says that the counter may be read");
    must_read_right();
    (void)fc_ticks();
    (void)fc_ticks_ordered();
    set_counter(true);
    CHECK(fc_select(FC_SOURCE_AUTO) == 0, "auto");
    CHECK(info_now().serving == FC_SOURCE_KERNEL_PAGE, "%s serves",
          fc_source_name(info_now().serving));
    CHECK(info_now().counter == 1, "it says that the counter may not be read");
    must_read_right();
}

#endif

/* ---- Pages that are taken away ----------------------------------------------------------------
 */

struct area {
    unsigned long start, end;
};

/* Where the kernel says that `name` is mapped. */
static bool find_area(const char *name, struct area *area) {
    char line[512], found[64];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL, "%s", strerror(errno));
    area->end = 0;
    while (fgets(line, sizeof line, maps)) {
        struct area a;
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %63s", &a.start, &a.end, found) == 3 &&
            strcmp(found, name) == 0)
            *area = a;
    }
    fclose(maps);
    return area->end != 0;
}

/* From here on the C library's clock_gettime would crash. */
static void take_away(const char *name) {
    struct area area;
    if (!find_area(name, &area))
        CANNOT("this kernel maps no %s", name);
    if (munmap((void *)area.start, area.end - area.start) < 0) {
        CHECK(errno == EPERM, "%s", strerror(errno));
        CANNOT("this kernel has sealed %s", name);
    }
}

static void must_serve_by_system_call(int32_t page_reason, int32_t vdso_reason) {
    struct fc_info info;
    CHECK(fc_init() == 0, "nothing serves");
    info = info_now();
    CHECK(info.source == FC_SOURCE_SYSCALL, "%s serves", fc_source_name(info.source));
    CHECK(info.reason[FC_SOURCE_KERNEL_PAGE] == page_reason, "the page: %s",
          fc_reason_text(info.reason[FC_SOURCE_KERNEL_PAGE]));
    CHECK(info.reason[FC_SOURCE_VDSO] == vdso_reason, "the vDSO: %s",
          fc_reason_text(info.reason[FC_SOURCE_VDSO]));
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct bracket_setup setup = {
            .clock = clock_reads[i].clock, .read = clock_reads[i].read, .no_control = 1};
        must_lie_in_brackets(clock_reads[i].name, &setup, check_rounds(1000));
    }
}

static void vvar_is_gone(const void *argument) {
    (void)argument;
    take_away("[vvar]");
    must_serve_by_system_call(FC_REASON_NO_VVAR, FC_REASON_NO_VVAR);
}

static void vvar_is_gone_and_vdso_wanted(const void *argument) {
    (void)argument;
    MUST(setenv("FASTCLOCK_SOURCE", "vdso", 1));
    take_away("[vvar]");
    must_serve_by_system_call(FC_REASON_NOT_TRIED, FC_REASON_NO_VVAR);
}

/* What is mapped at its address then is not called. `argument`: whether something is, and whether
 * the vDSO is asked for. */
static void vdso_is_gone(const void *argument) {
    const bool covered = *(const int *)argument & 1, wanted = *(const int *)argument & 2;
#ifdef CHECK_SANITIZER
    CANNOT("%s calls the vDSO by itself", CHECK_SANITIZER);
#endif
#ifdef __i386__
    CANNOT("the system calls of a 32-bit C library go through the vDSO");
#endif
    take_away("[vdso]");
    if (covered) {
        const uintptr_t at = getauxval(AT_SYSINFO_EHDR);
        void *cover = mmap((void *)at, 4096, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        CHECK(cover == (void *)at, "%s", strerror(errno));
        memset(cover, 0xff, 4096);
        memcpy(cover, "\177ELF", 4);
    }
    if (wanted)
        MUST(setenv("FASTCLOCK_SOURCE", "vdso", 1));
    must_serve_by_system_call(wanted ? FC_REASON_NOT_TRIED : FC_REASON_NO_VVAR,
                              wanted ? FC_REASON_NO_VDSO : FC_REASON_NO_VVAR);
}

/* ---- Another machine is shown -----------------------------------------------------------------
 */

/* What runs under valgrind: this program, called with one word. */
static int inside_valgrind(void) {
    struct fc_info info;
    if (fc_init() != 0 || fc_get_info(&info, sizeof info) != 0)
        return 2;
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct bracket_setup setup = {
            .clock = clock_reads[i].clock, .read = clock_reads[i].read, .no_control = 1};
        struct bracket b = {0};
        if (!bracket_run(&b, &setup, 1000) || b.ours.outside || b.ours.errors) {
            bracket_print(stdout, clock_reads[i].name, &b);
            return 3;
        }
    }
    if (fc_ticks_hz() == 0 || fc_getcpu(NULL, NULL) != 0)
        return 4;
    printf("serving %s\n", fc_source_name(info.serving));
    return info.serving == FC_SOURCE_KERNEL_PAGE ? 5 : 0;
}

static void under_valgrind(const void *argument) {
    const char *program = argument;
    int status;
    pid_t child;
#ifdef CHECK_SANITIZER
    CANNOT("valgrind does not run with %s", CHECK_SANITIZER);
#endif
#if defined(__i386__) || !defined(__GLIBC__)
    CANNOT("Debian's valgrind has no debugging symbols for this C library");
#endif
    MUST(child = fork());
    if (child == 0) {
        execlp("valgrind", "valgrind", "-q", "--error-exitcode=9", program, "--inside-valgrind",
               (char *)NULL);
        _exit(errno == ENOENT ? 127 : 126);
    }
    MUST(waitpid(child, &status, 0));
    CHECK(status != 127 << 8, "valgrind is not installed");
    CHECK(status == 0, "its status is %#x", (unsigned)status);
}

/* ---- Several at once --------------------------------------------------------------------------
 */

static atomic_bool stop;

static void *select_for_ever(void *argument) {
    static const int32_t order[] = {FC_SOURCE_AUTO, FC_SOURCE_VDSO, FC_SOURCE_KERNEL_PAGE,
                                    FC_SOURCE_SYSCALL};
    (void)argument;
    for (unsigned i = 0; !atomic_load(&stop); i++)
        fc_select(order[i % 4]);
    return NULL;
}

/* A child has one thread, whose view of the choice may have been caught amid a change. */
static void children_of_a_process_that_selects(const void *argument) {
    pthread_t thread;
    (void)argument;
    CHECK(fc_init() == 0, "nothing serves");
    CHECK(pthread_create(&thread, NULL, select_for_ever, NULL) == 0, "pthread_create");
    for (uint64_t round = 0; round < check_rounds(300) + 20; round++) {
        pid_t child;
        MUST(child = fork());
        if (child == 0) {
            for (int again = 0; again < 2; again++) {
                for (int i = 0; i < CLOCK_READS; i++) {
                    const struct bracket_setup setup = {
                        .clock = clock_reads[i].clock,
                        .read = clock_reads[i].read,
                        .early_ns = clock_reads[i].kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0};
                    must_lie_in_brackets(clock_reads[i].name, &setup, 20);
                }
                CHECK(info_now().source != FC_SOURCE_NONE, "nothing serves");
                CHECK(fc_select(FC_SOURCE_AUTO) == 0, "auto");
            }
            _exit(0);
        }
        MUST_EXIT_0(child);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
    static const int gone[] = {0, 1, 2, 3};
    char sentence[160], self[PATH_MAX];
    ssize_t length;
    if (argc > 1 && strcmp(argv[1], "--inside-valgrind") == 0)
        return inside_valgrind();
    length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) {
        perror("/proc/self/exe");
        return 2;
    }
    self[length] = '\0';
    check_begin(argc, argv);
    for (int i = 0; i < NEEDS; i++) {
        snprintf(sentence, sizeof sentence,
                 "%s: it starts and reads where every system call but %d kills", needs[i].source,
                 needs[i].count);
        check_that(sentence, source_needs_no_more, &needs[i]);
        if (needs[i].count == 0)
            continue;
        snprintf(sentence, sizeof sentence, "%s: it needs each of these system calls",
                 needs[i].source);
        check_that(sentence, source_needs_each, &needs[i]);
    }
#if defined(PR_SET_TSC) && (defined(__x86_64__) || defined(__i386__))
    check_that("a counter that is forbidden after the start kills, but for coarse reads",
               forbidden_later_kills, NULL);
    for (int i = 0; i < SELECTIONS; i++) {
        snprintf(sentence, sizeof sentence, "selecting %s notices that the counter was forbidden",
                 selections[i].words);
        check_that(sentence, selection_looks_again, &selections[i]);
    }
#endif
    check_that("without [vvar] the system call serves", vvar_is_gone, NULL);
    check_that("without [vvar] the vDSO is not called, though asked for",
               vvar_is_gone_and_vdso_wanted, NULL);
    check_that("without the vDSO the system call serves", vdso_is_gone, &gone[0]);
    check_that("what is mapped where the vDSO was is not called", vdso_is_gone, &gone[1]);
    check_that("without the vDSO it is not called, though asked for", vdso_is_gone, &gone[2]);
    check_that("what is mapped where the vDSO was is not called, though the vDSO is asked for",
               vdso_is_gone, &gone[3]);
    check_that("under valgrind reads are right, and not from the page", under_valgrind, self);
    check_that("children of a process that changes its source all the time read right",
               children_of_a_process_that_selects, NULL);
    return check_end();
}
