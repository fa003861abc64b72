/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "kernel_page.h"

#include <fastclock.h>
#include <limits.h>

#include "maps.h"

#if defined(__linux__) && defined(FC_MODE_COUNTER_)

#include <sys/auxv.h>

#if defined(__x86_64__) || defined(__i386__)
#include "counter_pv.h"
#endif

/* Every layout from Linux 5.3 on, the latest first. The kernels named are where a layout was seen
 * first and last; distributions carry them to others, so that only the shape counts. */
static const struct fc_layout layouts[] = {
#if defined(__x86_64__) || defined(__i386__)
    {"6.15", 0, 8, 232, 1, 0},   /* on: blocks without the resolution */
    {"6.13", 0, 8, 248, 1, 0},   /* to 6.14: the block at the start, the other pages moved */
    {"6.10", 128, 8, 248, 3, 1}, /* to 6.12: max_cycles */
    {"5.3", 128, 0, 240, 3, 1},  /* to 6.9; time namespaces from 5.6 */
#else
    {"6.15", 0, 0, 224, 1, 0}, /* on; tried on 7.2 */
    {"5.3", 0, 0, 240, 1, 0},  /* to 6.14; tried on 6.1 */
#endif
};

enum {
    MODE_NONE = 0,
    MODE_LAST = 3, /* of those that mean a clocksource */
    MODE_NAMESPACE = INT_MAX,
    ROUNDS_FINE = 16,  /* bracketed readings of each clock before it is trusted */
    ROUNDS_COARSE = 4, /* these are equal or wrong */
    LOOKS_MAX = 200,   /* a writer needs a fraction of the time that these take */
    PATIENCE = 64,     /* at a first look, see there */
    PATIENCE_NS = 10000000,
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
    /* A mask is a row of ones from the lowest bit on; the hypervisors' counts have all of them. */
    if (FC_COUNTER_MASKED_ ? (mask & (mask + 1)) != 0 : mask != UINT64_MAX)
        return false;
    /* A count behind the last one is a difference in the upper half of what the mask allows. The
     * read relies on that its product with `mult` overflows. */
    if ((mask >> 33) * mult <= UINT32_MAX)
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

/* `*busy` becomes true if the page was being written at every look. */
static bool matches(const unsigned char *block, const struct fc_layout *layout, bool *busy) {
    for (int look = 0; look < LOOKS_MAX; look++) {
        const uint32_t sequence = fc_load_sequence_(block);
        const uint32_t raw_sequence = fc_load_sequence_(block + layout->raw);
        struct fc_reading now;
        bool shaped;
        /* Both blocks are written together, so that their sequences are equal too, except for the
         * moment when the writer has let go of the first and not yet of the other. */
        if ((sequence & 1) || raw_sequence + 1 == sequence) {
            pause_briefly();
            continue;
        }
        if (fc_sys_gettime(FC_REALTIME_COARSE, &now) < 0)
            return false;
        shaped = raw_sequence == sequence && has_shape(block, layout, now.sec);
        if (!fc_sequence_moved_(block, sequence))
            return shaped;
    }
    *busy = true;
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

static const struct fc_layout *recognise(const unsigned char *vvar, uintptr_t size, bool *busy) {
    *busy = false;
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
        if (matches(block, layout, busy))
            return layout;
    }
    return NULL;
}

const struct fc_layout *fc_kernel_page_recognise(const unsigned char *vvar, uintptr_t size) {
    bool unused;
    return recognise(vvar, size, &unused);
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

static bool is_coarse(uint32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

/* The page that `mode` takes its count from, of those at `clocks`; NULL if it needs none, or if
 * there is none. */
static const unsigned char *page_of_mode(const unsigned char *clocks, uint32_t mode) {
#ifdef FC_MODE_PVCLOCK
    if (mode == FC_MODE_PVCLOCK)
        return clocks;
    if (mode == FC_MODE_HVCLOCK && clocks)
        return clocks + page_size();
#endif
    (void)clocks;
    (void)mode;
    return NULL;
}

/* One look at a block, real or not, in the mode that it was seen to be in. */
FC_INLINE_ enum fc_try_ look(const unsigned char *block, uint32_t extra, uint32_t clock,
                             uint32_t mode, const unsigned char *clocks, bool ordered,
                             struct fc_reading *out) {
#define LOOK(counter)                                                                              \
    fc_try_fine_(block, extra, clock, mode, counter, page_of_mode(clocks, mode), &out->sec,        \
                 &out->ns)
    if (is_coarse(clock))
        return fc_try_coarse_(block, extra, clock, &out->sec, &out->ns);
#ifdef FC_MODE_PVCLOCK
    if (mode == FC_MODE_PVCLOCK)
        return ordered ? LOOK(fc_pvclock_ordered_) : LOOK(fc_pvclock_relaxed_);
    if (mode == FC_MODE_HVCLOCK)
        return ordered ? LOOK(fc_hvclock_ordered_) : LOOK(fc_hvclock_relaxed_);
#endif
    return ordered ? LOOK(fc_cpu_counter_ordered_) : LOOK(fc_cpu_counter_relaxed_);
#undef LOOK
}

/* Which way leads to `clock` at a block of this mode; 0 and a reason if none does. */
static uint32_t way_to(uint32_t clock, uint32_t mode, const unsigned char *clocks,
                       int32_t *reason) {
    if (is_coarse(clock))
        return FC_WAY_COARSE;
    if (mode == FC_MODE_COUNTER_)
        return FC_WAY_COUNTER;
#ifdef FC_MODE_PVCLOCK
    if (mode == FC_MODE_PVCLOCK && clocks)
        return FC_WAY_PVCLOCK;
    if (mode == FC_MODE_HVCLOCK && clocks)
        return FC_WAY_HVCLOCK;
#endif
    (void)clocks;
    *reason = mode == MODE_NONE ? FC_REASON_MODE_NONE : FC_REASON_MODE_UNKNOWN;
    return 0;
}

/* Why a look at a block was left although its mode is still `mode`. */
static int32_t why_left(uint32_t mode, const unsigned char *clocks) {
#ifdef FC_MODE_PVCLOCK
    const unsigned char *page = page_of_mode(clocks, mode);
    if (page && !fc_pv_usable_(page, mode))
        return FC_REASON_PARAVIRTUAL;
#endif
    (void)mode;
    (void)clocks;
    return FC_REASON_BUSY;
}

/* Adds a time namespace's offset, {s64 sec; u64 nsec} where the base would be. It was fixed before
 * the first process entered, so that it needs no guard. */
static void add_offset(const unsigned char *block, uint32_t extra, uint32_t clock,
                       struct fc_reading *out) {
    const unsigned char *offset = block + extra + FC_BLOCK_BASE_ + clock * FC_BLOCK_BASE_SIZE_;
    out->sec += fc_load64_(offset);
    out->ns += fc_load64_(offset + 8);
}

static int32_t open_way(struct fc_kernel_page *page, uint32_t way, const unsigned char *touched);

/* The read itself. `proving` is the way that is being proved, the only one that is gone then; 0
 * for the reads of everyone else. */
static int32_t read_page(struct fc_kernel_page *page, uint32_t proving, uint32_t clock,
                         bool ordered, struct fc_reading *out) {
    const struct fc_layout *layout = atomic_load_explicit(&page->layout, memory_order_acquire);
    const unsigned char *block, *clocks;
    if (!layout)
        return FC_REASON_LAYOUT;
    block = atomic_load_explicit(&page->first, memory_order_relaxed) +
            (clock == FC_RAW ? layout->raw : 0);
    clocks = atomic_load_explicit(&page->clocks, memory_order_relaxed);
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        const unsigned char *real = block;
        uint32_t shift = 0, proved, sequence, mode, way;
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
        proved = proving ? proving : atomic_load_explicit(&page->proved, memory_order_acquire);
        if (shift && !(proved & FC_WAYS_NAMESPACE)) {
            /* The first look into a namespace: nothing has touched the real page yet. */
            if (!fc_sys_readable((const unsigned char *)((uintptr_t)real & ~(uintptr_t)7)))
                return FC_REASON_UNREADABLE;
        }
        mode = fc_load32_(real + FC_BLOCK_MODE_);
        way = way_to(clock, mode, clocks, &reason) << shift;
        if (!way)
            return reason;
        if (FC_UNLIKELY_(!(proved & way))) {
            if (proving) /* the mode went amid the proof */
                return FC_REASON_BUSY;
            reason = open_way(page, way, is_coarse(clock) ? NULL : page_of_mode(clocks, mode));
            if (reason != FC_REASON_NONE)
                return reason;
        }
        sequence = fc_load_sequence_(real);
        end = look(real, layout->extra, clock, mode, clocks, ordered, out);
        if (end == FC_TRY_LEAVE_) {
            /* Either the block was written amid the look, so that the mode went or the count is
             * behind the new last one, which the next look will tell; or the count is out of
             * bounds, which the kernel's own code knows how to treat. */
            if (!fc_sequence_moved_(real, sequence) && fc_load32_(real + FC_BLOCK_MODE_) == mode)
                return why_left(mode, clocks);
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

/* No calls: where the inlined look does not know the mode, and in a time namespace, this is the
 * fast path. */
bool fc_kernel_page_glance(const struct fc_kernel_page *page, uint32_t clock, bool ordered,
                           struct fc_reading *out) {
    const struct fc_layout *layout = atomic_load_explicit(&page->layout, memory_order_acquire);
    const uint32_t proved = atomic_load_explicit(&page->proved, memory_order_acquire);
    const unsigned char *block, *real, *clocks;
    uint32_t mode, shift = 0;
    int32_t unused;
    if (!layout)
        return false;
    real = block = atomic_load_explicit(&page->first, memory_order_relaxed) +
                   (clock == FC_RAW ? layout->raw : 0);
    clocks = atomic_load_explicit(&page->clocks, memory_order_relaxed);
    mode = fc_load32_(block + FC_BLOCK_MODE_);
    if (mode == MODE_NAMESPACE) {
        if (!(proved & FC_WAYS_NAMESPACE))
            return false;
        shift = FC_WAY_NAMESPACE_SHIFT;
        real += real_page(layout);
        mode = fc_load32_(real + FC_BLOCK_MODE_);
    }
    if (!(proved & way_to(clock, mode, clocks, &unused) << shift) ||
        look(real, layout->extra, clock, mode, clocks, ordered, out) != FC_TRY_OK_)
        return false;
    if (shift)
        add_offset(block, layout->extra, clock, out);
    return true;
}

int32_t fc_kernel_page_read(struct fc_kernel_page *page, uint32_t clock, bool ordered,
                            struct fc_reading *out) {
    return read_page(page, 0, clock, ordered, out);
}

/* ---- Proof ------------------------------------------------------------------------------------
 */

struct candidate {
    struct fc_kernel_page *page;
    uint32_t way;
};

static int32_t proof_read(const void *source, uint32_t clock, struct fc_reading *out) {
    const struct candidate *c = source;
    return read_page(c->page, c->way, clock, true, out);
}

static int32_t prove_way(struct fc_kernel_page *page, uint32_t way) {
    const struct candidate c = {page, way};
    if (way & (FC_WAY_COARSE | FC_WAY_COARSE_NAMESPACE))
        return fc_prove(proof_read, &c, fc_coarse_clocks, FC_COARSE_COUNT, ROUNDS_COARSE);
    const uint64_t ticks = fc_counter_ordered_();
    const int32_t reason = fc_prove(proof_read, &c, fc_fine_clocks, FC_FINE_COUNT, ROUNDS_FINE);
    if (reason == FC_REASON_NONE && fc_counter_ordered_() <= ticks)
        return FC_REASON_COUNTER_STUCK;
    return reason;
}

/* Proves `way`, unless that was tried before. Several threads may do so at once, or a signal
 * handler amid a proof: they come to the same end, and only the result is stored. `touched` is a
 * page that this way reads beside the block, which nothing may have touched before, or NULL. */
static __attribute__((cold, noinline)) int32_t open_way(struct fc_kernel_page *page, uint32_t way,
                                                        const unsigned char *touched) {
    int32_t reason;
    if (atomic_load_explicit(&page->refused, memory_order_acquire) & way)
        return FC_REASON_PROOF;
    reason = touched && !fc_sys_readable(touched) ? FC_REASON_UNREADABLE : prove_way(page, way);
    if (reason == FC_REASON_NONE)
        atomic_fetch_or_explicit(&page->proved, way, memory_order_release);
    /* What can mend itself, a mode that changed amid the proof or a clock that is being set, is
     * tried again at a later read; a wrong reading is final. */
    if (reason == FC_REASON_PROOF || reason == FC_REASON_COUNTER_STUCK ||
        reason == FC_REASON_REFUSED)
        atomic_fetch_or_explicit(&page->refused, way, memory_order_release);
    return reason;
}

/* ---- Opening ----------------------------------------------------------------------------------
 */

/* `vclock` is empty where the kernel has no such mapping. */
static int32_t find_vvar(struct fc_mapping *vvar, struct fc_mapping *vclock) {
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
    if (!fc_maps_vclock(&maps, vdso, vclock))
        vclock->start = vclock->end = 0;
    return fc_maps_vvar(&maps, vdso, vvar) ? FC_REASON_NONE : FC_REASON_NO_VVAR;
}

int32_t fc_kernel_page_mapped(void) {
    /* What [vvar] and [vvar_vclock] have together, in an order that meets few pages of others. */
    static const uint8_t pages_before[] = {4, 3, 6, 2};
    const uintptr_t vdso = getauxval(AT_SYSINFO_EHDR);
    struct fc_mapping vvar, vclock;
    if (!vdso)
        return FC_REASON_NO_VDSO;
    for (uint32_t i = 0; i < sizeof pages_before; i++) {
        const uintptr_t size = pages_before[i] * page_size();
        if (fc_kernel_page_recognise((const unsigned char *)(vdso - size), size))
            return FC_REASON_NONE;
    }
    return find_vvar(&vvar, &vclock) == FC_REASON_NO_VVAR ? FC_REASON_NO_VVAR : FC_REASON_NONE;
}

/* Where the hypervisors' two pages are, NULL if nowhere. They may be absent though mapped. */
static const unsigned char *find_clocks(const struct fc_layout *layout,
                                        const struct fc_mapping *vvar,
                                        const struct fc_mapping *vclock) {
    const struct fc_mapping *in = layout->clocks_at ? vvar : vclock;
    const uintptr_t at = layout->clocks_at * page_size();
    return in->end - in->start >= at + 2 * page_size() ? (const unsigned char *)in->start + at
                                                       : NULL;
}

static void publish(struct fc_kernel_page *page, const unsigned char *first,
                    const unsigned char *clocks, const struct fc_layout *layout) {
    const struct fc_layout *former = atomic_load(&page->layout);
    if (atomic_load(&page->first) != first || atomic_load(&page->clocks) != clocks ||
        former != layout) {
        /* Nobody may take a layout for that of another page. Where there was none, several threads
         * may make the first choice at once, and none of them takes away what another one has set
         * and is proving. */
        if (former)
            atomic_store(&page->layout, NULL);
        atomic_store(&page->first, first);
        atomic_store(&page->clocks, clocks);
        atomic_store_explicit(&page->layout, layout, memory_order_release);
    }
    atomic_store(&page->proved, 0);
    atomic_store(&page->refused, 0);
}

/* Leaves the pointers as they are, since another thread may be about to follow them. */
static void withdraw(struct fc_kernel_page *page) {
    atomic_store(&page->layout, NULL);
    atomic_store(&page->proved, 0);
    atomic_store(&page->refused, 0);
}

/* Whether to try once more: at most PATIENCE times, and not after PATIENCE_NS, so that it ends soon
 * where time stands still as well as where looks take long. */
struct patience {
    uint64_t begin_ns;
    uint32_t tries;
};

static bool patient(struct patience *p) {
    struct fc_reading reading;
    uint64_t now;
    if (p->tries == PATIENCE || fc_sys_gettime(FC_RAW, &reading) < 0)
        return false;
    now = fc_reading_count(reading);
    if (p->tries++ == 0)
        p->begin_ns = now;
    return now - p->begin_ns < PATIENCE_NS;
}

/* Recognises, or reads a first time, with patience: the processor that writes the page may itself
 * be held up, in a guest for milliseconds, and a page refused now would be refused for good. */
static const struct fc_layout *recognise_patiently(const unsigned char *start, uintptr_t size) {
    const struct fc_layout *layout;
    struct patience patience = {0, 0};
    bool busy;
    do
        layout = recognise(start, size, &busy);
    while (!layout && busy && patient(&patience));
    return layout;
}

static int32_t read_patiently(struct fc_kernel_page *page, uint32_t clock) {
    struct patience patience = {0, 0};
    struct fc_reading reading;
    int32_t reason;
    do
        reason = fc_kernel_page_read(page, clock, true, &reading);
    while (reason == FC_REASON_BUSY && patient(&patience));
    return reason;
}

int32_t fc_kernel_page_open(struct fc_kernel_page *page, bool counter) {
    const struct fc_layout *layout;
    const unsigned char *start;
    struct fc_mapping vvar, vclock;
    int32_t reason = find_vvar(&vvar, &vclock);
    if (reason != FC_REASON_NONE) {
        withdraw(page);
        return reason;
    }
    start = (const unsigned char *)vvar.start;
    layout = recognise_patiently(start, vvar.end - vvar.start);
    if (!layout) {
        withdraw(page);
        return fc_sys_readable(start) ? FC_REASON_LAYOUT : FC_REASON_UNREADABLE;
    }
    publish(page, start + layout->block, find_clocks(layout, &vvar, &vclock), layout);
    reason = read_patiently(page, FC_MONOTONIC_COARSE);
    if (reason != FC_REASON_NONE || !counter)
        return reason;
    reason = read_patiently(page, FC_MONOTONIC);
    if (reason == FC_REASON_MODE_NONE || reason == FC_REASON_MODE_UNKNOWN ||
        reason == FC_REASON_PARAVIRTUAL || reason == FC_REASON_BUSY ||
        reason == FC_REASON_UNREADABLE)
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
    if (!*namespaced)
        return block;
    block += real_page(*layout);
    return (atomic_load_explicit(&page->proved, memory_order_relaxed) & FC_WAYS_NAMESPACE) ||
                   fc_sys_readable(block)
               ? block
               : NULL;
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

int32_t fc_kernel_page_mapped(void) {
    return FC_REASON_NONE;
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

bool fc_kernel_page_glance(const struct fc_kernel_page *page, uint32_t clock, bool ordered,
                           struct fc_reading *out) {
    (void)page;
    (void)clock;
    (void)ordered;
    (void)out;
    return false;
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
