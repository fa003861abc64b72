/* SPDX-License-Identifier: MIT
 *
 * The page: how a timekeep page is checked, read and written.
 *
 * A timehands holds for the counts from its `last` on, for `valid_cycles` of them. To go on to the
 * next one the publisher first lowers that number, so that the timehands ends at a count which is
 * still to come, then publishes the successor, which begins at that count with the value that the
 * former ends with. So the time is one function of the count, whichever timehands a reader happens
 * to look at and however long either side is held up between two instructions: nobody waits, and
 * nothing goes back. A publisher that dies in between leaves timehands that end, and readers that
 * ask the kernel.
 */
#define FASTCLOCK_INLINE
#include "timekeep.h"

#include <fastclock.h>
#include <stddef.h>

#include "skew.h"

_Static_assert(offsetof(struct fc_timekeep, enabled) == 64, "a cache line of their own");
_Static_assert(offsetof(struct fc_timekeep, heartbeat) == 128, "a cache line of their own");
_Static_assert(offsetof(struct fc_timekeep, hands) == 256, "a cache line of their own");
_Static_assert(sizeof(struct fc_timekeep_block) == 256, "whole cache lines");
_Static_assert(sizeof(struct fc_timekeep_hands) == 640, "whole cache lines");
_Static_assert(offsetof(struct fc_timekeep, skew) == 4096, "a page of its own");
_Static_assert(sizeof(struct fc_timekeep) == FC_TIMEKEEP_SIZE, "the same on every machine");

static uint64_t field64(const uint64_t *field) {
#if UINTPTR_MAX > 0xffffffffu
    return __atomic_load_n(field, __ATOMIC_RELAXED);
#else
    const uint32_t *half = (const uint32_t *)(const void *)field;
    return __atomic_load_n(half, __ATOMIC_RELAXED) |
           (uint64_t)__atomic_load_n(half + 1, __ATOMIC_RELAXED) << 32;
#endif
}

void fc_timekeep_page_tell(const struct fc_timekeep *page, struct fc_info *info) {
    info->timekeep_in_service = (int32_t)__atomic_load_n(&page->in_service, __ATOMIC_RELAXED);
    info->timekeep_interval_ns = field64(&page->interval_ns);
    info->timekeep_error_ns = field64(&page->worst_error_ns);
    info->timekeep_steps = field64(&page->steps);
    info->timekeep_outages = field64(&page->outages);
}

bool fc_timekeep_is_page(const struct fc_timekeep *page, uint64_t size) {
    return size >= FC_TIMEKEEP_SIZE && page->magic == FC_TIMEKEEP_MAGIC &&
           page->version == FC_TIMEKEEP_VERSION && page->size == FC_TIMEKEEP_SIZE &&
           page->hands_offset == offsetof(struct fc_timekeep, hands) &&
           page->hands_size == sizeof(struct fc_timekeep_hands) &&
           page->skew_offset == offsetof(struct fc_timekeep, skew) &&
           page->cpus <= FC_TIMEKEEP_CPUS;
}

#ifdef FC_MODE_COUNTER_

_Static_assert(FC_TIMEKEEP_MODE_COUNTER == FC_MODE_COUNTER_, "as in the kernel's page");

/* The bytes that max_cycles puts before the mask. */
enum { EXTRA = 8 };
_Static_assert(offsetof(struct fc_timekeep_block, last) == FC_BLOCK_LAST_, "the read loop's");
_Static_assert(offsetof(struct fc_timekeep_block, max_cycles) == FC_BLOCK_LIMIT_,
               "the read loop's");
_Static_assert(offsetof(struct fc_timekeep_block, mask) == FC_BLOCK_MASK_ + EXTRA,
               "the read loop's");
_Static_assert(offsetof(struct fc_timekeep_block, mult) == FC_BLOCK_MULT_ + EXTRA,
               "the read loop's");
_Static_assert(offsetof(struct fc_timekeep_block, base) == FC_BLOCK_BASE_ + EXTRA,
               "the read loop's");

enum {
    LOOKS_MAX = 100 /* a publisher that is running needs less than these take */
};

#define BYTES(p) ((const unsigned char *)(const void *)(p))

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

/* What one reading needs of a timehands, taken out of the page as one. */
struct taken {
    struct fc_timekeep_block block;
    uint64_t valid_cycles, told_cycles;
};

static enum fc_try_ take(const struct fc_timekeep_hands *hands, uint32_t clock,
                         struct taken *taken) {
    const struct fc_timekeep_block *from = clock == FC_RAW ? &hands->raw : &hands->fine;
    struct fc_timekeep_block *to = &taken->block;
    const uint32_t sequence = fc_load_sequence_(BYTES(from));
    if (sequence & 1)
        return FC_TRY_AGAIN_;
    to->sequence = 0;
    to->mode = fc_load32_(BYTES(&from->mode));
    to->last = fc_load64_(BYTES(&from->last));
    to->mask = fc_load64_(BYTES(&from->mask));
    to->mult = fc_load32_(BYTES(&from->mult));
    to->shift = fc_load32_(BYTES(&from->shift));
    to->base[clock].sec = fc_load64_(BYTES(&from->base[clock].sec));
    to->base[clock].nsec = fc_load64_(BYTES(&from->base[clock].nsec));
    taken->valid_cycles = fc_load64_(BYTES(&hands->valid_cycles));
    taken->told_cycles = fc_load64_(BYTES(&hands->told_cycles));
    return fc_sequence_moved_(BYTES(from), sequence) ? FC_TRY_AGAIN_ : FC_TRY_OK_;
}

static int given_counter(const void *count, uint64_t *cycles) {
    *cycles = *(const uint64_t *)count;
    return 1;
}

/* The time at `count` by what was taken. The block is a copy, and the loop the one of inline.h. */
static enum fc_try_ evaluate(struct taken *taken, uint32_t clock, uint64_t limit, uint64_t count,
                             struct fc_reading *out) {
    taken->block.max_cycles = limit;
    return fc_try_fine_(BYTES(&taken->block), EXTRA, clock, taken->block.mode, given_counter,
                        &count, &out->sec, &out->ns);
}

static bool is_coarse(uint32_t clock) {
    return clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE;
}

static const struct fc_timekeep_hands *hands_at(const struct fc_timekeep *page, uint32_t index) {
    return &page->hands[index % FC_TIMEKEEP_HANDS];
}

/* How long ago, in nanoseconds, timehands that hold no longer ended; large if the scale is odd. */
static uint64_t ended_ns_ago(const struct taken *taken, uint64_t count) {
    const uint64_t over = count - taken->block.last - taken->valid_cycles;
    uint64_t shifted;
    if (__builtin_mul_overflow(over, (uint64_t)taken->block.mult, &shifted))
        return UINT64_MAX;
    return shifted >> (taken->block.shift & 63);
}

/* The counter in the way that the page's mode asks for; false if there is none here. */
static bool count_by(const struct fc_timekeep *page, uint32_t mode, bool ordered, uint64_t *count) {
    if (mode == FC_TIMEKEEP_MODE_COUNTER) {
        *count = ordered ? fc_counter_ordered_() : fc_counter_relaxed_();
        return true;
    }
    return mode == FC_TIMEKEEP_MODE_SKEWED && fc_skew_count(page, count);
}

bool fc_timekeep_page_count(const struct fc_timekeep *page, uint64_t *count) {
    const bool skewed = fc_load32_(BYTES(&page->cpus)) != 0;
    if (skewed && fc_skew_count(page, count))
        return true;
    *count = fc_counter_ordered_();
    return !skewed;
}

int32_t fc_timekeep_page_read(const struct fc_timekeep *page, uint32_t clock, bool ordered,
                              struct fc_reading *out, int32_t *hands) {
    *hands = -1;
    for (int looks = 0; looks < LOOKS_MAX; looks++, pause_briefly()) {
        /* Acquire: the timehands was written before the index was. */
        const uint32_t current = __atomic_load_n(&page->current, __ATOMIC_ACQUIRE);
        const unsigned char *block = BYTES(&hands_at(page, current)->fine);
        const uint32_t sequence = fc_load_sequence_(block);
        struct taken taken;
        uint64_t count;
        uint32_t mode;
        if (!__atomic_load_n(&page->enabled, __ATOMIC_RELAXED))
            return FC_REASON_SWITCHED_OFF;
        if (sequence & 1)
            continue;
        /* The counter comes before the limit, which the publisher lowers to counts to come only. */
        mode = fc_load32_(block + FC_BLOCK_MODE_);
        if (!count_by(page, mode, ordered, &count))
            return fc_sequence_moved_(block, sequence) ? FC_REASON_BUSY : FC_REASON_OUT_OF_SERVICE;
        /* Acquire: the mode is looked at once more after the table of skews was, which is changed
         * only while all modes are off. */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (take(hands_at(page, current), clock, &taken) != FC_TRY_OK_ ||
            fc_sequence_moved_(block, sequence))
            continue;
        if (taken.block.mode != mode)
            return FC_REASON_OUT_OF_SERVICE;
        if (is_coarse(clock) && count - taken.block.last <= taken.valid_cycles) {
            out->sec = taken.block.base[clock].sec;
            out->ns = taken.block.base[clock].nsec;
            return FC_REASON_NONE;
        }
        if (evaluate(&taken, clock, taken.valid_cycles, count, out) == FC_TRY_OK_) {
            if (mode == FC_TIMEKEEP_MODE_COUNTER) /* inlined reads know nothing of skews */
                *hands = (int32_t)(current % FC_TIMEKEEP_HANDS);
            return FC_REASON_NONE;
        }
        if ((int64_t)(count - taken.block.last) >= 0) {
            if (ended_ns_ago(&taken, count) > FC_TIMEKEEP_SWITCH_NS)
                return FC_REASON_BUSY;
            continue; /* the successor is about to come */
        }
        /* Not yet: until then the one before it holds. */
        if (take(hands_at(page, current - 1), clock, &taken) == FC_TRY_OK_ &&
            taken.block.mode == mode && !fc_sequence_moved_(block, sequence) &&
            evaluate(&taken, clock, taken.valid_cycles, count, out) == FC_TRY_OK_)
            return FC_REASON_NONE;
    }
    return FC_REASON_BUSY;
}

/* The latest time that one timehands can have told; false if it has told none. */
static bool told_until(const struct fc_timekeep_hands *hands, uint32_t clock, uint64_t count,
                       struct fc_reading *out) {
    struct taken taken;
    uint64_t since;
    if (take(hands, clock, &taken) != FC_TRY_OK_ || taken.block.mult == 0 ||
        (int64_t)(count - taken.block.last) < 0)
        return false;
    since = count - taken.block.last;
    if (since > taken.told_cycles)
        since = taken.told_cycles;
    return evaluate(&taken, clock, UINT64_MAX, taken.block.last + since, out) == FC_TRY_OK_;
}

bool fc_timekeep_page_floor(const struct fc_timekeep *page, uint32_t clock, uint64_t count,
                            struct fc_reading *out) {
    /* All of them: also the one after the current, which a publisher may have written and not lived
     * to point to, and which a reader that was turned to its place before can have found. And once
     * more if the ring has been turned meanwhile, which can have hidden one. */
    bool found = false;
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        const uint32_t current = __atomic_load_n(&page->current, __ATOMIC_ACQUIRE);
        for (uint32_t i = 0; i < FC_TIMEKEEP_HANDS; i++) {
            struct fc_reading reading;
            if (told_until(&page->hands[i], clock, count, &reading) &&
                (!found || fc_reading_count(reading) > fc_reading_count(*out))) {
                *out = reading;
                found = true;
            }
        }
        if (__atomic_load_n(&page->current, __ATOMIC_ACQUIRE) == current)
            break;
    }
    return found;
}

/* ---- Writing ----------------------------------------------------------------------------------
 */

/* Tests stop or kill the publisher before each single store. */
#ifdef FC_TIMEKEEP_FAILPOINTS
void fc_timekeep_failpoint(void);
#define FAILPOINT() fc_timekeep_failpoint()
#else
#define FAILPOINT() ((void)0)
#endif

static void put32(uint32_t *at, uint32_t value) {
    FAILPOINT();
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
}

static void put64(uint64_t *at, uint64_t value) {
#if UINTPTR_MAX > 0xffffffffu
    FAILPOINT();
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
#else
    /* The high half first: of the fields that are changed alone, and are below 2^32, it is the same
     * before and after. */
    uint32_t half[2];
    __builtin_memcpy(half, &value, sizeof half);
    put32((uint32_t *)(void *)at + 1, half[1]);
    put32((uint32_t *)(void *)at, half[0]);
#endif
}

void fc_timekeep_page_create(struct fc_timekeep *page, uint64_t interval_ns) {
    page->version = FC_TIMEKEEP_VERSION;
    page->size = FC_TIMEKEEP_SIZE;
    page->hands_offset = offsetof(struct fc_timekeep, hands);
    page->hands_size = sizeof(struct fc_timekeep_hands);
    page->skew_offset = offsetof(struct fc_timekeep, skew);
    page->interval_ns = interval_ns;
    page->enabled = page->wanted = 1;
    /* Release: who sees the magic number sees the rest. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    put64(&page->magic, FC_TIMEKEEP_MAGIC);
}

static void open_block(struct fc_timekeep_block *block) {
    put32(&block->sequence, block->sequence | 1);
}

/* Release: the fields were written before the sequence is even again. */
static void close_block(struct fc_timekeep_block *block) {
    FAILPOINT();
    __atomic_store_n(&block->sequence, block->sequence + 1, __ATOMIC_RELEASE);
}

static void write_scale(struct fc_timekeep_block *block, const struct fc_timekeep_values *values,
                        uint32_t mult) {
    put32(&block->mode, values->mode);
    put64(&block->last, values->last);
    put64(&block->max_cycles, values->max_cycles);
    put64(&block->mask, values->mask);
    put32(&block->mult, mult);
    put32(&block->shift, values->shift);
}

static void write_base(struct fc_timekeep_base *base, const struct fc_timekeep_base *value) {
    put64(&base->sec, value->sec);
    put64(&base->nsec, value->nsec);
}

void fc_timekeep_page_write(struct fc_timekeep *page, const struct fc_timekeep_values *values) {
    static const uint8_t clocks[] = {FC_REALTIME,         FC_MONOTONIC, FC_REALTIME_COARSE,
                                     FC_MONOTONIC_COARSE, FC_BOOTTIME,  FC_TAI};
    const uint32_t next = page->current + 1;
    struct fc_timekeep_hands *hands = &page->hands[next % FC_TIMEKEEP_HANDS];
    open_block(&hands->fine);
    open_block(&hands->raw);
    /* Release: whoever sees a new field sees the odd sequence in his second look. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    write_scale(&hands->fine, values, values->mult);
    for (size_t i = 0; i < sizeof clocks; i++)
        write_base(&hands->fine.base[clocks[i]], &values->base[clocks[i]]);
    write_scale(&hands->raw, values, values->raw_mult);
    write_base(&hands->raw.base[FC_RAW], &values->raw);
    put64(&hands->valid_cycles, values->valid_cycles);
    put64(&hands->told_cycles, values->valid_cycles);
    put64(&hands->valid_ns, values->valid_ns);
    put64(&hands->number, next);
    put64(&hands->steps, values->steps);
    put64((uint64_t *)&hands->error_ns, (uint64_t)values->error_ns);
    close_block(&hands->fine);
    close_block(&hands->raw);
}

void fc_timekeep_page_turn(struct fc_timekeep *page) {
    FAILPOINT();
    /* Release: the timehands was written before it is pointed to. */
    __atomic_store_n(&page->current, page->current + 1, __ATOMIC_RELEASE);
}

void fc_timekeep_page_keep(struct fc_timekeep *page) {
    const uint32_t next = page->current + 1;
    const struct fc_timekeep_hands *hands = &page->hands[next % FC_TIMEKEEP_HANDS];
    if (hands->number == next && !(hands->fine.sequence & 1))
        fc_timekeep_page_turn(page);
}

static void lower(uint64_t *limit, uint64_t to) {
    if (*limit > to)
        put64(limit, to);
}

/* Counts from the timehands' `last` to `end`, or 0. */
static uint64_t cycles_until(const struct fc_timekeep_hands *hands, uint64_t end) {
    const int64_t left = (int64_t)(end - hands->fine.last);
    return left > 0 ? (uint64_t)left : 0;
}

void fc_timekeep_page_end(struct fc_timekeep *page, uint64_t end) {
    for (uint32_t i = 0; i < FC_TIMEKEEP_HANDS; i++) {
        struct fc_timekeep_hands *hands = &page->hands[(page->current - i) % FC_TIMEKEEP_HANDS];
        const uint64_t to = cycles_until(hands, end);
        lower(&hands->fine.max_cycles, to);
        lower(&hands->raw.max_cycles, to);
        lower(&hands->valid_cycles, to);
    }
    /* A full barrier: who reads the counter next, to see whether the end is still to come, has made
     * it known before. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void fc_timekeep_page_settle(struct fc_timekeep *page, uint64_t end) {
    for (uint32_t i = 0; i < FC_TIMEKEEP_HANDS; i++)
        lower(&page->hands[i].told_cycles, cycles_until(&page->hands[i], end));
}

void fc_timekeep_page_close(struct fc_timekeep *page) {
    fc_timekeep_page_mode(page, FC_TIMEKEEP_MODE_OFF);
    /* Inlined reads look at the mode before the counter, and at this afterwards. */
    for (uint32_t i = 0; i < FC_TIMEKEEP_HANDS; i++) {
        struct fc_timekeep_hands *hands = &page->hands[(page->current - i) % FC_TIMEKEEP_HANDS];
        lower(&hands->fine.max_cycles, 0);
        lower(&hands->raw.max_cycles, 0);
    }
    /* As in fc_timekeep_page_end. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void fc_timekeep_page_mode(struct fc_timekeep *page, uint32_t mode) {
    for (uint32_t i = 0; i < FC_TIMEKEEP_HANDS; i++) {
        struct fc_timekeep_hands *hands = &page->hands[(page->current - i) % FC_TIMEKEEP_HANDS];
        put32(&hands->fine.mode, mode);
        put32(&hands->raw.mode, mode);
    }
}

void fc_timekeep_page_enable(struct fc_timekeep *page, bool enabled) {
    put32(&page->wanted, enabled);
    put32(&page->enabled, enabled);
    if (!enabled)
        fc_timekeep_page_mode(page, FC_TIMEKEEP_MODE_OFF);
}

void fc_timekeep_page_skew(struct fc_timekeep *page, const int64_t *skew, uint32_t cpus) {
    /* The sequences stay: what asks the kernel has to find out what the page has told. */
    fc_timekeep_page_mode(page, FC_TIMEKEEP_MODE_OFF);
    /* Release: whoever sees a new skew sees in his second look that the page is off. */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    for (uint32_t i = 0; i < cpus; i++)
        put64((uint64_t *)&page->skew[i], (uint64_t)skew[i]);
    put32(&page->cpus, cpus);
}

void fc_timekeep_page_note(uint64_t *field, uint64_t value) {
    put64(field, value);
}

void fc_timekeep_page_note32(uint32_t *field, uint32_t value) {
    put32(field, value);
}

void fc_timekeep_page_stop(struct fc_timekeep *page) {
    const struct fc_timekeep_block *block = &page->hands[page->current % FC_TIMEKEEP_HANDS].fine;
    const uint64_t ahead =
        block->mult ? ((uint64_t)FC_TIMEKEEP_SWITCH_NS << (block->shift & 63)) / block->mult : 0;
    uint64_t end;
    /* Closed before the counter is read, and the end still to come: what readers have been told
     * amid this lies before the end, however long it takes. */
    fc_timekeep_page_close(page);
    fc_timekeep_page_count(page, &end);
    end += ahead;
    fc_timekeep_page_end(page, end);
    fc_timekeep_page_settle(page, end);
    put32(&page->in_service, 0);
}

#endif /* FC_MODE_COUNTER_ */
