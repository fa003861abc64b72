/* SPDX-License-Identifier: MIT
 *
 * The page that lies. Whatever stands in the pages that the kernel is said to have mapped, a read
 * ends, in bounded time, with a time that lies in its bracket: a wrong page is refused, or left at
 * the read. The world in which it lies is in world.h; the reader is the library's own.
 */
#define _GNU_SOURCE
#include "world.h"

#define FASTCLOCK_INLINE
#include "../core/clocks.h"

#include <fastclock/timekeep.h>

#include "../../core/kernel_page.h"
#include "../../core/view.h"

static const char *const mode_names[] = {"no counter", "the counter", "kvm-clock", "Hyper-V"};

/* A read looks at the page a thousand times at most, and every look reads the counter once, but for
 * the hypervisors' pages, which are looked at 64 times a look. */
enum { COUNTER_READS_MAX = 70000 };

/* ---- Reading everything ---------------------------------------------------------------------- */

/* The inlined reads; clock_reads has the same ones as calls. */
#define INLINE(name)                                                                               \
    static uint64_t inline_##name(void) {                                                          \
        return name();                                                                             \
    }
INLINE(vtime64)
INLINE(fc_realtime_ns)
INLINE(fc_monotonic_ns)
INLINE(fc_raw_ns)
INLINE(fc_boottime_ns)
INLINE(fc_tai_ns)
INLINE(fc_realtime_relaxed_ns)
INLINE(fc_monotonic_relaxed_ns)
INLINE(fc_raw_relaxed_ns)
INLINE(fc_realtime_coarse_ns)
INLINE(fc_monotonic_coarse_ns)

static uint64_t (*const inlined[])(void) = {
    inline_vtime64,
    inline_fc_realtime_ns,
    inline_fc_monotonic_ns,
    inline_fc_raw_ns,
    inline_fc_boottime_ns,
    inline_fc_tai_ns,
    inline_fc_realtime_relaxed_ns,
    inline_fc_monotonic_relaxed_ns,
    inline_fc_raw_relaxed_ns,
    inline_fc_realtime_coarse_ns,
    inline_fc_monotonic_coarse_ns,
};
_Static_assert(sizeof inlined / sizeof *inlined == CLOCK_READS, "one for each");

static void must_lie(const char *name, int32_t clock, uint64_t before, uint64_t ours,
                     uint64_t after, uint64_t counter_reads) {
    CHECK(before <= ours && ours <= after,
          "%s, clock %d: %" PRIu64 " not in %" PRIu64 " to %" PRIu64, name, (int)clock, ours,
          before, after);
    CHECK(world.counter_reads - counter_reads <= COUNTER_READS_MAX, "%s: %" PRIu64 " looks", name,
          world.counter_reads - counter_reads);
}

/* Every read of every clock, in every form, lies in its bracket. */
static void all_reads_are_right(void) {
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct clock_read *r = &clock_reads[i];
        for (int form = 0; form < 2; form++) {
            const uint64_t looks = world.counter_reads;
            const uint64_t before = world_ns(r->clock);
            const uint64_t ours = form ? inlined[i]() : r->read();
            must_lie(r->name, r->clock, before, ours, world_ns(r->clock), looks);
        }
    }
    for (int i = 0; i < CLOCKS; i++) {
        const uint64_t looks = world.counter_reads;
        struct timespec ts;
        uint64_t ns, before = world_ns(clocks[i]);
        CHECK(fc_read_ns(clocks[i], &ns) == 0, "clock %d", (int)clocks[i]);
        must_lie("fc_read_ns", clocks[i], before, ns, world_ns(clocks[i]), looks);
        before = world_ns(clocks[i]);
        CHECK(fc_clock_gettime(clocks[i], &ts) == 0, "clock %d", (int)clocks[i]);
        ns = (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
        must_lie("fc_clock_gettime", clocks[i], before, ns, world_ns(clocks[i]), looks);
    }
}

/* The same, and none of them asked the kernel or the vDSO. */
static void all_reads_are_on_the_page(void) {
    const uint64_t calls = world.system_calls, vdso = world.vdso_reads;
    all_reads_are_right();
    CHECK(world.system_calls == calls, "%" PRIu64 " system calls", world.system_calls - calls);
    CHECK(world.vdso_reads == vdso, "%" PRIu64 " reads by the vDSO", world.vdso_reads - vdso);
}

/* The same, and all that need the counter were answered by the vDSO or by the system call. */
static void fine_reads_leave_the_page(void) {
    for (int i = 0; i < CLOCK_READS; i++) {
        const uint64_t others = world.vdso_reads + world.system_calls;
        clock_reads[i].read();
        CHECK(clock_reads[i].kind == COARSE || world.vdso_reads + world.system_calls > others,
              "%s did not leave", clock_reads[i].name);
    }
    all_reads_are_right();
}

static void choose_the_page(void) {
    struct fc_info info;
    CHECK(fc_init() == 0, "nothing serves");
    info = info_now();
    CHECK(info.source == FC_SOURCE_KERNEL_PAGE, "%s: %s", fc_source_name(info.source),
          fc_reason_text(info.reason[FC_SOURCE_KERNEL_PAGE]));
    CHECK(strcmp(info.layout, world.shape->layout) == 0, "took it for %s", info.layout);
    CHECK(info.time_namespace == world.namespaced, "time namespace: %d", info.time_namespace);
}

/* ---- Pages that tell the truth --------------------------------------------------------------- */

struct place {
    const struct shape *shape;
    uint32_t mode;
    bool namespaced;
};

static void build(const struct place *p) {
    world_build(p->shape, p->mode, p->namespaced);
}

static void true_page_is_read(const void *argument) {
    build(argument);
    choose_the_page();
    CHECK(info_now().serving == FC_SOURCE_KERNEL_PAGE, "%s",
          fc_reason_text(info_now().serving_reason));
    for (int i = 0; i < 100; i++) {
        all_reads_are_on_the_page();
        if (i % 10 == 0)
            world_tick();
    }
    CHECK(info_now().slow_reads == 0, "%" PRIu64 " slow reads", info_now().slow_reads);
}

/* ---- Pages that lie from the start ----------------------------------------------------------- */

static void swap(void *a, void *b, size_t size) {
    unsigned char keep[16];
    memcpy(keep, a, size);
    memcpy(a, b, size);
    memcpy(b, keep, size);
}

#define FIELD(type, clock, offset) (*(type *)world_field(clock, offset))

static void lie_zeros(void) {
    memset(world.vvar, 0, PAGE);
}

static void lie_ones(void) {
    memset(world.vvar, 0xff, PAGE);
}

/* gVisor's: a sequence of 64 bits, a flag, cycles and nanoseconds at one moment, a frequency. */
static void lie_gvisor(void) {
    const uint64_t page[] = {2,          1, world.last, world.base_s[FC_MONOTONIC] * 1000000000,
                             2600000000, 1, world.last, world.base_s[FC_REALTIME] * 1000000000,
                             2600000000};
    memset(world.vvar, 0, PAGE);
    memcpy(world.vvar + world.shape->block, page, sizeof page);
}

static void lie_mult_0(void) {
    FIELD(uint32_t, FC_MONOTONIC, MULT) = 0;
}

static void lie_raw_mult_0(void) {
    FIELD(uint32_t, FC_RAW, MULT) = 0;
}

static void lie_mult_1(void) {
    FIELD(uint32_t, FC_MONOTONIC, MULT) = 1;
    FIELD(uint32_t, FC_MONOTONIC, SHIFT) = 1;
}

static void lie_mult_half(void) {
    FIELD(uint32_t, FC_MONOTONIC, MULT) /= 2;
}

static void lie_mult_thousandth(void) {
    FIELD(uint32_t, FC_RAW, MULT) += FIELD(uint32_t, FC_RAW, MULT) / 1000;
}

static void lie_shift_0(void) {
    FIELD(uint32_t, FC_MONOTONIC, SHIFT) = 0;
}

static void lie_shift_33(void) {
    FIELD(uint32_t, FC_MONOTONIC, SHIFT) = 33;
}

static void lie_shift_64(void) {
    FIELD(uint32_t, FC_MONOTONIC, SHIFT) = 64;
}

static void lie_raw_shift_64(void) {
    FIELD(uint32_t, FC_RAW, SHIFT) = 64;
}

static void lie_shift_one_less(void) {
    FIELD(uint32_t, FC_MONOTONIC, SHIFT)--;
}

static void lie_mask_with_a_hole(void) {
    FIELD(uint64_t, FC_MONOTONIC, MASK) = ~(UINT64_C(1) << 20);
}

static void lie_mask_0(void) {
    FIELD(uint64_t, FC_MONOTONIC, MASK) = 0;
}

static void lie_mask_of_32_bits(void) {
    FIELD(uint64_t, FC_MONOTONIC, MASK) = UINT32_MAX;
}

static void lie_swapped_scale(void) {
    swap(world_field(FC_MONOTONIC, MULT), world_field(FC_MONOTONIC, SHIFT), 4);
}

static void lie_swapped_mask(void) {
    swap(world_field(FC_MONOTONIC, LAST), world_field(FC_MONOTONIC, MASK), 8);
}

static void lie_swapped_sequence(void) {
    swap(world_field(FC_MONOTONIC, SEQUENCE), world_field(FC_MONOTONIC, MODE), 4);
}

static void lie_swapped_blocks(void) {
    for (unsigned i = 0; i < world.shape->raw; i += 8)
        swap(world_block(FC_MONOTONIC) + i, world_block(FC_RAW) + i, 8);
}

static void lie_swapped_seconds(void) {
    unsigned char *base = world_field(FC_MONOTONIC, BASES + 16 * FC_MONOTONIC);
    swap(base, base + 8, 8);
}

static void swap_bases(int32_t a, int32_t b) {
    swap(world_field(FC_MONOTONIC, BASES + 16 * (unsigned)a),
         world_field(FC_MONOTONIC, BASES + 16 * (unsigned)b), 16);
}

static void lie_realtime_for_monotonic(void) {
    swap_bases(FC_REALTIME, FC_MONOTONIC);
}

static void lie_boottime_for_monotonic(void) {
    swap_bases(FC_BOOTTIME, FC_MONOTONIC);
}

static void lie_tai_for_realtime(void) {
    swap_bases(FC_TAI, FC_REALTIME);
}

static void lie_tai_for_boottime(void) {
    swap_bases(FC_TAI, FC_BOOTTIME);
}

static void lie_coarse_for_fine(void) {
    swap_bases(FC_MONOTONIC_COARSE, FC_MONOTONIC);
}

static void lie_coarse_for_coarse(void) {
    swap_bases(FC_MONOTONIC_COARSE, FC_REALTIME_COARSE);
}

static void lie_microsecond(void) {
    FIELD(uint64_t, FC_BOOTTIME, BASES + 16 * FC_BOOTTIME + 8) += UINT64_C(1000) << world.shift;
}

static void lie_second(void) {
    FIELD(uint64_t, FC_TAI, BASES + 16 * FC_TAI)++;
}

static void lie_raw_second(void) {
    FIELD(uint64_t, FC_RAW, BASES + 16 * FC_RAW)--;
}

static void lie_nanosecond_coarse(void) {
    FIELD(uint64_t, FC_MONOTONIC, BASES + 16 * FC_MONOTONIC_COARSE + 8)--;
}

static void lie_nanoseconds_out_of_range(void) {
    FIELD(uint64_t, FC_TAI, BASES + 16 * FC_TAI + 8) = UINT64_MAX;
}

static void lie_yesterday(void) {
    FIELD(uint64_t, FC_REALTIME, BASES + 16 * FC_REALTIME_COARSE) -= 86400;
}

static void lie_sequence_stuck(void) {
    FIELD(uint32_t, FC_MONOTONIC, SEQUENCE) |= 1;
    FIELD(uint32_t, FC_RAW, SEQUENCE) |= 1;
}

static void lie_raw_sequence_stuck(void) {
    FIELD(uint32_t, FC_RAW, SEQUENCE) |= 1;
}

static void lie_mode_unknown(void) {
    FIELD(uint32_t, FC_MONOTONIC, MODE) = 77;
    FIELD(uint32_t, FC_RAW, MODE) = 77;
}

static void lie_mode_of_raw(void) {
    FIELD(uint32_t, FC_RAW, MODE) = MODE_NONE;
}

/* The words of a namespace, and no page behind. */
static void lie_namespace(void) {
    for (int i = 0; i < 2; i++) {
        FIELD(uint32_t, i ? FC_RAW : FC_MONOTONIC, SEQUENCE) = 1;
        FIELD(uint32_t, i ? FC_RAW : FC_MONOTONIC, MODE) = MODE_NAMESPACE;
    }
}

/* The words of a namespace once more in the real page, as if namespaces were nested. */
static void lie_nested_namespace(void) {
    world_page(world.vvar + world.shape->namespace_at * PAGE, true);
    lie_namespace();
    memcpy(world.vvar + world.shape->namespace_at * PAGE, world.vvar, PAGE);
}

static void lie_last_ahead(void) {
    FIELD(uint64_t, FC_MONOTONIC, LAST) += UINT64_C(2600000000);
    FIELD(uint64_t, FC_RAW, LAST) += UINT64_C(2600000000);
}

static void lie_last_far_ahead(void) {
    FIELD(uint64_t, FC_MONOTONIC, LAST) = world.counter + UINT64_C(0x7000000000000000);
    FIELD(uint64_t, FC_RAW, LAST) = world.counter + UINT64_C(0x7000000000000000);
}

static void lie_last_far_behind(void) {
    FIELD(uint64_t, FC_MONOTONIC, LAST) = world.counter - 10 * world.max_cycles;
    FIELD(uint64_t, FC_RAW, LAST) = world.counter - 10 * world.max_cycles;
}

static void lie_absent(void) {
    world_page(world.vvar, false);
}

/* REFUSED: the page cannot be chosen. LEFT: it may be, as the lie could be a moment's; then every
 * read of a clock that it concerns leaves it. */
enum fate { REFUSED, LEFT };

static const struct lie {
    const char *words;
    void (*tell)(void);
    enum fate fate;
} lies[] = {
    {"all zero bytes", lie_zeros, REFUSED},
    {"all one bits", lie_ones, REFUSED},
    {"gVisor's page", lie_gvisor, REFUSED},
    {"mult 0", lie_mult_0, REFUSED},
    {"mult 0 of the raw clock", lie_raw_mult_0, REFUSED},
    {"mult 1, with which a count behind the last would not overflow", lie_mult_1, REFUSED},
    {"half the mult", lie_mult_half, REFUSED},
    {"a raw mult that is too large by a thousandth", lie_mult_thousandth, REFUSED},
    {"shift 0", lie_shift_0, REFUSED},
    {"shift 33", lie_shift_33, REFUSED},
    {"shift 64", lie_shift_64, REFUSED},
    {"shift 64 of the raw clock", lie_raw_shift_64, REFUSED},
    {"a shift that is one less", lie_shift_one_less, REFUSED},
    {"a mask with a hole", lie_mask_with_a_hole, REFUSED},
    {"mask 0", lie_mask_0, REFUSED},
    {"a mask of 32 bits", lie_mask_of_32_bits, REFUSED},
    {"mult and shift swapped", lie_swapped_scale, REFUSED},
    {"the last count and the mask swapped", lie_swapped_mask, REFUSED},
    {"sequence and mode swapped", lie_swapped_sequence, REFUSED},
    {"the raw block and the other swapped", lie_swapped_blocks, REFUSED},
    {"second and nanosecond of a base swapped", lie_swapped_seconds, REFUSED},
    {"the bases of realtime and monotonic swapped", lie_realtime_for_monotonic, REFUSED},
    {"the bases of boottime and monotonic swapped", lie_boottime_for_monotonic, REFUSED},
    {"the bases of TAI and realtime swapped", lie_tai_for_realtime, REFUSED},
    {"the bases of TAI and boottime swapped", lie_tai_for_boottime, REFUSED},
    {"the bases of a fine and a coarse clock swapped", lie_coarse_for_fine, REFUSED},
    {"the bases of the coarse clocks swapped", lie_coarse_for_coarse, REFUSED},
    {"boottime wrong by a microsecond", lie_microsecond, REFUSED},
    {"TAI wrong by a second", lie_second, REFUSED},
    {"the raw clock wrong by a second", lie_raw_second, REFUSED},
    {"a coarse clock wrong by a nanosecond", lie_nanosecond_coarse, REFUSED},
    {"nanoseconds without bound", lie_nanoseconds_out_of_range, REFUSED},
    {"a date of yesterday", lie_yesterday, REFUSED},
    {"a sequence that stays odd", lie_sequence_stuck, REFUSED},
    {"a raw sequence that stays odd", lie_raw_sequence_stuck, REFUSED},
    {"a mode that nobody knows", lie_mode_unknown, REFUSED},
    {"two blocks with different modes", lie_mode_of_raw, REFUSED},
    {"the words of a time namespace without a page behind", lie_namespace, REFUSED},
    {"a time namespace in a time namespace", lie_nested_namespace, REFUSED},
    {"a last count that is a second ahead", lie_last_ahead, LEFT},
    {"a last count that is ahead by half of all counts", lie_last_far_ahead, LEFT},
    {"a last count that is ten times the maximum behind", lie_last_far_behind, LEFT},
    {"a page that cannot be read", lie_absent, REFUSED},
};
enum { LIES = sizeof lies / sizeof *lies };

/* In every shape, each in a process of its own: the first choice is what is tried. */
static void lie_is_found_out(const void *argument) {
    const struct lie *lie = argument;
    for (int i = 0; i < SHAPES; i++) {
        pid_t child;
        if (lie->tell == lie_nested_namespace && !shapes[i].namespace_at)
            continue;
        MUST(child = fork());
        if (child == 0) {
            struct fc_info info;
            world_build(&shapes[i], MODE_COUNTER, false);
            lie->tell();
            CHECK(fc_init() == 0, "%s: nothing serves", shapes[i].kernels);
            info = info_now();
            if (lie->fate == REFUSED) {
                CHECK(info.source == FC_SOURCE_VDSO, "%s: %s serves, as layout \"%s\"",
                      shapes[i].kernels, fc_source_name(info.source), info.layout);
                CHECK(info.reason[FC_SOURCE_KERNEL_PAGE] != FC_REASON_NONE &&
                          info.reason[FC_SOURCE_KERNEL_PAGE] != FC_REASON_NOT_TRIED,
                      "no reason is given");
            } else {
                CHECK(info.serving == FC_SOURCE_VDSO, "%s: %s serves", shapes[i].kernels,
                      fc_source_name(info.serving));
                fine_reads_leave_the_page();
            }
            for (int reads = 0; reads < 10; reads++)
                all_reads_are_right();
            _exit(0);
        }
        MUST_EXIT_0(child);
    }
}

/* ---- Pages of noise -------------------------------------------------------------------------- */

static uint64_t noise_state;

static uint64_t noise(void) { /* xorshift */
    noise_state ^= noise_state << 13;
    noise_state ^= noise_state >> 7;
    noise_state ^= noise_state << 17;
    return noise_state;
}

/* Straight through the prover, as a choice of the whole process is made once. What is accepted all
 * the same has to be right: a page can be spoilt where nobody looks, or by less than the width of
 * the brackets in which it is proved. */
static void spoilt_page_is_refused_or_right(const void *argument) {
    const uint64_t rounds = check_rounds(20000), bracket_ns = 25;
    uint64_t accepted = 0;
    (void)argument;
    for (uint64_t round = 0; round < rounds; round++) {
        struct fc_kernel_page page;
        unsigned char *first;
        memset(&page, 0, sizeof page);
        noise_state = (round + 1) * UINT64_C(0x9e3779b97f4a7c15);
        if (round < SHAPES)
            world_build(&shapes[round], MODE_COUNTER, false);
        first = world.vvar;
        world_write(1234567890);
        for (uint64_t spoils = noise() % 8; spoils > 0; spoils--) {
            /* Where the fields are; a byte, a word or all of it. */
            unsigned char *at = first + world.shape->block + noise() % 480;
            switch (noise() % 3) {
            case 0: *at ^= (unsigned char)(1u << noise() % 8); break;
            case 1: *at = (unsigned char)noise(); break;
            default: {
                const uint64_t word = noise();
                memcpy((void *)((uintptr_t)at & ~(uintptr_t)7), &word, sizeof word);
            }
            }
        }
        if (fc_kernel_page_open(&page, true) != FC_REASON_NONE)
            continue;
        accepted++;
        for (int i = 0; i < CLOCKS; i++) {
            struct fc_reading reading;
            const uint64_t looks = world.counter_reads, before = world_ns(clocks[i]);
            if (fc_kernel_page_read(&page, (uint32_t)clocks[i], true, &reading) == FC_REASON_NONE)
                must_lie("spoilt", clocks[i], before - bracket_ns, fc_reading_count(reading),
                         world_ns(clocks[i]) + bracket_ns, looks);
        }
    }
    CHECK(accepted > rounds / 100, "only %" PRIu64 " pages of %" PRIu64 " were accepted", accepted,
          rounds);
    CHECK(accepted < rounds / 2, "%" PRIu64 " pages of %" PRIu64 " were accepted", accepted,
          rounds);
}

/* ---- Pages that are right at the proof and wrong later ----------------------------------------
 */

static void lie_mode_none(void) {
    FIELD(uint32_t, FC_MONOTONIC, MODE) = MODE_NONE;
    FIELD(uint32_t, FC_RAW, MODE) = MODE_NONE;
}

static void lie_both_mult_0(void) {
    lie_mult_0();
    lie_raw_mult_0();
}

static const struct lie later[] = {
    {"all zero bytes but for the coarse clocks", NULL, LEFT},
    {"mult 0", lie_both_mult_0, LEFT},
    {"no counter", lie_mode_none, LEFT},
    {"a mode that nobody knows", lie_mode_unknown, LEFT},
    {"a last count that is a second ahead", lie_last_ahead, LEFT},
    {"a last count that is ahead by half of all counts", lie_last_far_ahead, LEFT},
    {"a last count that is ten times the maximum behind", lie_last_far_behind, LEFT},
    {"a sequence that stays odd", lie_sequence_stuck, LEFT},
    {"all one bits", lie_ones, LEFT},
    {"the words of a time namespace without a page behind", lie_namespace, LEFT},
};
enum { LATER = sizeof later / sizeof *later };

static void later_lie_is_left(const void *argument) {
    const struct lie *lie = argument;
    for (int i = 0; i < SHAPES; i++) {
        pid_t child;
        MUST(child = fork());
        if (child == 0) {
            world_build(&shapes[i], MODE_COUNTER, false);
            choose_the_page();
            all_reads_are_on_the_page();
            if (lie->tell) {
                lie->tell();
            } else {
                unsigned char *block = world_block(FC_MONOTONIC);
                memset(block + 4, 0, BASES + shapes[i].extra - 4);
                memset(world_block(FC_RAW) + 4, 0, BASES + shapes[i].extra - 4);
            }
            fine_reads_leave_the_page();
            CHECK(info_now().serving == (info_now().serving_reason == FC_REASON_MODE_NONE
                                             ? FC_SOURCE_SYSCALL
                                             : FC_SOURCE_VDSO),
                  "%s serves", fc_source_name(info_now().serving));
            CHECK(info_now().serving_reason != FC_REASON_NONE, "no reason is given");
            world_write(1234567892);
            all_reads_are_on_the_page();
            _exit(0);
        }
        MUST_EXIT_0(child);
    }
}

/* ---- Writers ----------------------------------------------------------------------------------
 */

static void move_sequence(void) {
    FIELD(uint32_t, FC_MONOTONIC, SEQUENCE) += 2;
    FIELD(uint32_t, FC_RAW, SEQUENCE) += 2;
}

static void sequence_that_never_holds_is_left(const void *argument) {
    build(argument);
    choose_the_page();
    world.on_counter = move_sequence;
    fine_reads_leave_the_page();
    CHECK(info_now().serving_reason == FC_REASON_BUSY, "%s",
          fc_reason_text(info_now().serving_reason));
    world.on_counter = NULL;
    all_reads_are_on_the_page();
}

static unsigned looks_between;

/* A whole update amid every so many looks, whose values differ from those before. */
static void tick_amid_looks(void) {
    static unsigned looks;
    if (++looks % looks_between == 0)
        world_tick();
}

static void updates_amid_looks_do_not_show(const void *argument) {
    build(argument);
    choose_the_page();
    for (looks_between = 2; looks_between < 6; looks_between++) {
        world.on_counter = tick_amid_looks;
        for (int i = 0; i < 100; i++)
            all_reads_are_on_the_page();
    }
}

static void sequence_wraps(const void *argument) {
    build(argument);
    choose_the_page();
    world_write(UINT32_MAX - 15);
    world.on_counter = tick_amid_looks;
    looks_between = 2;
    for (int i = 0; i < 10; i++)
        all_reads_are_on_the_page();
    CHECK(FIELD(uint32_t, FC_MONOTONIC, SEQUENCE) < 100000, "it did not wrap");
}

/* A read may be held up, for however long, between its two loads of the view: the pointer to a
 * block, and the offset that it needs. So every block that was ever shown needs the offset of now;
 * the coarse clocks have theirs. */
static void show_in_turn(const struct place *p, bool timehands_first) {
    static const struct fc_timekeep_hands hands;
    const uint32_t needed[2] = {p->shape->extra, 8};
    const bool alike = needed[0] == needed[1];
    struct fc_kernel_page page;
    memset(&page, 0, sizeof page);
    build(p);
    CHECK(fc_kernel_page_open(&page, true) == FC_REASON_NONE, "the page is refused");
    for (int turn = 0; turn < 6; turn++) {
        const bool first = turn % 2 == 0, timehands = first == timehands_first;
        fc_view_set(&page, timehands ? &hands : NULL,
                    FC_SHOW_COARSE | (timehands ? FC_SHOW_TIMEKEEP : FC_SHOW_FINE));
        CHECK(((fc_load_sequence_(fc_view_v1.fine) & 1) == 0) == (first || alike),
              "turn %d: it is %sshown", turn, first || alike ? "not " : "");
        CHECK(fc_view_v1.extra == needed[timehands_first], "turn %d: the offset is %u", turn,
              fc_view_v1.extra);
        CHECK((fc_load_sequence_(fc_view_v1.coarse) & 1) == 0 &&
                  fc_view_v1.coarse_extra == needed[0],
              "turn %d: the coarse clocks are not shown, or by the offset %u", turn,
              fc_view_v1.coarse_extra);
    }
}

static void page_then_timehands(const void *argument) {
    show_in_turn(argument, false);
}

static void timehands_then_page(const void *argument) {
    show_in_turn(argument, true);
}

/* The clocksource goes just when the counter is read. */
static void mode_goes(void) {
    world.mode = MODE_NONE;
    world.on_counter = NULL;
    world_write(FIELD(uint32_t, FC_MONOTONIC, SEQUENCE) + 2);
}

static void mode_that_goes_amid_a_look_is_seen(const void *argument) {
    build(argument);
    choose_the_page();
    for (int i = 0; i < CLOCK_READS; i++) {
        uint64_t calls = world.system_calls, looks = world.counter_reads, before, ours;
        if (clock_reads[i].kind == COARSE)
            continue;
        world.mode = MODE_COUNTER;
        world_tick();
        world.on_counter = mode_goes;
        before = world_ns(clock_reads[i].clock);
        ours = clock_reads[i].read();
        must_lie(clock_reads[i].name, clock_reads[i].clock, before, ours,
                 world_ns(clock_reads[i].clock), looks);
        CHECK(world.system_calls == calls + 1, "%s did not leave", clock_reads[i].name);
    }
}

static void every_mode_is_proved_once(const void *argument) {
    static const uint32_t modes[] = {MODE_PVCLOCK, MODE_NONE, MODE_HVCLOCK, MODE_COUNTER};
    build(argument);
    choose_the_page();
    for (int round = 0; round < 2; round++)
        for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
            const uint64_t calls = world.system_calls;
            world_switch(modes[i]);
            if (modes[i] == MODE_NONE) {
                fine_reads_leave_the_page();
                continue;
            }
            if (round == 0) {
                all_reads_are_right();
                CHECK((world.system_calls != calls) == (modes[i] != MODE_COUNTER),
                      "%s: %" PRIu64 " system calls", mode_names[modes[i]],
                      world.system_calls - calls);
            }
            all_reads_are_on_the_page();
        }
}

static void namespace_may_come_and_go(const void *argument) {
    build(argument);
    choose_the_page();
    for (int round = 0; round < 3; round++) {
        world_enter(true);
        all_reads_are_right();
        all_reads_are_on_the_page();
        CHECK(info_now().time_namespace == 1, "%d", info_now().time_namespace);
        world_enter(false);
        all_reads_are_on_the_page();
        CHECK(info_now().time_namespace == 0, "%d", info_now().time_namespace);
    }
}

/* ---- Hypervisors' pages that lie --------------------------------------------------------------
 */

static void put_pv(unsigned at, uint64_t value, size_t size) {
    memcpy(world.vclock + (world.mode == MODE_HVCLOCK ? PAGE : 0) + at, &value, size);
}

static void pv_unstable(void) {
    put_pv(29, 0, 1);
}

static void pv_unstable_with_other_flags(void) {
    put_pv(29, 0xfe, 1);
}

static void pv_version_odd(void) {
    put_pv(0, 3, 4);
}

static void pv_ahead(void) {
    put_pv(8, world.counter + 2600000000, 8);
}

/* With a scale of so few digits the product does not overflow. */
static void pv_ahead_by_a_coarse_scale(void) {
    world_migrate();
    world.pv_shift = 24;
    world.pv_mult = 98;
    world_write(1234567892);
    all_reads_are_right();
    pv_ahead();
}

static void pv_shift_wide(void) {
    put_pv(28, 100, 1);
}

static void pv_shift_wide_to_the_right(void) {
    put_pv(28, 0x80, 1);
}

static void pv_negative(void) {
    put_pv(16, UINT64_MAX / 2 + 1, 8);
}

static void pv_behind_last(void) {
    put_pv(16, 5, 8);
}

static void pv_all_ones(void) {
    memset(world.vclock, 0xff, PAGE);
}

static void hv_invalid(void) {
    put_pv(0, 0, 4);
}

static void hv_negative(void) {
    put_pv(16, UINT64_MAX / 2, 8);
    put_pv(8, UINT64_MAX, 8);
}

static void hv_behind_last(void) {
    put_pv(8, 1, 8);
}

static const struct pv_lie {
    const char *words;
    uint32_t mode;
    void (*tell)(void);
    int32_t reason;
} pv_lies[] = {
    {"no stable flag", MODE_PVCLOCK, pv_unstable, FC_REASON_PARAVIRTUAL},
    {"every flag but the stable one", MODE_PVCLOCK, pv_unstable_with_other_flags,
     FC_REASON_PARAVIRTUAL},
    {"a version that stays odd", MODE_PVCLOCK, pv_version_odd, FC_REASON_BUSY},
    {"a time stamp that is ahead", MODE_PVCLOCK, pv_ahead, FC_REASON_BUSY},
    {"a time stamp that is ahead, and a coarse scale", MODE_PVCLOCK, pv_ahead_by_a_coarse_scale,
     FC_REASON_BUSY},
    {"a shift of 100", MODE_PVCLOCK, pv_shift_wide, FC_REASON_BUSY},
    {"a shift of -128", MODE_PVCLOCK, pv_shift_wide_to_the_right, FC_REASON_BUSY},
    {"a time of 292 years", MODE_PVCLOCK, pv_negative, FC_REASON_BUSY},
    {"a time before the last count", MODE_PVCLOCK, pv_behind_last, FC_REASON_BUSY},
    {"all one bits", MODE_PVCLOCK, pv_all_ones, FC_REASON_BUSY},
    {"sequence 0", MODE_HVCLOCK, hv_invalid, FC_REASON_PARAVIRTUAL},
    {"a sum below zero", MODE_HVCLOCK, hv_negative, FC_REASON_BUSY},
    {"a time before the last count", MODE_HVCLOCK, hv_behind_last, FC_REASON_BUSY},
};
enum { PV_LIES = sizeof pv_lies / sizeof *pv_lies };

static void pv_lie_is_left(const void *argument) {
    const struct pv_lie *lie = argument;
    for (int i = 0; i < SHAPES; i++)
        for (int first = 0; first < 2; first++) {
            pid_t child;
            MUST(child = fork());
            if (child == 0) {
                world_build(&shapes[i], lie->mode, false);
                if (first) /* and so it is not there when the way is to be proved */
                    lie->tell();
                choose_the_page();
                if (!first) {
                    all_reads_are_on_the_page();
                    lie->tell();
                }
                fine_reads_leave_the_page();
                CHECK(info_now().serving_reason == lie->reason, "%s",
                      fc_reason_text(info_now().serving_reason));
                world_write(1234567892);
                all_reads_are_right(); /* perhaps proved only now */
                all_reads_are_on_the_page();
                _exit(0);
            }
            MUST_EXIT_0(child);
        }
}

static void move_version(void) {
    uint32_t version;
    memcpy(&version, world.vclock + (world.mode == MODE_HVCLOCK ? PAGE : 0), sizeof version);
    put_pv(0, version + 2, 4);
}

static void version_that_never_holds_is_left(const void *argument) {
    build(argument);
    choose_the_page();
    world.on_counter = move_version;
    fine_reads_leave_the_page();
    world.on_counter = NULL;
    all_reads_are_on_the_page();
}

/* A migration to another host amid every other look: another stamp, another scale. */
static void migrate(void) {
    static unsigned looks;
    if (++looks % 2)
        return;
    if (world.mode == MODE_PVCLOCK) {
        uint32_t version;
        memcpy(&version, world.vclock, sizeof version);
        world_migrate();
        put_pv(8, world.pv_timestamp, 8);
        put_pv(16, world.pv_system_time, 8);
        put_pv(0, version + 2, 4);
    } else {
        move_version();
    }
}

static void migration_amid_a_look_does_not_show(const void *argument) {
    build(argument);
    choose_the_page();
    world.on_counter = migrate;
    for (int i = 0; i < 100; i++)
        all_reads_are_on_the_page();
}

static void pv_wrong_scale_is_refused(const void *argument) {
    uint64_t calls;
    build(argument);
    if (world.mode == MODE_PVCLOCK)
        put_pv(24, world.pv_mult + world.pv_mult / 1000, 4);
    else
        put_pv(8, world.hv_scale + world.hv_scale / 1000, 8);
    CHECK(fc_init() == 0, "nothing serves");
    CHECK(info_now().serving == FC_SOURCE_VDSO, "%s serves", fc_source_name(info_now().serving));
    all_reads_are_right();
    /* For good, without another proof at every read. */
    calls = world.system_calls;
    all_reads_are_right();
    CHECK(world.system_calls == calls, "%" PRIu64 " system calls", world.system_calls - calls);
}

/* The mode says so, but the kernel has no page for it: touching it would kill. */
static void absent_pv_page_is_not_touched(const void *argument) {
    build(argument);
    world_page(world.vclock, false);
    world_page(world.vclock + PAGE, false);
    choose_the_page();
    fine_reads_leave_the_page();
    CHECK(info_now().serving_reason == FC_REASON_UNREADABLE, "%s",
          fc_reason_text(info_now().serving_reason));
    world_write(1234567892);
    all_reads_are_right();
    all_reads_are_on_the_page();
}

/* A namespace entered while its real page is out of reach. */
static void absent_real_page_is_not_touched(const void *argument) {
    build(argument);
    choose_the_page();
    world_enter(true);
    world_page(world.vvar + world.shape->namespace_at * PAGE, false);
    fine_reads_leave_the_page();
    CHECK(info_now().serving == FC_SOURCE_VDSO, "%s serves", fc_source_name(info_now().serving));
    CHECK(info_now().mode == -1, "mode %d", info_now().mode);
}

static void no_map_means_the_next_source(const void *argument) {
    world_build(&shapes[SHAPES - 1], MODE_COUNTER, false);
    world.no_proc = true;
    (void)argument;
    CHECK(fc_init() == 0, "nothing serves");
    CHECK(info_now().source == FC_SOURCE_VDSO, "%s", fc_source_name(info_now().source));
    CHECK(info_now().reason[FC_SOURCE_KERNEL_PAGE] == FC_REASON_NO_MAPS, "%d",
          info_now().reason[FC_SOURCE_KERNEL_PAGE]);
    all_reads_are_right();
}

/* ---- The width of the counter -----------------------------------------------------------------
 */

#if WORLD_MASKED

static void counter_of_56_bits_may_wrap(const void *argument) {
    build(argument);
    world.mask = (UINT64_C(1) << 56) - 1;
    world.counter = world.mask - 2600000;
    world.last = world.counter - 5200000;
    world_write(1234567890);
    choose_the_page();
    for (int ticks = 0; ticks < 10; ticks++) {
        for (int i = 0; i < 10; i++) {
            all_reads_are_on_the_page();
            world.counter += 520000;
        }
        world_tick();
    }
    CHECK(world.counter > world.mask, "it did not wrap");
}

#else

static void mask_of_56_bits_is_refused(const void *argument) {
    build(argument);
    FIELD(uint64_t, FC_MONOTONIC, MASK) = (UINT64_C(1) << 56) - 1;
    FIELD(uint64_t, FC_RAW, MASK) = (UINT64_C(1) << 56) - 1;
    CHECK(fc_init() == 0, "nothing serves");
    CHECK(info_now().reason[FC_SOURCE_KERNEL_PAGE] == FC_REASON_LAYOUT, "%s",
          fc_reason_text(info_now().reason[FC_SOURCE_KERNEL_PAGE]));
    all_reads_are_right();
}

#endif

/* ---- Claims -----------------------------------------------------------------------------------
 */

static void in_each_shape(const char *words, uint32_t mode, void (*claim)(const void *),
                          bool needs_namespace) {
    for (int i = 0; i < SHAPES; i++) {
        const struct place p = {&shapes[i], mode, false};
        char sentence[160];
        if (needs_namespace && !shapes[i].namespace_at)
            continue;
        snprintf(sentence, sizeof sentence, "%s, %s: %s", shapes[i].kernels, mode_names[mode],
                 words);
        check_that(sentence, claim, &p);
    }
}

int main(int argc, char **argv) {
    char sentence[160];
    check_begin(argc, argv);
    printf("the pages are written from %s\n",
           world_of_this_machine() ? "this machine's own" : "those of a machine that is kept here");
    for (int i = 0; i < SHAPES; i++)
        for (uint32_t mode = MODE_COUNTER; mode <= MODE_HVCLOCK; mode++)
            for (int namespaced = 0; namespaced <= (shapes[i].namespace_at != 0); namespaced++) {
                const struct place p = {&shapes[i], mode, namespaced};
                snprintf(sentence, sizeof sentence, "%s, %s%s: the page is proved and read",
                         shapes[i].kernels, mode_names[mode],
                         namespaced ? ", in a time namespace" : "");
                check_that(sentence, true_page_is_read, &p);
            }
    for (int i = 0; i < LIES; i++) {
        snprintf(sentence, sizeof sentence, "%s from the start: %s", lies[i].words,
                 lies[i].fate == REFUSED ? "the page is refused" : "each read leaves the page");
        check_that(sentence, lie_is_found_out, &lies[i]);
    }
    check_that("a page that is spoilt at random is refused or read right",
               spoilt_page_is_refused_or_right, NULL);
    for (int i = 0; i < LATER; i++) {
        snprintf(sentence, sizeof sentence, "%s after the proof: each read leaves the page",
                 later[i].words);
        check_that(sentence, later_lie_is_left, &later[i]);
    }
    for (uint32_t mode = MODE_COUNTER; mode <= MODE_HVCLOCK; mode++) {
        in_each_shape("a sequence that never holds still is left", mode,
                      sequence_that_never_holds_is_left, false);
        in_each_shape("updates amid the looks do not show", mode, updates_amid_looks_do_not_show,
                      false);
        in_each_shape("the sequence may wrap", mode, sequence_wraps, false);
    }
    in_each_shape("a mode that goes amid a look is seen", MODE_COUNTER,
                  mode_that_goes_amid_a_look_is_seen, false);
    in_each_shape("timehands that are shown after it do not spoil a read that is held up",
                  MODE_COUNTER, page_then_timehands, false);
    in_each_shape("shown after timehands it does not spoil a read that is held up", MODE_COUNTER,
                  timehands_then_page, false);
    in_each_shape("every mode is proved once, when it first appears", MODE_COUNTER,
                  every_mode_is_proved_once, false);
    for (uint32_t mode = MODE_COUNTER; mode <= MODE_HVCLOCK; mode++)
        in_each_shape("a time namespace may come and go", mode, namespace_may_come_and_go, true);
    in_each_shape("the real page of a namespace is probed before it is touched", MODE_COUNTER,
                  absent_real_page_is_not_touched, true);
    for (int i = 0; i < PV_LIES; i++) {
        snprintf(sentence, sizeof sentence, "%s, %s: each read leaves the page",
                 mode_names[pv_lies[i].mode], pv_lies[i].words);
        check_that(sentence, pv_lie_is_left, &pv_lies[i]);
    }
    for (uint32_t mode = MODE_PVCLOCK; mode <= MODE_HVCLOCK; mode++) {
        in_each_shape("a version that never holds still is left", mode,
                      version_that_never_holds_is_left, false);
        in_each_shape("a migration amid a look does not show", mode,
                      migration_amid_a_look_does_not_show, false);
        in_each_shape("a scale that is wrong by a thousandth is refused for good", mode,
                      pv_wrong_scale_is_refused, false);
        in_each_shape("a page that the kernel does not have is not touched", mode,
                      absent_pv_page_is_not_touched, false);
    }
    check_that("without a map of the process the next source serves", no_map_means_the_next_source,
               NULL);
#if WORLD_MASKED
    in_each_shape("a counter of 56 bits may wrap", MODE_COUNTER, counter_of_56_bits_may_wrap,
                  false);
#else
    in_each_shape("a mask of 56 bits is refused", MODE_COUNTER, mask_of_56_bits_is_refused, false);
#endif
    return check_end();
}
