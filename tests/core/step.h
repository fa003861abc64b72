/* SPDX-License-Identifier: MIT
 *
 * Looks at every instruction that a piece of code executes, by the processor's single-step trap,
 * and counts those that tell how a time was got: in the vDSO or not, by a system call or not, by
 * reading the counter or not. What is executed is the proof that a source is the one it says.
 *
 *     struct step_seen seen;
 *     step_begin();
 *     fc_monotonic_ns();
 *     seen = step_end();
 *
 * The functions under test must have been called once before, so that no symbol is resolved and no
 * source chosen under the magnifying glass.
 */
#ifndef FASTCLOCK_TESTS_STEP_H
#define FASTCLOCK_TESTS_STEP_H

#include <elf.h>
#include <link.h>
#include <sys/auxv.h>
#include <ucontext.h>

#include "check.h"

#if defined(__x86_64__) || defined(__i386__)

struct step_seen {
    unsigned instructions, in_vdso, system_calls, counter_reads, fences;
    unsigned libc_gettimes; /* entries into the C library's clock_gettime */
    unsigned allocations;   /* into its malloc */
    unsigned watched;       /* and into the function step_watch */
};

static struct {
    struct step_seen seen;
    uintptr_t vdso, vdso_end;
} step_state_;

/* A function whose calls are to be counted. */
static uint64_t (*step_watch)(void);

static void step_trap_(int number, siginfo_t *info, void *context) {
    const ucontext_t *registers = context;
#ifdef __x86_64__
    const uintptr_t at = (uintptr_t)registers->uc_mcontext.gregs[REG_RIP];
#else
    const uintptr_t at = (uintptr_t)registers->uc_mcontext.gregs[REG_EIP];
#endif
    const unsigned char *code = (const unsigned char *)at;
    struct step_seen *seen = &step_state_.seen;
    (void)number;
    (void)info;
    seen->instructions++;
    seen->in_vdso += at >= step_state_.vdso && at < step_state_.vdso_end;
    seen->libc_gettimes += at == (uintptr_t)clock_gettime;
    seen->watched += at == (uintptr_t)step_watch;
    seen->allocations += at == (uintptr_t)malloc;
    if (code[0] == 0x0f && (code[1] == 0x05 || code[1] == 0x34)) /* syscall, sysenter */
        seen->system_calls++;
    else if (code[0] == 0xcd && code[1] == 0x80) /* int 0x80 */
        seen->system_calls++;
    else if (code[0] == 0x0f && code[1] == 0x31) /* rdtsc */
        seen->counter_reads++;
    else if (code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9) /* rdtscp */
        seen->counter_reads++;
    else if (code[0] == 0x0f && code[1] == 0xae && code[2] == 0xe8) /* lfence */
        seen->fences++;
}

/* The flags are pushed below the red zone. */
#ifdef __x86_64__
#define STEP_FLAGS_(operation, value)                                                              \
    __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\t" operation " $" value                   \
                     ", (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp"                                 \
                     :                                                                             \
                     :                                                                             \
                     : "memory", "cc")
#else
#define STEP_FLAGS_(operation, value)                                                              \
    __asm__ volatile("pushfl\n\t" operation " $" value ", (%%esp)\n\tpopfl" : : : "memory", "cc")
#endif

static inline void step_begin(void) {
    const ElfW(Ehdr) *vdso = (const ElfW(Ehdr) *)getauxval(AT_SYSINFO_EHDR);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = step_trap_;
    action.sa_flags = SA_SIGINFO;
    MUST(sigaction(SIGTRAP, &action, NULL));
    memset(&step_state_, 0, sizeof step_state_);
    if (vdso) {
        const ElfW(Phdr) *segments =
            (const ElfW(Phdr) *)(const void *)((const char *)vdso + vdso->e_phoff);
        step_state_.vdso = step_state_.vdso_end = (uintptr_t)vdso;
        for (int i = 0; i < vdso->e_phnum; i++)
            if (segments[i].p_type == PT_LOAD)
                step_state_.vdso_end = (uintptr_t)vdso + segments[i].p_offset + segments[i].p_memsz;
    }
    STEP_FLAGS_("orl", "0x100");
}

static inline struct step_seen step_end(void) {
    STEP_FLAGS_("andl", "0xfffffeff");
    return step_state_.seen;
}

#else
#error "the single-step test is written for x86"
#endif

#endif /* FASTCLOCK_TESTS_STEP_H */
