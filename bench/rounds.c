/* SPDX-License-Identifier: MIT */
#define FASTCLOCK_INLINE
#include "rounds.h"

#include <errno.h>
#include <fastclock.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t rounds_made;
static double empty_ns; /* what a round without reads costs */

static uint32_t random_below(uint32_t limit) {
    static uint64_t state = 0x9e3779b97f4a7c15u; /* xorshift; any seed but 0 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 32) % limit);
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void no_reads(uint32_t reads) {
    USE(reads);
}

static uint64_t time_round(void (*run)(uint32_t), uint32_t reads) {
    const uint32_t warm_reads = 8;
    uint64_t start;
    run(reads ? warm_reads : 0);
    start = fc_ticks_ordered();
    run(reads);
    return fc_ticks_ordered() - start;
}

static void shuffle(uint32_t *order, uint32_t count) {
    for (uint32_t left = count; left > 1; left--) {
        const uint32_t j = random_below(left), kept = order[left - 1];
        order[left - 1] = order[j];
        order[j] = kept;
    }
}

static void get_memory(struct row *rows, uint32_t count, uint32_t rounds) {
    for (uint32_t i = 0; i < count; i++) {
        rows[i].costs_ns = calloc(rounds, sizeof(double));
        if (!rows[i].costs_ns) {
            fprintf(stderr, "no memory for %" PRIu32 " rounds\n", rounds);
            exit(1);
        }
    }
}

void measure_rows(struct row *rows, uint32_t count, uint32_t rounds) {
    const double ns_per_tick = 1e9 / (double)fc_ticks_hz();
    uint64_t empty_ticks = UINT64_MAX;
    uint32_t order[ROWS_MAX];
    get_memory(rows, count, rounds);
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    for (uint32_t round = 0; round < rounds; round++) {
        const uint64_t ticks = time_round(no_reads, 0);
        if (ticks < empty_ticks)
            empty_ticks = ticks;
        shuffle(order, count);
        for (uint32_t i = 0; i < count; i++) {
            struct row *row = &rows[order[i]];
            row->costs_ns[round] = (double)time_round(row->run, row->reads);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t round = 0; round < rounds; round++)
            rows[i].costs_ns[round] =
                (rows[i].costs_ns[round] - (double)empty_ticks) * ns_per_tick / rows[i].reads;
        qsort(rows[i].costs_ns, rounds, sizeof(double), compare);
    }
    rounds_made = rounds;
    empty_ns = (double)empty_ticks * ns_per_tick;
}

void print_rows(const struct row *rows, uint32_t count) {
#ifdef __clang__
    const char *compiler = "clang " __clang_version__;
#else
    const char *compiler = "gcc " __VERSION__;
#endif
    printf("  \"compiler\": \"%s\",\n  \"rounds\": %" PRIu32 ",\n  \"round_ns\": %.3f,\n"
           "  \"rows\": [\n",
           compiler, rounds_made, empty_ns);
    for (uint32_t i = 0; i < count; i++) {
        const struct row *row = &rows[i];
        printf("    {\"name\": \"%s\", \"baseline\": ", row->name);
        printf(row->baseline ? "\"%s\"" : "null", row->baseline ? row->baseline : "");
        printf(", \"min_ns\": %.4f, \"median_ns\": %.4f}%s\n", row->costs_ns[0],
               row->costs_ns[rounds_made / 2], i + 1 < count ? "," : "");
    }
    printf("  ]\n");
}

uint64_t parse_whole(const char *text, uint64_t limit) {
    char *end;
    unsigned long long value;
    errno = 0;
    value = strtoull(text, &end, 10);
    return errno || *end || *text < '0' || *text > '9' || value > limit ? 0 : value;
}
