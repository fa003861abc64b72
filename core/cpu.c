/* SPDX-License-Identifier: MIT
 *
 * Which processor this thread is on: from the area that the C library registered for restartable
 * sequences, which the kernel keeps up to date; else by RDPID; else by system call.
 */
#define _GNU_SOURCE
#include <fastclock.h>
#include <stdatomic.h>
#include <stddef.h>

#include "sys.h"

#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* ---- Restartable sequences --------------------------------------------------------------------
 */

#if defined(__linux__) && defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define HAVE_RSEQ 1
#endif
#endif

#ifdef HAVE_RSEQ

/* glibc 2.35 and later say where the area lies; weak, since others do not. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

#ifndef AT_RSEQ_FEATURE_SIZE
#define AT_RSEQ_FEATURE_SIZE 27
#endif

/* From <linux/rseq.h>; a cpu_id that is negative as a signed number means not registered. */
enum { RSEQ_CPU_ID = 4, RSEQ_NODE_ID = 20 };

static const uint32_t *rseq_field(size_t offset) {
    return (const uint32_t *)(const void *)((const char *)__builtin_thread_pointer() +
                                            __rseq_offset + offset);
}

static bool by_rseq(uint32_t *cpu, uint32_t *node) {
    uint32_t id;
    if (!&__rseq_offset || !&__rseq_size || __rseq_size == 0)
        return false;
    if (node && getauxval(AT_RSEQ_FEATURE_SIZE) < RSEQ_NODE_ID + sizeof *node)
        return false;
    do { /* the pair belongs together if the thread did not move in between */
        id = __atomic_load_n(rseq_field(RSEQ_CPU_ID), __ATOMIC_RELAXED);
        if ((int32_t)id < 0)
            return false;
        if (node)
            *node = __atomic_load_n(rseq_field(RSEQ_NODE_ID), __ATOMIC_RELAXED);
    } while (__atomic_load_n(rseq_field(RSEQ_CPU_ID), __ATOMIC_RELAXED) != id);
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

/* ---- RDPID ------------------------------------------------------------------------------------
 */

#if defined(__linux__) && (defined(__x86_64__) || defined(__i386__))
#include <cpuid.h>

enum { UNTRIED, USABLE, UNUSABLE };
static atomic_int rdpid_state;

/* Linux puts the node into the bits above the twelve of the processor's number. */
static void rdpid(uint32_t *cpu, uint32_t *node) {
    enum { NODE_SHIFT = 12, CPU_MASK = 0xfff };
    uintptr_t value;
    __asm__ volatile(".byte 0xf3, 0x0f, 0xc7, 0xf8"
                     : "=a"(value)); /* rdpid of the first register */
    *cpu = (uint32_t)value & CPU_MASK;
    *node = (uint32_t)value >> NODE_SHIFT;
}

/* The instruction may exist and the kernel still not have filled in its register: believed once it
 * has agreed with the system call on both sides of it. */
static int try_rdpid(void) {
    enum { FEATURES = 7, ECX_RDPID = 1 << 22, TRIES = 16 };
    uint32_t a, b, c, d, cpu0, node0, cpu, node, cpu1, node1;
    if (!__get_cpuid_count(FEATURES, 0, &a, &b, &c, &d) || !(c & ECX_RDPID))
        return UNUSABLE;
    for (int i = 0; i < TRIES; i++) {
        if (fc_sys_getcpu(&cpu0, &node0) < 0)
            return UNUSABLE;
        rdpid(&cpu, &node);
        if (fc_sys_getcpu(&cpu1, &node1) < 0)
            return UNUSABLE;
        if (cpu0 == cpu1)
            return cpu == cpu0 && node == node0 ? USABLE : UNUSABLE;
    }
    return UNUSABLE;
}

static bool by_rdpid(uint32_t *cpu, uint32_t *node) {
    uint32_t c, n;
    int state = atomic_load_explicit(&rdpid_state, memory_order_relaxed);
    if (state == UNTRIED) {
        state = try_rdpid();
        atomic_store_explicit(&rdpid_state, state, memory_order_relaxed);
    }
    if (state != USABLE)
        return false;
    rdpid(&c, &n);
    if (cpu)
        *cpu = c;
    if (node)
        *node = n;
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
