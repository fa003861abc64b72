/* SPDX-License-Identifier: MIT
 *
 * Ways to learn which processor this thread is on without a system call, and to keep its number and
 * the counter together: the area that the C library registered for restartable sequences, RDPID,
 * RDTSCP, and a restartable sequence of one's own.
 *
 * Every function and macro here reads registers, the thread's own area, or both. Linux only; what
 * the machine or the C library does not have is not declared, or says that it does not work.
 */
#ifndef FASTCLOCK_CORE_PROCESSOR_H
#define FASTCLOCK_CORE_PROCESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- The area for restartable sequences -------------------------------------------------------
 */

#if defined(__linux__) && defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer)
#define FC_HAVE_RSEQ 1
#endif
#endif

/* From <linux/rseq.h>, which old systems do not have. */
enum {
    FC_RSEQ_CPU_ID = 4, /* negative as a signed number: not registered */
    FC_RSEQ_CS = 8,     /* the sequence that this thread is in */
    FC_RSEQ_NODE_ID = 20
};

#ifdef FC_HAVE_RSEQ

/* glibc 2.35 and later say where the area lies; weak, since others do not. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* Only where fc_rseq_works(). */
static inline unsigned char *fc_rseq_area(void) {
    return (unsigned char *)__builtin_thread_pointer() + __rseq_offset;
}

static inline uint32_t fc_rseq_field(size_t offset) {
    return __atomic_load_n((const uint32_t *)(const void *)(fc_rseq_area() + offset),
                           __ATOMIC_RELAXED);
}

/* Whether this thread's area is registered. */
static inline bool fc_rseq_works(void) {
    return &__rseq_offset && &__rseq_size && __rseq_size > 0 &&
           (int32_t)fc_rseq_field(FC_RSEQ_CPU_ID) >= 0;
}

#else

static inline bool fc_rseq_works(void) {
    return false;
}

static inline uint32_t fc_rseq_field(size_t offset) {
    (void)offset;
    return 0;
}

#endif

#if defined(__linux__) && (defined(__x86_64__) || defined(__i386__))
#define FC_HAVE_PROCESSOR_REGISTER 1

/* ---- The processor's own register -------------------------------------------------------------
 */

/* Linux puts the node into the bits above the twelve of the processor's number. */
enum { FC_PROCESSOR_MASK = 0xfff, FC_PROCESSOR_NODE_SHIFT = 12 };

/* What an instruction may store into: a table register's value, or a number. */
struct __attribute__((packed)) fc_sequence_scratch {
    uint16_t limit;
    uintptr_t base;
};

/* RDPID of the first register. */
static inline uint32_t fc_rdpid(void) {
    uintptr_t value;
    __asm__ volatile(".byte 0xf3, 0x0f, 0xc7, 0xf8" : "=a"(value) : : "memory");
    return (uint32_t)value;
}

/* Counter and register in one instruction, which waits for all earlier ones as LFENCE does. */
static inline uint64_t fc_rdtscp(uint32_t *value) {
    uint32_t low, high;
    __asm__ volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(*value) : : "memory");
    return ((uint64_t)high << 32) + low;
}

#pragma GCC visibility push(hidden)
/* Whether the instruction exists and gives the number that the kernel gives. Found out once. */
bool fc_rdpid_works(void);
bool fc_rdtscp_works(void);
#pragma GCC visibility pop

#endif

/* ---- Restartable sequences --------------------------------------------------------------------
 *
 * FC_SEQUENCE_DECLARE(NAME), then FC_SEQUENCE_READ(NAME, ...) in a function that is
 * FC_SEQUENCE_ONCE, outside of any loop, which a compiler may unroll: one instruction that leaves
 * the processor's number in ecx, one that leaves the counter in edx and eax. A thread that the
 * kernel has interrupted between them, be it to run another one, to move it or to call a signal
 * handler, goes on at NAME_abort, which begins again; after `tries` times it gives up. The four
 * bytes before NAME_abort are the signature under which the C library registered. The area points
 * to the sequence no longer than it lasts, so that a library that holds one can be unloaded. */

#if defined(FC_HAVE_RSEQ) && (defined(__x86_64__) || defined(__i386__))
#define FC_HAVE_SEQUENCE 1

struct __attribute__((aligned(32))) fc_sequence {
    uint32_t version, flags;
    uint64_t start, length, abort;
};

/* A function that holds global labels may exist once only. */
#if defined(__clang__)
#define FC_SEQUENCE_ONCE __attribute__((noinline))
#else
#define FC_SEQUENCE_ONCE __attribute__((noinline, noclone))
#endif

#ifdef __x86_64__
#define FC_SEQUENCE_CLEAR_ "movq $0, 8(%[area])"
#else
#define FC_SEQUENCE_CLEAR_ "movl $0, 8(%[area])"
#endif

#define FC_SEQUENCE_DECLARE(name)                                                                  \
    extern const char name##_begin[] __attribute__((visibility("hidden")));                        \
    extern const char name##_end[] __attribute__((visibility("hidden")));                          \
    extern const char name##_abort[] __attribute__((visibility("hidden")));                        \
    static struct fc_sequence name##_sequence;

/* `tries`: an int, what is left of it afterwards; 0: given up. `segment`: a uint16_t for LSL.
 * `start` is written last: with any thread that sees it, the rest is there. */
#define FC_SEQUENCE_READ(name, number, counter, low, high, ecx, tries, scratch, segment)           \
    do {                                                                                           \
        if (__builtin_expect(                                                                      \
                !__atomic_load_n((uintptr_t *)(void *)&name##_sequence.start, __ATOMIC_ACQUIRE),   \
                0)) {                                                                              \
            __atomic_store_n((uintptr_t *)(void *)&name##_sequence.length,                         \
                             (uintptr_t)name##_end - (uintptr_t)name##_begin, __ATOMIC_RELAXED);   \
            __atomic_store_n((uintptr_t *)(void *)&name##_sequence.abort, (uintptr_t)name##_abort, \
                             __ATOMIC_RELAXED);                                                    \
            __atomic_store_n((uintptr_t *)(void *)&name##_sequence.start, (uintptr_t)name##_begin, \
                             __ATOMIC_RELEASE);                                                    \
        }                                                                                          \
        __asm__ volatile(                                                                          \
            "0: mov %[sequence], 8(%[area])\n" #name "_begin:\n\t" number "\n\t" counter           \
            "\n" #name "_end:\n\t" FC_SEQUENCE_CLEAR_ "\n1:\n"                                     \
            ".pushsection .text.rseq_abort, \"ax\", @progbits\n\t"                                 \
            ".byte 0x0f, 0xb9, 0x3d\n\t"                                                           \
            ".long 0x53053053\n" #name "_abort:\n\t"                                               \
            "decl %[left]\n\t"                                                                     \
            "jnz 0b\n\t"                                                                           \
            "jmp 1b\n"                                                                             \
            ".popsection"                                                                          \
            : "=&a"(low), "=&d"(high), "=&c"(ecx), [left] "+m"(tries), [scratch] "=m"(scratch)     \
            : [sequence] "r"(&name##_sequence), [area] "r"(fc_rseq_area()), [segment] "m"(segment) \
            : "memory", "cc");                                                                     \
    } while (0)

#endif

#endif
