/* SPDX-License-Identifier: MIT
 *
 * A machine that a test makes up: its counter, its kernel's clocks, the pages that the kernel maps
 * into the process, its map, its system calls. The library is compiled against it: the header in
 * seam/ stands in for the real counter's, and world.c for those functions of core/sys.c and
 * core/vdso.c that the build calls by other names. Everything from the map of the process to the
 * inlined look is the code that is shipped.
 *
 * The clocks of this world run by the scales and bases in `struct world`, from which the pages are
 * written too; a test then makes the pages lie. The counter advances with each reading of it, so
 * that two readings of the truth enclose a reading in between as tightly as a counter can tell.
 */
#ifndef FASTCLOCK_TESTS_WORLD_H
#define FASTCLOCK_TESTS_WORLD_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Where kernels put things. Written down from the table in docs/design.md, not from the library's
 * own. Offsets from the block; `extra` moves what follows cycle_last. */
struct shape {
    const char *kernels;
    const char *layout; /* the library's name for it */
    unsigned block, extra, raw;
    unsigned resolution; /* where hrtimer_res lies in the page */
    unsigned pages;      /* of [vvar] */
    unsigned
        namespace_at;   /* the page that is the real one in a time namespace; 0: no such kernel */
    unsigned clocks_at; /* the page of kvm-clock; 0: the first of [vvar_vclock] */
    unsigned blocks;    /* that follow one another, auxiliary clocks among them */
};

extern const struct shape shapes[];
enum { SHAPES = 6 };

enum { MODE_NONE, MODE_COUNTER, MODE_PVCLOCK, MODE_HVCLOCK, MODE_NAMESPACE = INT_MAX };

enum { CLOCK_IDS = 12, PAGE = 4096 };

struct world {
    /* The counter: what it says, and by how much each reading moves it. */
    uint64_t counter, step;
    /* What the kernel keeps. Bases of the clocks that need the counter are shifted to the left. */
    uint32_t mode;
    uint64_t last, max_cycles, mask;
    uint32_t mult, shift, raw_mult, raw_shift;
    uint32_t counter_mult, counter_shift, counter_raw_mult; /* those of the counter's clocksource */
    uint64_t base_s[CLOCK_IDS], base_ns[CLOCK_IDS];
    /* What the hypervisor keeps. */
    uint64_t pv_timestamp, pv_system_time;
    uint32_t pv_mult;
    int8_t pv_shift;
    uint64_t hv_scale, hv_offset;
    /* The time namespace of the process. */
    bool namespaced;
    int64_t offset_s[CLOCK_IDS];
    uint64_t offset_ns[CLOCK_IDS];
    /* What the process has. */
    const struct shape *shape;
    bool used[2]; /* kvm-clock, Hyper-V: only then has the kernel a page for them */
    unsigned char *vvar, *vclock, *vdso; /* `vclock`: the two pages of hypervisors, wherever */
    bool no_proc;
    /* Called amid every look at the page, when the counter is read. */
    void (*on_counter)(void);
    /* What was asked for. */
    uint64_t counter_reads, system_calls, vdso_reads;
};

extern struct world world;

/* Clocks as they once ran on some machine. */
void world_as_captured(void);

/* The clocks of this machine as they run now, if its kernel's page has one of the shapes and its
 * clocksource is the counter; else as captured. Says which. */
bool world_of_this_machine(void);

/* Maps the pages of a kernel of this shape, and writes them. A shape is mapped once, so that the
 * next world of this shape takes its place. */
void world_build(const struct shape *shape, uint32_t mode, bool namespaced);

/* Writes the pages anew after something was changed; `sequence` is even, or the kernel is about to
 * write. What lies in a page that the kernel would not have there stays out of reach. */
void world_write(uint32_t sequence);

/* What the kernel does at a tick: new bases at the present count, and the pages with them. */
void world_tick(void);

/* The same, and another clocksource from now on. */
void world_switch(uint32_t mode);

/* Another pair of time stamp and time for kvm-clock, at the present count. Not written. */
void world_migrate(void);

/* The process is found in a time namespace, or in none, at the same addresses. */
void world_enter(bool namespaced);

/* The block of `clock` that is the real one, and the field at `offset` in it, counted as on kernels
 * without max_cycles. */
unsigned char *world_block(int32_t clock);
void *world_field(int32_t clock, unsigned offset);

enum { SEQUENCE = 0, MODE = 4, LAST = 8, MASK = 16, MULT = 24, SHIFT = 28, BASES = 32 };

/* Whether a page of the world can be touched. */
void world_page(unsigned char *page, bool present);

/* The truth about a clock at this moment, which moves the counter as a system call does. */
uint64_t world_ns(int32_t clock);

#endif
