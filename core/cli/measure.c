/* SPDX-License-Identifier: MIT */
#include "measure.h"

#include <assert.h>
#include <fastclock.h>
#include <stdlib.h>

#include "cli.h"

enum {
    ROUND_NS = 10000, /* a round is about this long, so that most see no interruption */
    READS_MIN = 8,
    READS_MAX = 2000
};

static uint32_t random_below(uint32_t limit) {
    static uint64_t state = 0x9e3779b97f4a7c15u; /* xorshift; any seed but 0 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) % limit);
}

static void shuffle(uint32_t *order, uint32_t count) {
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t j = random_below(i), kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}

static uint64_t ticks_of(const struct measured *m, uint64_t reads) {
    const uint64_t start = fc_ticks_ordered();
    cli_read(m->way, m->clock, reads);
    return fc_ticks_ordered() - start;
}

static bool select_for(const struct measured *m) {
    if (m->source == MEASURE_ANY_SOURCE)
        return true;
    if (m->source == FC_SOURCE_LIBC && !cli_counter_may_be_read())
        return false;
    return fc_select(m->source) == 0;
}

/* How many reads fill a round. */
static uint64_t reads_in_round(const struct measured *m, double ns_per_tick) {
    const uint64_t trial = 16;
    double ns;
    ticks_of(m, trial);
    ns = (double)ticks_of(m, trial) * ns_per_tick / (double)trial;
    if (ns * READS_MAX <= ROUND_NS)
        return READS_MAX;
    return ns * READS_MIN >= ROUND_NS ? READS_MIN : (uint64_t)(ROUND_NS / ns);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What two looks at the counter cost, which is no part of what lies between them. */
static uint64_t empty_round_ticks(void) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 100; i++) {
        const uint64_t start = fc_ticks_ordered(), ticks = fc_ticks_ordered() - start;
        if (ticks < least)
            least = ticks;
    }
    return least;
}

static void prepare(struct measured *entries, uint32_t count, uint64_t *reads, double ns_per_tick) {
    for (uint32_t i = 0; i < count; i++) {
        struct measured *m = &entries[i];
        m->works = select_for(m) && cli_way_works(m->way, m->clock);
        if (m->works)
            reads[i] = reads_in_round(m, ns_per_tick);
    }
}

static void run_rounds(struct measured *entries, uint32_t count, uint32_t rounds,
                       const uint64_t *reads, double *costs_ns, const char *what) {
    const double ns_per_tick = 1e9 / (double)fc_ticks_hz();
    const uint64_t empty_ticks = empty_round_ticks(), second_ns = 1000000000;
    uint64_t shown_ns = fc_monotonic_ns();
    uint32_t order[MEASURE_MAX];
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t round = 0; round < rounds; round++) {
        shuffle(order, count);
        for (uint32_t k = 0; k < count; k++) {
            const uint32_t i = order[k];
            const struct measured *m = &entries[i];
            uint64_t ticks;
            if (!m->works)
                continue;
            select_for(m);
            cli_read(m->way, m->clock, READS_MIN); /* warm */
            ticks = ticks_of(m, reads[i]);
            ticks -= ticks > empty_ticks ? empty_ticks : ticks;
            costs_ns[(size_t)i * rounds + round] = (double)ticks * ns_per_tick / (double)reads[i];
        }
        if (fc_monotonic_ns() - shown_ns > second_ns) {
            cli_progress("measuring %s: %u of %u rounds", what, round + 1, rounds);
            shown_ns = fc_monotonic_ns();
        }
    }
    cli_progress_end();
}

bool measure(struct measured *entries, uint32_t count, uint32_t rounds, const char *what) {
    double *costs_ns = malloc(sizeof *costs_ns * count * rounds);
    uint64_t *reads = calloc(count, sizeof *reads);
    struct fc_info info;
    bool selected = false;
    assert(count <= MEASURE_MAX);
    if (!costs_ns || !reads) {
        fprintf(stderr, "fastclock: no memory for %u rounds\n", rounds);
        free(costs_ns);
        free(reads);
        return false;
    }
    fc_get_info(&info, sizeof info);
    prepare(entries, count, reads, 1e9 / (double)fc_ticks_hz());
    run_rounds(entries, count, rounds, reads, costs_ns, what);
    for (uint32_t i = 0; i < count; i++) {
        double *costs = &costs_ns[(size_t)i * rounds];
        selected |= entries[i].source != MEASURE_ANY_SOURCE;
        if (!entries[i].works)
            continue;
        qsort(costs, rounds, sizeof *costs, compare);
        entries[i].min_ns = costs[0];
        entries[i].median_ns = costs[rounds / 2];
    }
    if (selected && fc_select(info.wanted) < 0)
        fc_select(info.source);
    free(costs_ns);
    free(reads);
    return true;
}
