/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "world.h"

#include <elf.h>
#include <errno.h>
#include <fastclock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../../core/sys.h"
#include "../../core/vdso.h"

/* The table is in docs/design.md. On 5.3 to 5.5 there are no time namespaces yet; from 6.17 on
 * eight blocks of auxiliary clocks follow, also where there is none. */
const struct shape shapes[] = {
    {"5.3 to 5.5", "5.3", 128, 0, 240, 128 + 232, 3, 0, 1, 2},
    {"5.6 to 6.9", "5.3", 128, 0, 240, 128 + 232, 4, 3, 1, 2},
    {"6.10 to 6.12", "6.10", 128, 8, 248, 128 + 240, 4, 3, 1, 2},
    {"6.13 to 6.14", "6.13", 0, 8, 248, 240, 2, 1, 0, 2},
    {"6.15 to 6.16", "6.15", 0, 8, 232, 472, 4, 1, 0, 2},
    {"6.17 on", "6.15", 0, 8, 232, 2328, 4, 1, 0, 10},
};
_Static_assert(sizeof shapes / sizeof *shapes == SHAPES, "SHAPES");

/* As they were on a machine with a counter of 2.6 GHz, an hour and a half after it was started; but
 * for a slew as by NTP, and for boottime and TAI, which are set apart from monotonic and realtime.
 */
static const struct world captured = {
    .counter = 13261593521816,
    .step = 26,
    .mode = MODE_COUNTER,
    .last = 13261588321816,
    .max_cycles = 2571589456394,
    .mask = UINT64_MAX,
    .mult = 6462402,
    .shift = 24,
    .raw_mult = 6462419,
    .raw_shift = 24,
    .counter_mult = 6462402,
    .counter_shift = 24,
    .counter_raw_mult = 6462419,
    .base_s = {[FC_REALTIME] = 1796050387,
               [FC_MONOTONIC] = 5108,
               [FC_RAW] = 5107,
               [FC_BOOTTIME] = 8708,
               [FC_TAI] = 1796050424},
    .base_ns = {[FC_REALTIME] = 6507775157935488,
                [FC_MONOTONIC] = 2549039980682624,
                [FC_RAW] = 15170017351889765,
                [FC_BOOTTIME] = 2549039980682624,
                [FC_TAI] = 6507775157935488},
};

struct world world;

static const int32_t fine[] = {FC_REALTIME, FC_MONOTONIC, FC_RAW, FC_BOOTTIME, FC_TAI};
enum { FINE = sizeof fine / sizeof *fine };

static void die(const char *what) {
    perror(what);
    exit(2);
}

/* ---- Arithmetic -------------------------------------------------------------------------------
 */

/* a * b >> shift, of which 64 bits are kept. */
static uint64_t scaled(uint64_t a, uint32_t b, unsigned shift) {
    const uint64_t low = (a & UINT32_MAX) * b;
    const uint64_t high = (a >> 32) * b + (low >> 32); /* the product is high * 2^32 + low's half */
    if (shift >= 32)
        return high >> (shift - 32);
    return high << (32 - shift) | (low & UINT32_MAX) >> shift;
}

static uint64_t upper_half(uint64_t a, uint64_t b) {
    const uint64_t low = (a & UINT32_MAX) * (b & UINT32_MAX);
    const uint64_t cross = (a >> 32) * (b & UINT32_MAX) + (low >> 32);
    const uint64_t cross2 = (a & UINT32_MAX) * (b >> 32) + (cross & UINT32_MAX);
    return (a >> 32) * (b >> 32) + (cross >> 32) + (cross2 >> 32);
}

/* ---- The truth --------------------------------------------------------------------------------
 */

uint64_t world_counter(void) {
    world.counter += world.step;
    world.counter_reads++;
    if (world.on_counter)
        world.on_counter();
    return world.counter & world.mask;
}

/* The clocksource's count at a count of the processor's. */
static uint64_t clocksource(uint64_t ticks) {
    switch (world.mode) {
    case MODE_PVCLOCK: {
        uint64_t delta = ticks - world.pv_timestamp;
        delta = world.pv_shift < 0 ? delta >> -world.pv_shift : delta << world.pv_shift;
        return world.pv_system_time + scaled(delta, world.pv_mult, 32);
    }
    case MODE_HVCLOCK: return upper_half(ticks, world.hv_scale) + world.hv_offset;
    default: return ticks;
    }
}

static bool is_coarse(int32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

static bool is_known(int32_t clock) {
    for (int i = 0; i < FINE; i++)
        if (fine[i] == clock)
            return true;
    return is_coarse(clock);
}

/* Before the offset of a time namespace. */
static struct fc_reading host_reading(int32_t clock) {
    const uint32_t mult = clock == FC_RAW ? world.raw_mult : world.mult;
    const uint32_t shift = clock == FC_RAW ? world.raw_shift : world.shift;
    struct fc_reading r = {world.base_s[clock], world.base_ns[clock]};
    if (!is_coarse(clock)) {
        const uint64_t delta = (clocksource(world.counter) - world.last) & world.mask;
        const bool behind = delta > world.mask / 2; /* then the kernel lets no time pass */
        const uint64_t fraction = r.ns & ((UINT64_C(1) << shift) - 1);
        r.ns >>= shift;
        if (!behind)
            r.ns += scaled(delta, mult, shift) +
                    (((delta * mult & ((UINT64_C(1) << shift) - 1)) + fraction) >> shift);
    }
    return r;
}

static struct fc_reading reading(int32_t clock) {
    struct fc_reading r = host_reading(clock);
    if (world.namespaced) {
        r.sec += (uint64_t)world.offset_s[clock];
        r.ns += world.offset_ns[clock];
    }
    return r;
}

uint64_t world_ns(int32_t clock) {
    world.counter += world.step;
    return fc_reading_count(reading(clock));
}

/* ---- The pages --------------------------------------------------------------------------------
 */

static void put32(unsigned char *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static void put64(unsigned char *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
}

static unsigned char *real_page(void) {
    return world.vvar + (world.namespaced ? world.shape->namespace_at * (unsigned)PAGE : 0);
}

unsigned char *world_block(int32_t clock) {
    return real_page() + world.shape->block + (clock == FC_RAW ? world.shape->raw : 0);
}

void *world_field(int32_t clock, unsigned offset) {
    return world_block(clock) + offset + (offset >= MASK ? world.shape->extra : 0);
}

void world_page(unsigned char *page, bool present) {
    if (mprotect(page, PAGE, present ? PROT_READ | PROT_WRITE : PROT_NONE) < 0)
        die("mprotect");
}

static void write_block(unsigned index, uint32_t sequence) {
    unsigned char *block = real_page() + world.shape->block + index * world.shape->raw;
    unsigned char *rest = block + world.shape->extra;
    const bool raw = index == 1;
    put32(block + SEQUENCE, sequence);
    if (index > 1) /* an auxiliary clock that nobody has enabled */
        return;
    put32(block + MODE, world.mode);
    put64(block + LAST, world.last);
    if (world.shape->extra)
        put64(block + LAST + 8, world.max_cycles);
    put64(rest + MASK, world.mask);
    put32(rest + MULT, raw ? world.raw_mult : world.mult);
    put32(rest + SHIFT, raw ? world.raw_shift : world.shift);
    for (int32_t clock = 0; clock < CLOCK_IDS; clock++) {
        if (!is_known(clock) || (clock == FC_RAW) != raw)
            continue;
        put64(rest + BASES + 16 * clock, world.base_s[clock]);
        put64(rest + BASES + 16 * clock + 8, world.base_ns[clock]);
    }
}

/* What a time namespace shows in place of the first page. */
static void write_offsets(void) {
    world_page(world.vvar, true);
    memset(world.vvar, 0, PAGE);
    for (unsigned index = 0; index < 2; index++) {
        unsigned char *block = world.vvar + world.shape->block + index * world.shape->raw;
        put32(block + SEQUENCE, 1);
        put32(block + MODE, MODE_NAMESPACE);
        for (int32_t clock = 0; clock < CLOCK_IDS; clock++) {
            unsigned char *offset = block + world.shape->extra + BASES + 16 * clock;
            put64(offset, (uint64_t)world.offset_s[clock]);
            put64(offset + 8, world.offset_ns[clock]);
        }
    }
}

void world_write(uint32_t sequence) {
    unsigned char *const pv_page = world.vclock, *const hv_page = world.vclock + PAGE;
    world_page(real_page(), true);
    memset(real_page(), 0, PAGE);
    for (unsigned index = 0; index < world.shape->blocks; index++)
        write_block(index, sequence);
    put32(real_page() + world.shape->resolution, 1);
    if (world.namespaced)
        write_offsets();
    else if (world.shape->namespace_at)
        world_page(world.vvar + world.shape->namespace_at * PAGE, false);
    world_page(pv_page, world.used[0]);
    world_page(hv_page, world.used[1]);
    if (world.used[0]) {
        memset(pv_page, 0, PAGE);
        put32(pv_page, 2);
        put64(pv_page + 8, world.pv_timestamp);
        put64(pv_page + 16, world.pv_system_time);
        put32(pv_page + 24, world.pv_mult);
        pv_page[28] = (unsigned char)world.pv_shift;
        pv_page[29] = 1; /* stable */
    }
    if (world.used[1]) {
        memset(hv_page, 0, PAGE);
        put32(hv_page, 1);
        put64(hv_page + 8, world.hv_scale);
        put64(hv_page + 16, world.hv_offset);
    }
}

/* The clocksource of a mode, with a scale of its own. */
static void take_clocksource(uint32_t mode) {
    world.mode = mode;
    world.mult = world.counter_mult;
    world.raw_mult = world.counter_raw_mult;
    world.shift = world.raw_shift = world.counter_shift;
    if (mode == MODE_PVCLOCK) {
        world.used[0] = true;
        world.pv_timestamp = world.counter - 7777777;
        world.pv_system_time = 5400000000000;
        world.pv_mult = 3308651776; /* 2.6 GHz, ticks halved */
        world.pv_shift = -1;
        world.mult = world.raw_mult = 8388608; /* nanoseconds */
        world.shift = world.raw_shift = 23;
    } else if (mode == MODE_HVCLOCK) {
        world.used[1] = true;
        world.hv_scale = UINT64_MAX / 260; /* 10 MHz from 2.6 GHz */
        world.hv_offset = (uint64_t)-123456;
        world.mult = world.raw_mult = 838860800; /* 100 ns */
        world.shift = world.raw_shift = 23;
    }
    world.max_cycles = UINT64_MAX / (world.mult + world.mult / 10);
}

void world_switch(uint32_t mode) {
    uint64_t ns[CLOCK_IDS];
    uint32_t sequence;
    memcpy(&sequence, world_field(FC_MONOTONIC, SEQUENCE), sizeof sequence);
    for (int i = 0; i < FINE; i++) {
        const struct fc_reading r = host_reading(fine[i]);
        world.base_s[fine[i]] = r.sec + r.ns / 1000000000;
        ns[fine[i]] = r.ns % 1000000000; /* what is below a nanosecond is dropped */
    }
    take_clocksource(mode);
    world.last = clocksource(world.counter) & world.mask;
    for (int i = 0; i < FINE; i++)
        world.base_ns[fine[i]] = ns[fine[i]] << world.shift;
    world.base_s[FC_REALTIME_COARSE] = world.base_s[FC_REALTIME];
    world.base_ns[FC_REALTIME_COARSE] = ns[FC_REALTIME];
    world.base_s[FC_MONOTONIC_COARSE] = world.base_s[FC_MONOTONIC];
    world.base_ns[FC_MONOTONIC_COARSE] = ns[FC_MONOTONIC];
    world_write(sequence + 2);
}

void world_migrate(void) {
    world.pv_system_time = clocksource(world.counter);
    world.pv_timestamp = world.counter;
}

void world_tick(void) {
    world_switch(world.mode);
}

void world_enter(bool namespaced) {
    uint32_t sequence;
    memcpy(&sequence, world_field(FC_MONOTONIC, SEQUENCE), sizeof sequence);
    world.namespaced = namespaced;
    world_write(sequence);
}

/* Pages of which none is there; one before and one behind never is. The same ones for every world
 * of a shape. */
static unsigned char *address_space(const struct shape *shape, unsigned pages) {
    static unsigned char *spaces[SHAPES];
    unsigned char **space = &spaces[shape - shapes];
    if (!*space) {
        *space = mmap(NULL, (pages + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (*space == MAP_FAILED)
            die("mmap");
    } else if (mprotect(*space, (pages + 2) * PAGE, PROT_NONE) < 0) {
        die("mprotect");
    }
    return *space;
}

void world_build(const struct shape *shape, uint32_t mode, bool namespaced) {
    static const int32_t offset_clocks[] = {FC_MONOTONIC, FC_RAW, FC_MONOTONIC_COARSE, FC_BOOTTIME};
    const unsigned vclock_pages = shape->clocks_at ? 0 : 2;
    const unsigned pages = shape->pages + vclock_pages + 1;
    unsigned char *memory = address_space(shape, pages);
    world.shape = shape;
    world.vvar = memory + PAGE;
    world.vdso = world.vvar + (pages - 1) * PAGE;
    world.vclock = shape->clocks_at ? world.vvar + shape->clocks_at * PAGE : world.vdso - 2 * PAGE;
    world_page(world.vvar, true);
    world_page(world.vdso, true);
    if (shape->pages == 4 && !shape->clocks_at) /* random numbers */
        world_page(world.vvar + 2 * PAGE, true);
    for (unsigned i = 0; i < sizeof offset_clocks / sizeof *offset_clocks; i++) {
        world.offset_s[offset_clocks[i]] = offset_clocks[i] == FC_BOOTTIME ? -1000 : 100000;
        world.offset_ns[offset_clocks[i]] = 123456789;
    }
    world.namespaced = namespaced;
    world_write(1234567888);
    world_switch(mode);
    world.counter += 5200000; /* two milliseconds after the tick */
}

/* ---- This machine -----------------------------------------------------------------------------
 */

static uint32_t get32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static uint64_t get64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Copies the first page of the real [vvar] between two of the kernel's updates. */
static bool copy_real_page(unsigned char *copy) {
    char line[256], name[64];
    unsigned long start, end;
    const unsigned char *page = NULL;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps)
        return false;
    while (fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %63s", &start, &end, name) == 3 &&
            strcmp(name, "[vvar]") == 0)
            page = (const unsigned char *)start;
    fclose(maps);
    if (!page)
        return false;
    for (int tries = 0; tries < 1000; tries++) {
        struct timespec tick = {0, 100000};
        unsigned char again[PAGE];
        memcpy(copy, (const void *)page, PAGE);
        nanosleep(&tick, NULL);
        memcpy(again, (const void *)page, PAGE);
        if (memcmp(copy, again, PAGE) == 0)
            return true;
    }
    return false;
}

static bool take(const unsigned char *page, const struct shape *shape) {
    const unsigned char *block = page + shape->block, *raw = block + shape->raw;
    const unsigned extra = shape->extra;
    const uint64_t now = (uint64_t)time(NULL);
    const uint64_t seconds = get64(block + extra + BASES + 16 * FC_REALTIME);
    if ((get32(block) & 1) || get32(block + MODE) != MODE_COUNTER ||
        get32(raw + MODE) != MODE_COUNTER || get64(block + extra + MASK) != UINT64_MAX ||
        get64(raw + extra + MASK) != UINT64_MAX || seconds + 5 < now || seconds > now + 5)
        return false;
    world.last = get64(block + LAST);
    if (extra)
        world.max_cycles = get64(block + LAST + 8);
    world.mult = get32(block + extra + MULT);
    world.shift = get32(block + extra + SHIFT);
    world.raw_mult = get32(raw + extra + MULT);
    world.raw_shift = get32(raw + extra + SHIFT);
    for (int i = 0; i < FINE; i++) {
        const unsigned char *base =
            (fine[i] == FC_RAW ? raw : block) + extra + BASES + 16 * fine[i];
        world.base_s[fine[i]] = get64(base);
        world.base_ns[fine[i]] = get64(base + 8);
    }
    world.counter_mult = world.mult;
    world.counter_shift = world.shift;
    world.counter_raw_mult = world.raw_mult;
    world.counter = world.last + 5200000;
    return world.raw_shift == world.shift; /* both are the clocksource's */
}

void world_as_captured(void) {
    world = captured;
}

bool world_of_this_machine(void) {
    unsigned char page[PAGE];
    world_as_captured();
    if (!copy_real_page(page))
        return false;
    for (int i = 0; i < SHAPES; i++)
        if (take(page, &shapes[i])) {
            /* Where nobody set them apart, they are set apart here: a page that confuses two clocks
             * has to be found out. */
            world.base_s[FC_TAI] += world.base_s[FC_TAI] == world.base_s[FC_REALTIME] ? 37 : 0;
            world.base_s[FC_BOOTTIME] += 3600;
            return true;
        }
    return false;
}

/* ---- System calls, in place of their namesakes in core/sys.c ----------------------------------
 */

int32_t fc_sys_gettime(int32_t clock, struct fc_reading *out) {
    world.system_calls++;
    if (!is_known(clock))
        return -EINVAL;
    world.counter += world.step;
    *out = reading(clock);
    out->sec += out->ns / 1000000000;
    out->ns %= 1000000000;
    return 0;
}

int32_t fc_sys_getres(int32_t clock, struct fc_reading *out) {
    world.system_calls++;
    out->sec = 0;
    out->ns = is_coarse(clock) ? 4000000 : 1;
    return 0;
}

int32_t fc_sys_counter_allowed(void) {
    return 1;
}

static char maps_text[1024];
static size_t maps_at;

int32_t fc_sys_open(const char *path) {
    unsigned char *vvar_end = world.vvar + world.shape->pages * PAGE;
    int length;
    if (world.no_proc || strcmp(path, "/proc/self/maps") != 0)
        return -ENOENT;
    length = snprintf(maps_text, sizeof maps_text,
                      "00400000-00401000 r-xp 00000000 fe:00 325835          /tmp/[vvar]\n"
                      "%lx-%lx r--p 00000000 00:00 0                          [vvar]\n",
                      (unsigned long)world.vvar, (unsigned long)vvar_end);
    if (!world.shape->clocks_at)
        length += snprintf(maps_text + length, sizeof maps_text - (size_t)length,
                           "%lx-%lx r--p 00000000 00:00 0                  [vvar_vclock]\n",
                           (unsigned long)vvar_end, (unsigned long)world.vdso);
    snprintf(maps_text + length, sizeof maps_text - (size_t)length,
             "%lx-%lx r-xp 00000000 00:00 0                          [vdso]\n",
             (unsigned long)world.vdso, (unsigned long)(world.vdso + PAGE));
    maps_at = 0;
    return 3;
}

/* A few bytes at a time, as a kernel may. */
int64_t fc_sys_read(int32_t descriptor, void *buffer, uint64_t size) {
    const size_t left = strlen(maps_text) - maps_at;
    size_t now = left < 37 ? left : 37;
    if (descriptor != 3)
        return -EBADF;
    if (now > size)
        now = (size_t)size;
    memcpy(buffer, maps_text + maps_at, now);
    maps_at += now;
    return (int64_t)now;
}

void fc_sys_close(int32_t descriptor) {
    (void)descriptor;
}

/* getauxval, under the name that the build gives it. */
unsigned long world_auxv(unsigned long type);
unsigned long world_auxv(unsigned long type) {
    return type == AT_SYSINFO_EHDR ? (unsigned long)world.vdso : type == AT_PAGESZ ? PAGE : 0;
}

/* ---- The vDSO, in place of namesakes in core/vdso.c -------------------------------------------
 */

int32_t fc_vdso_open(void) {
    return FC_REASON_NONE;
}

void fc_vdso_close(void) {
}

bool fc_vdso_gettime(int32_t clock, struct fc_reading *out) {
    const uint64_t before = world.system_calls;
    const bool done = fc_sys_gettime(clock, out) == 0;
    world.system_calls = before;
    world.vdso_reads++;
    return done;
}

bool fc_vdso_getres(int32_t clock, struct fc_reading *out) {
    return fc_sys_getres(clock, out) == 0;
}
