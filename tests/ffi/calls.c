/* SPDX-License-Identifier: MIT
 *
 * Every function of abi.h is called through libffi, with the types that its declaration has and no
 * help from the C compiler: what other languages do. The table of functions is made from abi.h; one
 * for which there is no case here fails.
 */
#define _GNU_SOURCE
#include <ffi.h>
#include <sched.h>

#include "../core/clocks.h"

enum kind_of_value { KIND_VOID, KIND_INT32, KIND_UINT32, KIND_UINT64, KIND_POINTER };

enum { ARGUMENTS_MAX = 6 };

struct declared {
    const char *name;
    enum kind_of_value result;
    unsigned count;
    enum kind_of_value arguments[ARGUMENTS_MAX];
    void (*address)(void);
};

static const struct declared table[] = {
#include "table.inc"
};
enum { DECLARED = sizeof table / sizeof *table };

union value {
    int32_t i32;
    uint32_t u32;
    uint64_t u64;
    void *pointer;
    ffi_arg wide; /* libffi widens small results to a register */
};

static ffi_type *type_of(enum kind_of_value kind) {
    switch (kind) {
    case KIND_INT32: return &ffi_type_sint32;
    case KIND_UINT32: return &ffi_type_uint32;
    case KIND_UINT64: return &ffi_type_uint64;
    case KIND_POINTER: return &ffi_type_pointer;
    default: return &ffi_type_void;
    }
}

static union value call(const struct declared *d, union value *values) {
    ffi_type *types[ARGUMENTS_MAX];
    void *arguments[ARGUMENTS_MAX];
    union value result = {.u64 = 0};
    ffi_cif cif;
    for (unsigned i = 0; i < d->count; i++) {
        types[i] = type_of(d->arguments[i]);
        arguments[i] = &values[i];
    }
    CHECK(ffi_prep_cif(&cif, FFI_DEFAULT_ABI, d->count, type_of(d->result), types) == FFI_OK,
          "%s cannot be called", d->name);
    ffi_call(&cif, d->address, &result, arguments);
    return result;
}

static const struct declared *find(const char *name) {
    for (int i = 0; i < DECLARED; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    FAIL("abi.h does not declare %s", name);
}

#define CALL(name, ...) call(find(#name), (union value[]){__VA_ARGS__})
#define CALL_0(name) call(find(#name), NULL)
#define I32(x)                                                                                     \
    { .i32 = (x) }
#define U32(x)                                                                                     \
    { .u32 = (x) }
#define U64(x)                                                                                     \
    { .u64 = (x) }
#define POINTER(x)                                                                                 \
    { .pointer = (void *)(uintptr_t)(x) }

/* ---- A case for each function -----------------------------------------------------------------
 */

static void read_by_name(const char *name) {
    for (int i = 0; i < CLOCK_READS; i++)
        if (strcmp(clock_reads[i].name, name) == 0) {
            const struct clock_read *c = &clock_reads[i];
            uint64_t before = 0, ns, after = 0;
            bracket_syscall_ns(c->clock, &before);
            ns = call(find(name), NULL).u64;
            bracket_syscall_ns(c->clock, &after);
            CHECK(ns + (c->kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0) >= before && ns <= after,
                  "%s: %" PRIu64 ", not %" PRIu64 " to %" PRIu64, name, ns, before, after);
            return;
        }
    FAIL("clocks.h does not know %s", name);
}

static void read_ns(const char *name) {
    uint64_t ns = 0, before = 0, after = 0;
    (void)name;
    bracket_syscall_ns(FC_MONOTONIC, &before);
    CHECK(CALL(fc_read_ns, I32(FC_MONOTONIC), POINTER(&ns)).i32 == 0);
    bracket_syscall_ns(FC_MONOTONIC, &after);
    CHECK(before <= ns && ns <= after, "%" PRIu64, ns);
    CHECK(CALL(fc_read_ns, I32(15), POINTER(&ns)).i32 == -EINVAL);
    CHECK(CALL(fc_read_ns, I32(FC_MONOTONIC), POINTER(NULL)).i32 == -EFAULT);
}

static void fill_ns(const char *name) {
    uint64_t ns[3] = {0, 0, 42};
    (void)name;
    CHECK(CALL(fc_fill_ns, I32(FC_MONOTONIC), POINTER(ns), U64(2)).i32 == 0);
    CHECK(ns[0] && ns[0] <= ns[1] && ns[2] == 42);
    /* A count beyond 32 bits arrives whole: nothing is written, since there is nowhere to. */
    CHECK(CALL(fc_fill_ns, I32(FC_MONOTONIC), POINTER(NULL), U64((uint64_t)1 << 32)).i32 ==
          -EFAULT);
}

static void ticks(const char *name) {
    const uint64_t first = call(find(name), NULL).u64, second = call(find(name), NULL).u64;
    CHECK(first && second, "%" PRIu64 ", %" PRIu64, first, second);
}

static void ticks_hz(const char *name) {
    (void)name;
    CHECK(CALL_0(fc_ticks_hz).u64 == fc_ticks_hz());
}

static void ticks_to_ns(const char *name) {
    const uint64_t ticks_in = 0x123456789abcdef0;
    (void)name;
    CHECK(CALL(fc_ticks_to_ns, U64(ticks_in)).u64 == fc_ticks_to_ns(ticks_in));
}

static void getcpu_(const char *name) {
    cpu_set_t one;
    uint32_t cpu = UINT32_MAX, node = UINT32_MAX;
    (void)name;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    MUST(sched_setaffinity(0, sizeof one, &one));
    CHECK(CALL(fc_getcpu, POINTER(&cpu), POINTER(&node)).i32 == 0);
    CHECK((int)cpu == sched_getcpu() && node != UINT32_MAX, "%u, %u", (unsigned)cpu,
          (unsigned)node);
}

static void init(const char *name) {
    (void)name;
    CHECK(CALL_0(fc_init).i32 == 0);
}

static void select_(const char *name) {
    (void)name;
    CHECK(CALL(fc_select, I32(FC_SOURCE_SYSCALL)).i32 == 0);
    CHECK(info_now().source == FC_SOURCE_SYSCALL);
    CHECK(CALL(fc_select, I32(FC_SOURCE_AUTO)).i32 == 0); /* a negative number */
    CHECK(CALL(fc_select, I32(99)).i32 == -EINVAL);
}

static void get_info(const char *name) {
    struct fc_info info;
    (void)name;
    CHECK(CALL(fc_get_info, POINTER(&info), U32(sizeof info)).i32 == 0);
    CHECK(info.size == sizeof info && info.source == FC_SOURCE_KERNEL_PAGE);
}

static void source_name(const char *name) {
    (void)name;
    CHECK(strcmp(CALL(fc_source_name, I32(FC_SOURCE_AUTO)).pointer, "auto") == 0);
}

static void reason_text(const char *name) {
    (void)name;
    CHECK(CALL(fc_reason_text, I32(FC_REASON_PROOF)).pointer == fc_reason_text(FC_REASON_PROOF));
}

static void version(const char *name) {
    (void)name;
    CHECK(strcmp(CALL_0(fc_version).pointer, fc_version()) == 0);
}

static const struct {
    const char *name;
    void (*run)(const char *name);
} cases[] = {
    {"vtime64", read_by_name},
    {"fc_realtime_ns", read_by_name},
    {"fc_monotonic_ns", read_by_name},
    {"fc_raw_ns", read_by_name},
    {"fc_boottime_ns", read_by_name},
    {"fc_tai_ns", read_by_name},
    {"fc_realtime_coarse_ns", read_by_name},
    {"fc_monotonic_coarse_ns", read_by_name},
    {"fc_realtime_relaxed_ns", read_by_name},
    {"fc_monotonic_relaxed_ns", read_by_name},
    {"fc_raw_relaxed_ns", read_by_name},
    {"fc_read_ns", read_ns},
    {"fc_fill_ns", fill_ns},
    {"fc_ticks", ticks},
    {"fc_ticks_ordered", ticks},
    {"fc_ticks_hz", ticks_hz},
    {"fc_ticks_to_ns", ticks_to_ns},
    {"fc_getcpu", getcpu_},
    {"fc_init", init},
    {"fc_select", select_},
    {"fc_get_info", get_info},
    {"fc_source_name", source_name},
    {"fc_reason_text", reason_text},
    {"fc_version", version},
};

static void has_a_case_and_passes_it(const void *argument) {
    const struct declared *d = argument;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, d->name) == 0) {
            cases[i].run(d->name);
            return;
        }
    FAIL("there is no case for %s", d->name);
}

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    for (int i = 0; i < DECLARED; i++) {
        snprintf(sentence, sizeof sentence, "%s can be called from its declaration alone",
                 table[i].name);
        check_that(sentence, has_a_case_and_passes_it, &table[i]);
    }
    return check_end();
}
