/* SPDX-License-Identifier: MIT
 *
 * Which processor this thread is on: from the area that the C library registered for restartable
 * sequences, which the kernel keeps up to date; else by RDPID; else by system call.
 */
#define _GNU_SOURCE
#include <fastclock.h>
#include <stdatomic.h>

#include "processor.h"
#include "sys.h"

#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* ---- Restartable sequences --------------------------------------------------------------------
 */

#ifdef FC_HAVE_RSEQ

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

static bool by_rseq(uint32_t *cpu, uint32_t *node) {
    uint32_t id;
    if (!fc_rseq_works())
        return false;
    if (node && getauxval(AT_RSEQ_FEATURE_SIZE) < FC_RSEQ_NODE_ID + sizeof *node)
        return false;
    do { /* the pair belongs together if the thread did not move in between */
        id = fc_rseq_field(FC_RSEQ_CPU_ID);
        if (node)
            *node = fc_rseq_field(FC_RSEQ_NODE_ID);
    } while (fc_rseq_field(FC_RSEQ_CPU_ID) != id);
    if (cpu)
        *cpu = id;
    return true;
}

#else

static bool by_rseq(uint32_t *cpu, uint32_t *node) {
    (void)cpu;
    (void)node;
    return false;
}

#endif

/* ---- The processor's own register -------------------------------------------------------------
 */

#ifdef FC_HAVE_PROCESSOR_REGISTER
#include <cpuid.h>

enum { UNTRIED, USABLE, UNUSABLE };
static atomic_int rdpid_state, rdtscp_state;

static uint32_t by_rdtscp(void) {
    uint32_t value;
    fc_rdtscp(&value);
    return value;
}

/* An instruction may exist and the kernel still not have filled in its register: believed once it
 * has agreed with the system call on both sides of it. */
static int try_instruction(uint32_t (*read)(void)) {
    enum { TRIES = 16 };
    for (int i = 0; i < TRIES; i++) {
        uint32_t cpu0, node0, cpu1, node1, value;
        if (fc_sys_getcpu(&cpu0, &node0) < 0)
            return UNUSABLE;
        value = read();
        if (fc_sys_getcpu(&cpu1, &node1) < 0)
            return UNUSABLE;
        if (cpu0 == cpu1)
            return value == (node0 << FC_PROCESSOR_NODE_SHIFT | cpu0) ? USABLE : UNUSABLE;
    }
    return UNUSABLE;
}

/* One that is switched off by PR_SET_TSC would be fatal: who asks has made sure of that. */
bool fc_rdtscp_works(void) {
    const uint32_t extended = 0x80000001u;
    enum { EDX_RDTSCP = 1 << 27 };
    int state = atomic_load_explicit(&rdtscp_state, memory_order_relaxed);
    if (state == UNTRIED) {
        uint32_t a, b, c, d;
        state = __get_cpuid(extended, &a, &b, &c, &d) && (d & EDX_RDTSCP)
                    ? try_instruction(by_rdtscp)
                    : UNUSABLE;
        atomic_store_explicit(&rdtscp_state, state, memory_order_relaxed);
    }
    return state == USABLE;
}

bool fc_rdpid_works(void) {
    enum { FEATURES = 7, ECX_RDPID = 1 << 22 };
    int state = atomic_load_explicit(&rdpid_state, memory_order_relaxed);
    if (state == UNTRIED) {
        uint32_t a, b, c, d;
        state = __get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) && (c & ECX_RDPID)
                    ? try_instruction(fc_rdpid)
                    : UNUSABLE;
        atomic_store_explicit(&rdpid_state, state, memory_order_relaxed);
    }
    return state == USABLE;
}

static bool by_rdpid(uint32_t *cpu, uint32_t *node) {
    uint32_t value;
    if (!fc_rdpid_works())
        return false;
    value = fc_rdpid();
    if (cpu)
        *cpu = value & FC_PROCESSOR_MASK;
    if (node)
        *node = value >> FC_PROCESSOR_NODE_SHIFT;
    return true;
}

#else

static bool by_rdpid(uint32_t *cpu, uint32_t *node) {
    (void)cpu;
    (void)node;
    return false;
}

#endif

int32_t fc_getcpu(uint32_t *cpu, uint32_t *node) {
    if (by_rseq(cpu, node) || by_rdpid(cpu, node))
        return 0;
    return fc_sys_getcpu(cpu, node);
}
