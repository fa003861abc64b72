/* SPDX-License-Identifier: MIT
 *
 * What it costs to take a count that belongs to the processor whose skew is subtracted: RDTSCP,
 * user restart and kernel restart side by side, against a fence and the counter alone behind the
 * same kind of call; as JSON on standard output. rounds.h says how it is measured.
 */
#define FASTCLOCK_INLINE
#include <fastclock.h>
#include <stdio.h>
#include <string.h>

#include "rounds.h"
#include "skew.h"

typedef int counter(const void *, uint64_t *);

static struct fc_timekeep page;

static int counter_alone(const void *unused, uint64_t *cycles) {
    (void)unused;
    *cycles = fc_counter_ordered_();
    return 1;
}

static inline uint64_t count_by(counter *call) {
    uint64_t cycles = 0;
    call(&page, &cycles);
    return cycles;
}

/* Each by a pointer that the compiler does not see through. */
#define WAY(name, function)                                                                        \
    ROW(name, counter *call = function; HIDE(call), (uintptr_t)count_by(call))
WAY(row_alone, counter_alone)
WAY(row_rdtscp, fc_skew_rdtscp)
WAY(row_user_restart, fc_skew_user_restart)
WAY(row_kernel_restart, fc_skew_kernel_restart)

#define ALONE "counter alone"
static const struct {
    struct row row;
    counter *function;
} ways[] = {
    {{ALONE, NULL, row_alone, 200, NULL}, counter_alone},
    {{"rdtscp", ALONE, row_rdtscp, 200, NULL}, fc_skew_rdtscp},
    {{"user restart", ALONE, row_user_restart, 200, NULL}, fc_skew_user_restart},
    {{"kernel restart", ALONE, row_kernel_restart, 200, NULL}, fc_skew_kernel_restart},
};

enum { WAYS = sizeof ways / sizeof *ways };

/* The rows of the ways that exist here. */
static uint32_t find_ways(struct row *rows) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < WAYS; i++) {
        uint64_t cycles;
        if (ways[i].function(&page, &cycles))
            rows[count++] = ways[i].row;
    }
    return count;
}

static void print_missing(const struct row *rows, uint32_t count) {
    const char *comma = "";
    printf("  \"missing\": [");
    for (uint32_t i = 0, found = 0; i < WAYS; i++) {
        if (found < count && rows[found].run == ways[i].row.run) {
            found++;
            continue;
        }
        printf("%s\"%s\"", comma, ways[i].row.name);
        comma = ", ";
    }
    printf("],\n");
}

static const char usage[] =
    "usage: skew [--rounds N]\n"
    "Measures what each way to a count less its processor's skew costs; JSON on standard output.\n"
    "  --rounds N  rounds over all rows, 1 to 1000000; 2000 if not given\n";

int main(int argc, char **argv) {
    uint64_t rounds = ROUNDS;
    struct row rows[WAYS];
    uint32_t count;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--rounds") == 0)
        rounds = parse_whole(argv[2], ROUNDS_MAX);
    if ((argc != 1 && argc != 3) || rounds == 0 ||
        (argc == 3 && strcmp(argv[1], "--rounds") != 0)) {
        fputs(usage, stderr);
        return 2;
    }
    if (fc_init() < 0) {
        fprintf(stderr, "skew: no source of time serves\n");
        return 1;
    }
    page.cpus = FC_TIMEKEEP_CPUS;
    count = find_ways(rows);
    measure_rows(rows, count, (uint32_t)rounds);
    printf("{\n");
    print_missing(rows, count);
    print_rows(rows, count);
    printf("}\n");
    return fflush(stdout) == 0 ? 0 : 1;
}
