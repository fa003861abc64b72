/* SPDX-License-Identifier: MIT
 *
 * fastclock getcpu: what a vtime64 with a scale for each processor costs, by every way to learn the
 * processor's number; the table of the mock that vtime64 comes from, with what came since.
 *
 * Number and counter have to belong to the same processor. Either the program looks at the number
 * again afterwards and starts over if it changed (user restart), or the kernel puts a program that
 * it interrupted in between back to the start (kernel restart: a restartable sequence). An
 * instruction that gives both at once needs neither.
 *
 * sgdt, sidt and sldt give no processor's number on Linux: the mock had hidden it in the limits of
 * the tables. What they would cost is measured all the same. Where UMIP forbids them the kernel
 * kills the program or answers with a dummy, which is found out under a signal handler.
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include <fastclock.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cli.h"
#include "kernel_page.h"
#include "machine.h"
#include "processor.h"
#include "select.h"
#include "vdso.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

/* ---- The scale of each processor --------------------------------------------------------------
 */

enum { ENTRIES = 256 }; /* a power of two: a number is masked, so that none can be out of bounds */

struct entry {
    uint64_t last, mult, shift, base;
};

static struct entry entries[ENTRIES];

/* All the same, from the kernel's scale where it can be had: what counts is that they are read. */
static void fill_entries(void) {
    uint32_t mult = 1u << 22, shift = 23;
    fc_kernel_page_scale(&fc_page, &mult, &shift);
    for (int i = 0; i < ENTRIES; i++)
        entries[i] = (struct entry){fc_ticks(), mult, shift, fc_realtime_ns()};
}

static inline uint64_t scaled(uint32_t number, uint64_t ticks) {
    const struct entry *e = &entries[number % ENTRIES];
    return e->base + (((ticks - e->last) * e->mult) >> e->shift);
}

/* ---- Ways to learn the number -----------------------------------------------------------------
 */

static inline uint32_t by_rseq(void) {
    return fc_rseq_field(FC_RSEQ_CPU_ID);
}

typedef long getcpu_function(unsigned *, unsigned *, void *);
static getcpu_function *vdso_getcpu;

static inline uint32_t by_vdso(void) {
    unsigned number = 0;
    vdso_getcpu(&number, NULL, NULL);
    return number;
}

static inline uint32_t by_syscall(void) {
    unsigned number = 0;
    syscall(SYS_getcpu, &number, NULL, NULL);
    return number;
}

#if defined(__x86_64__) || defined(__i386__)

static inline uint32_t by_sgdt(void) {
    struct fc_sequence_scratch table;
    __asm__ volatile("sgdt %0" : "=m"(table));
    return table.limit;
}

static inline uint32_t by_sidt(void) {
    struct fc_sequence_scratch table;
    __asm__ volatile("sidt %0" : "=m"(table));
    return table.limit;
}

static inline uint32_t by_sldt(void) {
    uint32_t selector;
    __asm__ volatile("sldt %0" : "=r"(selector));
    return selector;
}

/* The segment whose limit Linux sets to node << 12 | processor, in a 64-bit kernel. */
#define NUMBER_SEGMENT 0x7b

static inline uint32_t by_lsl(void) {
    uint32_t limit = 0;
    __asm__ volatile("lsl %1, %0" : "+r"(limit) : "r"(NUMBER_SEGMENT) : "cc");
    return limit & 0xfff;
}

static inline uint32_t by_rdpid(void) {
    return fc_rdpid() & FC_PROCESSOR_MASK;
}

static inline uint32_t by_rdtscp(void) {
    uint32_t number;
    fc_rdtscp(&number);
    return number & FC_PROCESSOR_MASK;
}

#endif

/* ---- Whole readings, with user restart --------------------------------------------------------
 */

#define DEFINE_USER(name)                                                                          \
    static uint64_t user_##name(void) {                                                            \
        uint32_t number;                                                                           \
        uint64_t ns;                                                                               \
        do {                                                                                       \
            number = by_##name();                                                                  \
            ns = scaled(number, fc_ticks());                                                       \
        } while (by_##name() != number);                                                           \
        return ns;                                                                                 \
    }

DEFINE_USER(rseq)
DEFINE_USER(vdso)
DEFINE_USER(syscall)

static uint64_t no_number(void) {
    return scaled(0, fc_ticks());
}

#if defined(__x86_64__) || defined(__i386__)

DEFINE_USER(sgdt)
DEFINE_USER(sidt)
DEFINE_USER(sldt)
DEFINE_USER(lsl)
DEFINE_USER(rdpid)

static uint64_t at_once_rdtscp(void) {
    uint32_t number;
    const uint64_t ticks = fc_rdtscp(&number);
    return scaled(number, ticks);
}

#endif

/* ---- Restartable sequences --------------------------------------------------------------------
 */

#ifdef FC_HAVE_SEQUENCE

/* `number` is an instruction that leaves the number in ecx. */
#define DEFINE_KERNEL(name, number, mask)                                                          \
    FC_SEQUENCE_DECLARE(getcpu_##name)                                                             \
    static FC_SEQUENCE_ONCE uint64_t kernel_##name(void) {                                         \
        const uint16_t segment = NUMBER_SEGMENT;                                                   \
        struct fc_sequence_scratch scratch;                                                        \
        uint32_t low, high, n;                                                                     \
        int tries = INT_MAX; /* more than there is time for */                                     \
        FC_SEQUENCE_READ(getcpu_##name, number, "rdtsc", low, high, n, tries, scratch, segment);   \
        return scaled(n & (mask), (uint64_t)high << 32 | low);                                     \
    }

DEFINE_KERNEL(sgdt, "sgdt %[scratch]\n\tmovzwl %[scratch], %%ecx", 0xffff)
DEFINE_KERNEL(sidt, "sidt %[scratch]\n\tmovzwl %[scratch], %%ecx", 0xffff)
DEFINE_KERNEL(sldt, "sldt %%ecx", 0xffff)
DEFINE_KERNEL(lsl, "lsl %[segment], %%ecx", 0xfff)
DEFINE_KERNEL(rdpid, ".byte 0xf3, 0x0f, 0xc7, 0xf9", 0xfff) /* rdpid of the second register */
DEFINE_KERNEL(rseq, "movl 4(%[area]), %%ecx", 0xffffffff)

#define KERNEL(name) kernel_##name

#else
#define KERNEL(name) NULL
#endif

/* ---- The table --------------------------------------------------------------------------------
 */

enum kind_need { NEEDS_NOTHING, NEEDS_RDTSCP, NEEDS_RDPID, NEEDS_RSEQ, NEEDS_VDSO, NEEDS_NO_UMIP };

static struct kind {
    const char *name;
    uint32_t (*number)(void);
    uint64_t (*user)(void), (*kernel)(void);
    const char *note;
    const char *no_kernel; /* why there is no kernel restart */
    enum kind_need need;
    /* Results. */
    bool is_number;                    /* it gives the number of the processor */
    const char *absent;                /* why it cannot be had here, else NULL */
    double user_cycles, kernel_cycles; /* below 0: none */
} kinds[] = {
#define KIND(name, need)                                                                           \
    { #name, by_##name, user_##name, KERNEL(name), NULL, NULL, need, false, NULL, -1, -1 }
#if defined(__x86_64__) || defined(__i386__)
    KIND(sgdt, NEEDS_NO_UMIP),
    KIND(sidt, NEEDS_NO_UMIP),
    KIND(sldt, NEEDS_NO_UMIP),
    KIND(lsl, NEEDS_NOTHING),
    {"rdtscp", by_rdtscp, at_once_rdtscp, at_once_rdtscp,
     "number and counter at once: nothing to restart", NULL, NEEDS_RDTSCP, false, NULL, -1, -1},
    KIND(rdpid, NEEDS_RDPID),
#endif
    KIND(rseq, NEEDS_RSEQ),
    {"vDSO", by_vdso, user_vdso, NULL, NULL, "a call leaves the sequence", NEEDS_VDSO, false, NULL,
     -1, -1},
    {"syscall", by_syscall, user_syscall, NULL, NULL, "a sequence may not make system calls",
     NEEDS_NOTHING, false, NULL, -1, -1},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- Finding out what works -------------------------------------------------------------------
 */

static sigjmp_buf survived;

static void on_fault(int number) {
    siglongjmp(survived, number);
}

/* Runs `number`; the signal that it died of, or 0. */
static int try_number(uint32_t (*number)(void), uint32_t *value) {
    const struct sigaction action = {.sa_handler = on_fault};
    struct sigaction old_segv, old_ill;
    volatile int died = 0;
    sigaction(SIGSEGV, &action, &old_segv);
    sigaction(SIGILL, &action, &old_ill);
    died = sigsetjmp(survived, 1);
    if (died == 0)
        *value = number();
    sigaction(SIGSEGV, &old_segv, NULL);
    sigaction(SIGILL, &old_ill, NULL);
    return died;
}

static const char *missing(const struct kind *k, const struct machine *m) {
    static const char *const vdso_names[] = {"__vdso_getcpu", "__kernel_getcpu", NULL};
    uintptr_t function;
    switch (k->need) {
    case NEEDS_RDTSCP:
        return machine_feature(m, "rdtscp") == FLAG_YES ? NULL : "the processor does not have it";
    case NEEDS_RDPID:
        return machine_feature(m, "rdpid") == FLAG_YES ? NULL : "the processor does not have it";
    case NEEDS_RSEQ:
        return fc_rseq_works() ? NULL : "the C library registered no restartable sequences";
    case NEEDS_VDSO:
        function = fc_vdso_function(vdso_names);
        memcpy(&vdso_getcpu, &function, sizeof function);
        return function ? NULL : "the vDSO has no such function";
    default: return NULL;
    }
}

static void find_out(struct kind *k, const struct machine *m) {
    uint32_t value = 0, again = 0;
    unsigned cpu = 0;
    int died;
    k->absent = missing(k, m);
    if (k->absent)
        return;
    died = try_number(k->number, &value);
    if (died) {
        k->absent = died == SIGSEGV && machine_feature(m, "umip") == FLAG_YES
                        ? "forbidden by UMIP: it ended in SIGSEGV"
                    : died == SIGSEGV ? "forbidden: it ended in SIGSEGV"
                                      : "the processor does not know it: it ended in SIGILL";
        return;
    }
    if (k->need == NEEDS_NO_UMIP && machine_feature(m, "umip") == FLAG_YES)
        k->note = "UMIP: the kernel traps it and answers with a dummy";
    /* This thread is pinned, so that the number cannot change in between. */
    syscall(SYS_getcpu, &cpu, NULL, NULL);
    try_number(k->number, &again);
    k->is_number = value == cpu && again == cpu && k->need != NEEDS_NO_UMIP;
}

static double cycles(uint64_t (*read)(void)) {
    enum { ROUNDS = 400, READS = 50 };
    uint64_t least = UINT64_MAX, empty = UINT64_MAX;
    uint64_t slow_ticks = 100000000; /* enough, where each read is trapped */
    const uint64_t begin = fc_ticks();
    for (int round = 0; round < ROUNDS && fc_ticks() - begin < slow_ticks; round++) {
        uint64_t start = fc_ticks_ordered(), ticks = fc_ticks_ordered() - start;
        if (ticks < empty)
            empty = ticks;
        start = fc_ticks_ordered();
        for (int i = 0; i < READS; i++)
            __asm__ volatile("" : : "r"((uint32_t)read()) : "memory");
        ticks = fc_ticks_ordered() - start;
        if (ticks < least)
            least = ticks;
    }
    return (double)(least > empty ? least - empty : 0) / READS;
}

static void pin(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)sched_getcpu(), &set);
    sched_setaffinity(0, sizeof set, &set);
}

/* ---- The processor's own words ----------------------------------------------------------------
 */

struct identity {
    char vendor[16];
    uint32_t family, model, stepping;
    bool known;
};

static struct identity identify(void) {
    struct identity id = {"", 0, 0, 0, false};
#if defined(__x86_64__) || defined(__i386__)
    uint32_t a, b, c, d;
    if (!__get_cpuid(0, &a, &b, &c, &d))
        return id;
    memcpy(id.vendor, &b, 4);
    memcpy(id.vendor + 4, &d, 4);
    memcpy(id.vendor + 8, &c, 4);
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return id;
    id.stepping = a & 15;
    id.model = a >> 4 & 15;
    id.family = a >> 8 & 15;
    if (id.family == 6 || id.family == 15)
        id.model |= (a >> 16 & 15) << 4;
    if (id.family == 15)
        id.family += a >> 20 & 255;
    id.known = true;
#endif
    return id;
}

/* ---- Telling ----------------------------------------------------------------------------------
 */

static void print_cell(const struct kind *k, double value) {
    if (value >= 0)
        printf(" %9.1f%s", value, k->note ? "*" : " ");
    else
        printf(" %9s ", k->absent ? "none" : "–");
}

static void print_text(const struct identity *id, double bare, const struct machine *m) {
    if (id->known)
        printf("%s %02x%02x%02x (family, model, stepping), ", id->vendor, id->family, id->model,
               id->stepping);
    printf("%s%s%s, %s\n", m->processor, *m->processor ? ", " : "", m->architecture, m->kernel);
    printf("cycles of the counter for a whole vtime64, minimum; by the counter alone: %.1f\n\n",
           bare);
    printf("%-15s %4s", "", "bits");
    for (int i = 0; i < KINDS; i++)
        printf(" %9s ", kinds[i].name);
    printf("\n%-15s %4zu", "user restart", 8 * sizeof(void *));
    for (int i = 0; i < KINDS; i++)
        print_cell(&kinds[i], kinds[i].user_cycles);
    printf("\n%-15s %4zu", "kernel restart", 8 * sizeof(void *));
    for (int i = 0; i < KINDS; i++)
        print_cell(&kinds[i], kinds[i].kernel_cycles);
    printf("\n%-15s %4s", "gives a number", "");
    for (int i = 0; i < KINDS; i++)
        printf(" %9s ", kinds[i].is_number ? "yes" : "no");
    puts("\n");
    for (int i = 0; i < KINDS; i++) {
        const struct kind *k = &kinds[i];
        if (k->absent)
            printf("  %s: %s\n", k->name, k->absent);
        if (k->note && !k->absent)
            printf("* %s: %s\n", k->name, k->note);
        if (k->no_kernel && !k->absent)
            printf("  %s, kernel restart: %s\n", k->name, k->no_kernel);
    }
}

static void json_cycles(struct json *j, const char *key, double value) {
    json_double(j, key, value >= 0 ? value : (double)NAN, 1);
}

static void print_json(const struct cli_args *args, const struct identity *id, double bare,
                       const struct machine *m) {
    struct json j;
    cli_json_begin(args, &j);
    json_string(&j, "vendor", id->known ? id->vendor : NULL);
    if (id->known) {
        json_uint(&j, "family", id->family);
        json_uint(&j, "model", id->model);
        json_uint(&j, "stepping", id->stepping);
    }
    json_string(&j, "processor", m->processor);
    json_string(&j, "kernel", m->kernel);
    json_uint(&j, "bits", 8 * sizeof(void *));
    json_uint(&j, "counter_hz", fc_ticks_hz());
    json_double(&j, "counter_alone_cycles", bare, 1);
    json_array(&j, "ways");
    for (int i = 0; i < KINDS; i++) {
        const struct kind *k = &kinds[i];
        json_object(&j, NULL);
        json_string(&j, "name", k->name);
        json_cycles(&j, "user_restart_cycles", k->user_cycles);
        json_cycles(&j, "kernel_restart_cycles", k->kernel_cycles);
        json_bool(&j, "gives_the_number", k->is_number);
        json_string(&j, "absent", k->absent);
        json_string(&j, "note", k->note);
        json_string(&j, "no_kernel_restart", k->no_kernel);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_end(&j);
}

static int run(struct cli_args *args) {
    static struct machine machine;
    struct identity id;
    struct fc_info info;
    const char *value;
    double bare;
    int code, option;
    while ((option = cli_next(args, &value, &code)) != CLI_END)
        if (option == CLI_STOP)
            return code;
    if (args->argc) {
        cli_error(args, "takes no operands, and so not '%s'", args->argv[0]);
        return CLI_USAGE;
    }
    fc_init();
    fc_get_info(&info, sizeof info);
    if (info.counter != 1) {
        cli_error(args, "the counter may not be read here; see fastclock info");
        return CLI_UNAVAILABLE;
    }
    machine_look(&machine);
    id = identify();
    pin();
    fill_entries();
    bare = cycles(no_number);
    for (int i = 0; i < KINDS; i++) {
        struct kind *k = &kinds[i];
        find_out(k, &machine);
        if (k->absent)
            continue;
        k->user_cycles = cycles(k->user);
        if (k->kernel && (k->need == NEEDS_RDTSCP || fc_rseq_works()))
            k->kernel_cycles = cycles(k->kernel);
        else if (!k->no_kernel)
            k->no_kernel = "no restartable sequences here";
    }
    if (args->json)
        print_json(args, &id, bare, &machine);
    else
        print_text(&id, bare, &machine);
    return CLI_OK;
}

const struct cli_command command_getcpu = {
    .name = "getcpu",
    .operands = "",
    .summary = "what it costs to learn the processor's number, and a vtime64 that needs it",
    .text =
        "Prints the cycles of a whole vtime64 that has a scale for each processor, by each way to\n"
        "learn the processor's number: first where the program makes sure that number and\n"
        "counter belong together (user restart), then where the kernel does (kernel restart).\n"
        "Exit code 3 if the counter may not be read.",
    .run = run,
};
