/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "kernel_page.h"

#include <fastclock.h>
#include <limits.h>

#include "maps.h"

#if defined(__linux__) && defined(FC_MODE_COUNTER_)

#include <sys/auxv.h>

/* Every layout from Linux 5.3 on. The kernels named are where a layout was seen first and last;
 * distributions carry them to others, so that only the shape counts. */
static const struct fc_layout layouts[] = {
#if defined(__x86_64__) || defined(__i386__)
    {"5.3", 128, 0, 240, 3},  /* 5.3 to 6.9; time namespaces from 5.6 */
    {"6.10", 128, 8, 248, 3}, /* to 6.12: max_cycles */
    {"6.13", 0, 8, 248, 1},   /* to 6.14: the block at the start, the namespace's page moved */
    {"6.15", 0, 8, 232, 1},   /* on: blocks without the resolution */
#else
    {"5.3", 0, 0, 240, 1},  /* to 6.14 */
    {"6.15", 0, 0, 224, 1}, /* on */
#endif
};

enum {
    MODE_NONE = 0,
    MODE_LAST = 3, /* of those that mean a clocksource */
    MODE_NAMESPACE = INT_MAX,
    ROUNDS_FINE = 16,  /* bracketed readings of each clock before it is trusted */
    ROUNDS_COARSE = 4, /* these are equal or wrong */
    LOOKS_MAX = 1000,  /* a writer needs a fraction of the time that these take */
    SHIFT_MAX = 32,
    NEAR_S = 2 /* a base lies within a tick of now; a good deal less than this */
};

/* Frequencies beyond these belong to no counter: MHz and 100 GHz. */
static const uint64_t hz_min = 500000, hz_max = 100000000000u;

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* ---- Shape ------------------------------------------------------------------------------------
 */

/* mult, shift and mask as the clocksource of a counter has them. */
static bool plausible_scale(const unsigned char *block, uint32_t extra) {
    const uint64_t mask = fc_load64_(block + extra + FC_BLOCK_MASK_);
    const uint32_t mult = fc_load32_(block + extra + FC_BLOCK_MULT_);
    const uint32_t shift = fc_load32_(block + extra + FC_BLOCK_SHIFT_);
    uint64_t hz;
    if (mult == 0 || shift == 0 || shift > SHIFT_MAX)
        return false;
    /* A mask is a row of ones from the lowest bit on. */
    if (FC_COUNTER_MASKED_ ? (mask & (mask + 1)) != 0 || mask <= UINT32_MAX : mask != UINT64_MAX)
        return false;
    hz = ((uint64_t)1000000000 << shift) / mult;
    return hz >= hz_min && hz <= hz_max;
}

static bool plausible_bases(const unsigned char *block, uint32_t extra, bool scaled,
                            const uint8_t *clocks, uint32_t count) {
    const uint32_t shift = scaled ? fc_load32_(block + extra + FC_BLOCK_SHIFT_) : 0;
    for (uint32_t i = 0; i < count; i++) {
        const unsigned char *base =
            block + extra + FC_BLOCK_BASE_ + (uint32_t)clocks[i] * FC_BLOCK_BASE_SIZE_;
        if (fc_load64_(base + 8) >> shift >= 1000000000u)
            return false;
    }
    return true;
}

/* One look at a block outside a namespace. Fields that the kernel fills only for a readable
 * clocksource are judged only then. */
static bool has_shape(const unsigned char *block, const struct fc_layout *layout, uint64_t now_s) {
    const unsigned char *raw = block + layout->raw;
    const uint32_t extra = layout->extra;
    const uint32_t mode = fc_load32_(block + FC_BLOCK_MODE_);
    const uint64_t coarse_s =
        fc_load64_(block + extra + FC_BLOCK_BASE_ + FC_REALTIME_COARSE * FC_BLOCK_BASE_SIZE_);
    if (mode > MODE_LAST || fc_load32_(raw + FC_BLOCK_MODE_) != mode)
        return false;
    if (coarse_s + NEAR_S < now_s || coarse_s > now_s + NEAR_S)
        return false;
    if (!plausible_bases(block, extra, false, fc_coarse_clocks, FC_COARSE_COUNT))
        return false;
    if (mode == MODE_NONE)
        return true;
    return plausible_scale(block, extra) && plausible_scale(raw, extra) &&
           plausible_bases(block, extra, true, fc_fine_clocks, FC_FINE_COUNT);
}

static bool matches(const unsigned char *block, const struct fc_layout *layout) {
    for (int look = 0; look < LOOKS_MAX; look++) {
        const uint32_t sequence = fc_load_sequence_(block);
        struct fc_reading now;
        bool shaped;
        if (sequence & 1) {
            pause_briefly();
            continue;
        }
        if (fc_sys_gettime(FC_REALTIME_COARSE, &now) < 0)
            return false;
        /* Both blocks are written together, so that their sequences are equal too. */
        shaped = fc_load32_(block + layout->raw + FC_BLOCK_SEQUENCE_) == sequence &&
                 has_shape(block, layout, now.sec);
        if (!fc_sequence_moved_(block, sequence))
            return shaped;
    }
    return false;
}

static bool in_namespace(const unsigned char *block) {
    return (fc_load_sequence_(block) & 1) && fc_load32_(block + FC_BLOCK_MODE_) == MODE_NAMESPACE;
}

/* A constant where the architecture allows it: reads in a time namespace need it. */
static uintptr_t page_size(void) {
#if defined(__x86_64__) || defined(__i386__)
    return 4096;
#else
    return getauxval(AT_PAGESZ);
#endif
}

/* From a block of the first page to its like in the real one of a time namespace. */
static uintptr_t real_page(const struct fc_layout *layout) {
    return layout->namespace_at * page_size();
}

/* The last byte of a layout's blocks. */
static uint32_t extent(const struct fc_layout *layout) {
    return (uint32_t)layout->block + layout->raw + layout->extra + FC_BLOCK_BASE_ +
           (uint32_t)(FC_TAI + 1) * FC_BLOCK_BASE_SIZE_;
}

const struct fc_layout *fc_kernel_page_recognise(const unsigned char *vvar, uintptr_t size) {
    if (size < page_size() || !fc_sys_readable(vvar))
        return NULL;
    for (uint32_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const struct fc_layout *layout = &layouts[i];
        const unsigned char *block = vvar + layout->block;
        const uintptr_t real_at = real_page(layout);
        if (extent(layout) > page_size())
            continue;
        if (in_namespace(block)) {
            if (!in_namespace(block + layout->raw) || real_at + page_size() > size ||
                !fc_sys_readable(vvar + real_at))
                continue;
            block += real_at;
        }
        if (matches(block, layout))
            return layout;
    }
    return NULL;
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

static bool is_coarse(uint32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

/* One look at a block, real or not, in the mode that it was seen to be in. */
static enum fc_try_ look(const unsigned char *block, uint32_t extra, uint32_t clock, bool ordered,
                         struct fc_reading *out) {
    if (is_coarse(clock))
        return fc_try_coarse_(block, extra, clock, &out->sec, &out->ns);
    if (ordered)
        return fc_try_fine_(block, extra, clock, FC_MODE_COUNTER_, fc_cpu_counter_ordered_, NULL,
                            &out->sec, &out->ns);
    return fc_try_fine_(block, extra, clock, FC_MODE_COUNTER_, fc_cpu_counter_relaxed_, NULL,
                        &out->sec, &out->ns);
}

/* Which way leads to `clock` at a block of this mode; 0 and a reason if none does. */
static uint32_t way_to(uint32_t clock, uint32_t mode, int32_t *reason) {
    if (is_coarse(clock))
        return FC_WAY_COARSE;
    if (mode == FC_MODE_COUNTER_)
        return FC_WAY_COUNTER;
    *reason = mode == MODE_NONE ? FC_REASON_MODE_NONE : FC_REASON_MODE_UNKNOWN;
    return 0;
}

/* Adds a time namespace's offset, {s64 sec; u64 nsec} where the base would be. It was fixed before
 * the first process entered, so that it needs no guard. */
static void add_offset(const unsigned char *block, uint32_t extra, uint32_t clock,
                       struct fc_reading *out) {
    const unsigned char *offset = block + extra + FC_BLOCK_BASE_ + clock * FC_BLOCK_BASE_SIZE_;
    out->sec += fc_load64_(offset);
    out->ns += fc_load64_(offset + 8);
}

static bool way_is_proved(struct fc_kernel_page *page, uint32_t way, int32_t *reason);

/* The read itself. `trusted` are ways that need no further proof: all of them while proving. */
static int32_t read_page(struct fc_kernel_page *page, uint32_t trusted, uint32_t clock,
                         bool ordered, struct fc_reading *out) {
    const struct fc_layout *layout = atomic_load_explicit(&page->layout, memory_order_acquire);
    const unsigned char *block;
    if (!layout)
        return FC_REASON_LAYOUT;
    block = atomic_load_explicit(&page->first, memory_order_relaxed) +
            (clock == FC_RAW ? layout->raw : 0);
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        const unsigned char *real = block;
        uint32_t shift = 0, sequence, mode, way;
        int32_t reason = FC_REASON_NONE;
        enum fc_try_ end;
        if (fc_load_sequence_(block) & 1) {
            if (!in_namespace(block) || !layout->namespace_at) {
                pause_briefly();
                continue;
            }
            real = block + real_page(layout);
            shift = FC_WAY_NAMESPACE_SHIFT;
        }
        if (shift && !((atomic_load_explicit(&page->proved, memory_order_relaxed) | trusted) &
                       ((uint32_t)FC_WAY_COARSE << shift))) {
            /* The first look into a namespace: nothing has touched the real page yet. */
            if (!fc_sys_readable((const unsigned char *)((uintptr_t)real & ~(uintptr_t)7)))
                return FC_REASON_UNREADABLE;
        }
        mode = fc_load32_(real + FC_BLOCK_MODE_);
        way = way_to(clock, mode, &reason) << shift;
        if (!way)
            return reason;
        if (!(trusted & way) && !way_is_proved(page, way, &reason))
            return reason;
        sequence = fc_load_sequence_(real);
        end = look(real, layout->extra, clock, ordered, out);
        if (end == FC_TRY_LEAVE_) {
            /* Either the block was written amid the look, so that the mode went or the count is
             * behind the new last one, which the next look will tell; or the count is out of
             * bounds, which the kernel's own code knows how to treat. */
            if (!fc_sequence_moved_(real, sequence) && fc_load32_(real + FC_BLOCK_MODE_) == mode)
                return FC_REASON_BUSY;
        } else if (end == FC_TRY_OK_) {
            if (shift)
                add_offset(block, layout->extra, clock, out);
            return FC_REASON_NONE;
        } else {
            pause_briefly();
        }
    }
    return FC_REASON_BUSY;
}

int32_t fc_kernel_page_read(struct fc_kernel_page *page, uint32_t clock, bool ordered,
                            struct fc_reading *out) {
    return read_page(page, 0, clock, ordered, out);
}

/* ---- Proof ------------------------------------------------------------------------------------
 */

static int32_t proof_read(const void *source, uint32_t clock, struct fc_reading *out) {
    struct fc_kernel_page *page = (struct fc_kernel_page *)(uintptr_t)source;
    return read_page(page, ~0u, clock, true, out);
}

static int32_t prove_way(struct fc_kernel_page *page, uint32_t way) {
    if (way & (FC_WAY_COARSE | FC_WAY_COARSE_NAMESPACE))
        return fc_prove(proof_read, page, fc_coarse_clocks, FC_COARSE_COUNT, ROUNDS_COARSE);
    const uint64_t ticks = fc_counter_ordered_();
    const int32_t reason = fc_prove(proof_read, page, fc_fine_clocks, FC_FINE_COUNT, ROUNDS_FINE);
    if (reason == FC_REASON_NONE && fc_counter_ordered_() <= ticks)
        return FC_REASON_COUNTER_STUCK;
    return reason;
}

/* Whether `way` may be gone, proving it if nobody has yet. Several threads may do so at once, or a
 * signal handler amid a proof: they come to the same end, and only the result is stored. */
static bool way_is_proved(struct fc_kernel_page *page, uint32_t way, int32_t *reason) {
    if (atomic_load_explicit(&page->proved, memory_order_acquire) & way)
        return true;
    if (atomic_load_explicit(&page->refused, memory_order_acquire) & way) {
        *reason = FC_REASON_PROOF;
        return false;
    }
    *reason = prove_way(page, way);
    if (*reason == FC_REASON_NONE) {
        atomic_fetch_or_explicit(&page->proved, way, memory_order_release);
        return true;
    }
    /* What can mend itself, a mode that changed amid the proof or a clock that is being set, is
     * tried again at a later read; a wrong reading is final. */
    if (*reason == FC_REASON_PROOF || *reason == FC_REASON_COUNTER_STUCK ||
        *reason == FC_REASON_REFUSED)
        atomic_fetch_or_explicit(&page->refused, way, memory_order_release);
    return false;
}

/* ---- Opening ----------------------------------------------------------------------------------
 */

static int32_t find_vvar(struct fc_mapping *vvar) {
    const uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    struct fc_maps maps = {0};
    char text[1024];
    int64_t size;
    int32_t descriptor;
    if (!vdso)
        return FC_REASON_NO_VDSO;
    descriptor = fc_sys_open("/proc/self/maps");
    if (descriptor < 0)
        return FC_REASON_NO_MAPS;
    while ((size = fc_sys_read(descriptor, text, sizeof text)) > 0)
        fc_maps_feed(&maps, text, (size_t)size);
    fc_sys_close(descriptor);
    if (size < 0)
        return FC_REASON_NO_MAPS;
    return fc_maps_vvar(&maps, vdso, vvar) ? FC_REASON_NONE : FC_REASON_NO_VVAR;
}

static void publish(struct fc_kernel_page *page, const unsigned char *first,
                    const struct fc_layout *layout) {
    if (atomic_load(&page->first) != first || atomic_load(&page->layout) != layout) {
        atomic_store(&page->layout, NULL);
        atomic_store(&page->first, first);
        atomic_store_explicit(&page->layout, layout, memory_order_release);
    }
    atomic_store(&page->proved, 0);
    atomic_store(&page->refused, 0);
}

int32_t fc_kernel_page_open(struct fc_kernel_page *page, bool counter) {
    const struct fc_layout *layout;
    const unsigned char *start;
    struct fc_mapping vvar;
    struct fc_reading reading;
    int32_t reason = find_vvar(&vvar);
    if (reason != FC_REASON_NONE) {
        publish(page, NULL, NULL);
        return reason;
    }
    start = (const unsigned char *)vvar.start;
    layout = fc_kernel_page_recognise(start, vvar.end - vvar.start);
    publish(page, layout ? start + layout->block : NULL, layout);
    if (!layout)
        return fc_sys_readable(start) ? FC_REASON_LAYOUT : FC_REASON_UNREADABLE;
    reason = fc_kernel_page_read(page, FC_MONOTONIC_COARSE, true, &reading);
    if (reason != FC_REASON_NONE || !counter)
        return reason;
    reason = fc_kernel_page_read(page, FC_MONOTONIC, true, &reading);
    if (reason == FC_REASON_MODE_NONE || reason == FC_REASON_MODE_UNKNOWN ||
        reason == FC_REASON_BUSY)
        return FC_REASON_NONE; /* the page is right; its counter may come back */
    return reason;
}

/* ---- What is known ----------------------------------------------------------------------------
 */

/* The first block, or its like where a time namespace has put the real one; NULL without a page. */
static const unsigned char *real_block(const struct fc_kernel_page *page,
                                       const struct fc_layout **layout, bool *namespaced) {
    const unsigned char *block;
    *layout = atomic_load_explicit(&page->layout, memory_order_acquire);
    if (!*layout)
        return NULL;
    block = atomic_load_explicit(&page->first, memory_order_relaxed);
    *namespaced = in_namespace(block);
    return *namespaced ? block + real_page(*layout) : block;
}

bool fc_kernel_page_mode(const struct fc_kernel_page *page, int32_t *mode, bool *namespaced) {
    const struct fc_layout *layout;
    const unsigned char *block = real_block(page, &layout, namespaced);
    if (!block)
        return false;
    *mode = (int32_t)fc_load32_(block + FC_BLOCK_MODE_);
    return true;
}

uint32_t fc_kernel_page_rounds(const struct fc_kernel_page *page) {
    const uint32_t proved = atomic_load_explicit(&page->proved, memory_order_relaxed);
    uint32_t rounds = 0;
    for (uint32_t way = 1; way <= proved; way <<= 1)
        if (proved & way)
            rounds += way & (FC_WAY_COARSE | FC_WAY_COARSE_NAMESPACE)
                          ? ROUNDS_COARSE * FC_COARSE_COUNT
                          : ROUNDS_FINE * FC_FINE_COUNT;
    return rounds;
}

bool fc_kernel_page_scale(const struct fc_kernel_page *page, uint32_t *mult, uint32_t *shift) {
    const struct fc_layout *layout;
    bool namespaced;
    const unsigned char *block = real_block(page, &layout, &namespaced);
    if (!block)
        return false;
    block += layout->raw;
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        const uint32_t sequence = fc_load_sequence_(block);
        if (fc_load32_(block + FC_BLOCK_MODE_) != FC_MODE_COUNTER_)
            return false;
        *mult = fc_load32_(block + layout->extra + FC_BLOCK_MULT_);
        *shift = fc_load32_(block + layout->extra + FC_BLOCK_SHIFT_);
        if (!(sequence & 1) && !fc_sequence_moved_(block, sequence))
            return true;
    }
    return false;
}

#else /* no Linux, or no counter known */

#ifdef __linux__
enum { ABSENT = FC_REASON_NO_COUNTER };
#else
enum { ABSENT = FC_REASON_NOT_LINUX };
#endif

const struct fc_layout *fc_kernel_page_recognise(const unsigned char *vvar, uintptr_t size) {
    (void)vvar;
    (void)size;
    return NULL;
}

int32_t fc_kernel_page_open(struct fc_kernel_page *page, bool counter) {
    (void)page;
    (void)counter;
    return ABSENT;
}

int32_t fc_kernel_page_read(struct fc_kernel_page *page, uint32_t clock, bool ordered,
                            struct fc_reading *out) {
    (void)page;
    (void)clock;
    (void)ordered;
    (void)out;
    return ABSENT;
}

bool fc_kernel_page_mode(const struct fc_kernel_page *page, int32_t *mode, bool *namespaced) {
    (void)page;
    (void)mode;
    (void)namespaced;
    return false;
}

uint32_t fc_kernel_page_rounds(const struct fc_kernel_page *page) {
    (void)page;
    return 0;
}

bool fc_kernel_page_scale(const struct fc_kernel_page *page, uint32_t *mult, uint32_t *shift) {
    (void)page;
    (void)mult;
    (void)shift;
    return false;
}

#endif
