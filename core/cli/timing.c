/* SPDX-License-Identifier: MIT
 *
 * fastclock timing: two tables of what a read costs. The first times long loops, one after the
 * other, as FreeBSD's syscall_timing does; the second measures every clock and every way by turns,
 * in rounds of some microseconds, and shows the minimum.
 */
#define _GNU_SOURCE
#include <fastclock.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "measure.h"

enum { LOOPS_MAX = 100, ROUNDS = 200 };

/* ---- The loops --------------------------------------------------------------------------------
 */

static const enum cli_way loop_ways[] = {CLI_WAY_SYSCALL, CLI_WAY_VDSO, CLI_WAY_LIBC,
                                         CLI_WAY_ORDERED, CLI_WAY_RELAXED};

enum { LOOP_WAYS = sizeof loop_ways / sizeof *loop_ways };

struct loop {
    int32_t clock;
    enum cli_way way;
    uint32_t number;
    double time_s;
    uint64_t iterations;
};

static double now_s(void) {
    return (double)fc_monotonic_ns() / 1e9;
}

/* Reads for `seconds`, in pieces that are long beside the look at the time between them. */
static struct loop run_loop(int32_t clock, enum cli_way way, uint32_t number, double seconds) {
    const uint64_t piece = 10000;
    struct loop loop = {clock, way, number, 0, 0};
    const double start_s = now_s();
    do {
        cli_read(way, clock, piece);
        loop.iterations += piece;
        loop.time_s = now_s() - start_s;
    } while (loop.time_s < seconds);
    return loop;
}

static uint32_t run_loops(const int32_t *clocks, uint32_t clock_count, uint32_t loops,
                          double seconds, struct loop *results) {
    uint32_t count = 0;
    double shown_s = now_s();
    for (uint32_t c = 0; c < clock_count; c++)
        for (uint32_t w = 0; w < LOOP_WAYS; w++)
            for (uint32_t number = 0; number < loops; number++) {
                if (!cli_way_works(loop_ways[w], clocks[c]))
                    continue;
                if (now_s() - shown_s > 1) {
                    cli_progress("timing %s by %s, loop %u", cli_clock_name(clocks[c]),
                                 cli_way_name(loop_ways[w]), number);
                    shown_s = now_s();
                }
                results[count++] = run_loop(clocks[c], loop_ways[w], number, seconds);
            }
    cli_progress_end();
    return count;
}

/* ---- The ways by turns ------------------------------------------------------------------------
 */

/* A column of the second table. */
static const struct column {
    const char *heading;
    enum cli_way way;
    int32_t source;
} columns[] = {
    {"system call", CLI_WAY_SYSCALL, MEASURE_ANY_SOURCE},
    {"vDSO", CLI_WAY_VDSO, MEASURE_ANY_SOURCE},
    {"libc", CLI_WAY_LIBC, MEASURE_ANY_SOURCE},
    {"ordered", CLI_WAY_ORDERED, MEASURE_ANY_SOURCE},
    {"relaxed", CLI_WAY_RELAXED, MEASURE_ANY_SOURCE},
    {"kernel-page", CLI_WAY_ORDERED, FC_SOURCE_KERNEL_PAGE},
    {"timekeep", CLI_WAY_ORDERED, FC_SOURCE_TIMEKEEP},
    {"vdso", CLI_WAY_ORDERED, FC_SOURCE_VDSO},
    {"syscall", CLI_WAY_ORDERED, FC_SOURCE_SYSCALL},
    {"off", CLI_WAY_ORDERED, FC_SOURCE_LIBC},
};

enum { COLUMNS = sizeof columns / sizeof *columns };

static bool measure_columns(const int32_t *clocks, uint32_t clock_count, struct measured *cells) {
    for (uint32_t c = 0; c < clock_count; c++)
        for (uint32_t k = 0; k < COLUMNS; k++)
            cells[c * COLUMNS + k] =
                (struct measured){columns[k].way, clocks[c], columns[k].source, false, 0, 0};
    return measure(cells, clock_count * COLUMNS, ROUNDS, "every way by turns");
}

/* Whether any clock can be read in this column. */
static bool column_works(const struct measured *cells, uint32_t clock_count, uint32_t column) {
    for (uint32_t c = 0; c < clock_count; c++)
        if (cells[c * COLUMNS + column].works)
            return true;
    return false;
}

/* ---- Telling ----------------------------------------------------------------------------------
 */

static void print_text(const struct loop *loops, uint32_t loop_count, const struct measured *cells,
                       const int32_t *clocks, uint32_t clock_count) {
    struct timespec resolution = {0, 0};
    fc_clock_getres(clocks[0], &resolution);
    printf("Clock resolution: %lld.%09ld\n", (long long)resolution.tv_sec, resolution.tv_nsec);
    printf("%-36s %4s  %11s  %12s  %s\n", "test", "loop", "time", "iterations", "periteration");
    for (uint32_t i = 0; i < loop_count; i++) {
        const struct loop *l = &loops[i];
        char test[64];
        snprintf(test, sizeof test, "%s, %s", cli_clock_name(l->clock), cli_way_name(l->way));
        printf("%-36s %4u  %11.9f  %12" PRIu64 "  %.10f\n", test, l->number, l->time_s,
               l->iterations, l->time_s / (double)l->iterations);
    }
    printf("\nns a read, minimum of %d rounds by turns; under a source's name: fastclock forced to "
           "it\n%-18s",
           ROUNDS, "");
    for (uint32_t k = 0; k < COLUMNS; k++)
        if (column_works(cells, clock_count, k))
            printf(" %11s", columns[k].heading);
    putchar('\n');
    for (uint32_t c = 0; c < clock_count; c++) {
        printf("%-18s", cli_clock_name(clocks[c]));
        for (uint32_t k = 0; k < COLUMNS; k++) {
            const struct measured *cell = &cells[c * COLUMNS + k];
            if (!column_works(cells, clock_count, k))
                continue;
            if (cell->works)
                printf(" %11.1f", cell->min_ns);
            else
                printf(" %11s", "none");
        }
        putchar('\n');
    }
    for (uint32_t k = 0; k < COLUMNS; k++)
        if (!column_works(cells, clock_count, k))
            printf("%s cannot be used here%s\n", columns[k].heading,
                   columns[k].source == MEASURE_ANY_SOURCE ? "" : "; fastclock info says why");
}

static void print_json(const struct cli_args *args, const struct loop *loops, uint32_t loop_count,
                       const struct measured *cells, const int32_t *clocks, uint32_t clock_count) {
    struct json j;
    cli_json_begin(args, &j);
    json_array(&j, "loops");
    for (uint32_t i = 0; i < loop_count; i++) {
        const struct loop *l = &loops[i];
        json_object(&j, NULL);
        json_string(&j, "clock", cli_clock_name(l->clock));
        json_string(&j, "way", cli_way_name(l->way));
        json_uint(&j, "loop", l->number);
        json_double(&j, "time_s", l->time_s, 9);
        json_uint(&j, "iterations", l->iterations);
        json_double(&j, "ns_per_iteration", l->time_s * 1e9 / (double)l->iterations, 3);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_array(&j, "reads");
    for (uint32_t i = 0; i < clock_count * COLUMNS; i++) {
        const struct column *column = &columns[i % COLUMNS];
        json_object(&j, NULL);
        json_string(&j, "clock", cli_clock_name(clocks[i / COLUMNS]));
        json_string(&j, "way", cli_way_name(column->way));
        json_string(&j, "source",
                    column->source == MEASURE_ANY_SOURCE ? NULL : fc_source_name(column->source));
        json_double(&j, "min_ns", cells[i].works ? cells[i].min_ns : (double)NAN, 2);
        json_double(&j, "median_ns", cells[i].works ? cells[i].median_ns : (double)NAN, 2);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_end(&j);
}

/* ---- The command ------------------------------------------------------------------------------
 */

static bool take_clocks(struct cli_args *args, int32_t *clocks, uint32_t *count) {
    static const int32_t usual[] = {FC_REALTIME, FC_MONOTONIC, FC_REALTIME_COARSE,
                                    FC_MONOTONIC_COARSE};
    *count = 0;
    for (int i = 0; i < args->argc; i++) {
        const struct cli_clock *clock = cli_clock_by_name(args->argv[i]);
        bool given = false;
        if (!clock) {
            cli_error(args,
                      "'%s' is no clock; they are realtime, monotonic, raw, boottime, tai, "
                      "realtime-coarse, monotonic-coarse",
                      args->argv[i]);
            return false;
        }
        for (uint32_t k = 0; k < *count; k++)
            given |= clocks[k] == clock->id;
        if (!given)
            clocks[(*count)++] = clock->id;
    }
    if (*count == 0) {
        memcpy(clocks, usual, sizeof usual);
        *count = sizeof usual / sizeof *usual;
    }
    return true;
}

static int run(struct cli_args *args) {
    static struct measured cells[CLI_CLOCKS * COLUMNS];
    int32_t clocks[CLI_CLOCKS];
    uint32_t clock_count, loop_count;
    uint64_t loops = 1, milliseconds = 100;
    struct loop *results;
    const char *value;
    int code, id;
    while ((id = cli_next(args, &value, &code)) != CLI_END) {
        switch (id) {
        case CLI_STOP: return code;
        case 'l':
            if (!cli_number(args, "the number of loops", value, 1, LOOPS_MAX, &loops))
                return CLI_USAGE;
            break;
        default:
            if (!cli_number(args, "the length of a loop in ms", value, 1, 60000, &milliseconds))
                return CLI_USAGE;
        }
    }
    if (!take_clocks(args, clocks, &clock_count))
        return CLI_USAGE;
    if (!cli_ways_open()) {
        cli_error(args, "no source of time serves; see fastclock info");
        return CLI_UNAVAILABLE;
    }
    results = calloc((size_t)clock_count * LOOP_WAYS * (size_t)loops, sizeof *results);
    if (!results || !measure_columns(clocks, clock_count, cells)) {
        cli_error(args, "no memory");
        free(results);
        return CLI_UNAVAILABLE;
    }
    loop_count =
        run_loops(clocks, clock_count, (uint32_t)loops, (double)milliseconds / 1000, results);
    if (args->json)
        print_json(args, results, loop_count, cells, clocks, clock_count);
    else
        print_text(results, loop_count, cells, clocks, clock_count);
    free(results);
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"loops", 'l', "N", "loops for each test; 1 if not given"},
    {"milliseconds", 'm', "N", "length of a loop; 100 if not given"},
};

const struct cli_command command_timing = {
    .name = "timing",
    .operands = "[CLOCK…]",
    .summary = "what a read of each clock costs, by every way there is",
    .text = "Times the reading of clocks in long loops, and by turns in short rounds, by system\n"
            "call, vDSO, C library and fastclock, with each source that can be used here.\n"
            "Clocks: realtime, monotonic, raw, boottime, tai, realtime-coarse, monotonic-coarse;\n"
            "realtime, monotonic and the coarse ones if none is named.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
