/* SPDX-License-Identifier: MIT
 *
 * What each way of reading the time costs from C, as JSON on standard output; rounds.h says how it
 * is measured. What the loop itself costs is the row `loop`.
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include <dlfcn.h>
#include <errno.h>
#include <fastclock.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rounds.h"

extern uint64_t bench_empty(void);

/* ---- The rows ------------------------------------------------------------------------------- */

typedef int gettime(clockid_t, struct timespec *);
static gettime *vdso_gettime;
static struct timespec ts;

#ifdef FC_MODE_COUNTER_

/* The least that could give nanoseconds: with a scale whose numbers the compiler does not know. */
static void row_counter_scaled(uint32_t reads) {
    uint64_t mult = 1;
    uint32_t shift = 1;
    HIDE(mult);
    HIDE(shift);
    for (uint32_t i = 0; i < reads; i++)
        USE((fc_counter_ordered_() * mult) >> (shift & 63));
}

#endif

ROW(row_loop, , i)
ROW(row_call, , bench_empty())
#ifdef FC_MODE_COUNTER_
ROW(row_counter_relaxed, , fc_counter_relaxed_())
ROW(row_counter_ordered, , fc_counter_ordered_())
#endif
ROW(row_syscall, , syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts))
ROW(row_libc, , clock_gettime(CLOCK_MONOTONIC, &ts))
ROW(row_vdso, , vdso_gettime(CLOCK_MONOTONIC, &ts))
ROW(row_inline_ordered, , fc_monotonic_ns())
ROW(row_inline_relaxed, , fc_monotonic_relaxed_ns())
ROW(row_inline_vtime64, , vtime64())
ROW(row_call_ordered, , (fc_monotonic_ns)())
ROW(row_call_relaxed, , (fc_monotonic_relaxed_ns)())
ROW(row_call_vtime64, , (vtime64)())
ROW(row_gettime, , fc_clock_gettime(CLOCK_MONOTONIC, &ts))
ROW(row_libc_coarse, , clock_gettime(CLOCK_MONOTONIC_COARSE, &ts))
ROW(row_inline_coarse, , fc_monotonic_coarse_ns())
ROW(row_call_coarse, , (fc_monotonic_coarse_ns)())

static struct row rows[] = {
    {"loop", NULL, row_loop, 1000, NULL},
    {"empty call", NULL, row_call, 1000, NULL},
#ifdef FC_MODE_COUNTER_
    {"counter relaxed", NULL, row_counter_relaxed, 200, NULL},
    {"counter ordered", NULL, row_counter_ordered, 200, NULL},
    {"counter ordered, scaled", "counter ordered", row_counter_scaled, 200, NULL},
#endif
    {"system call", NULL, row_syscall, 50, NULL},
    {"libc", NULL, row_libc, 200, NULL},
    {"vDSO", "libc", row_vdso, 200, NULL},
    {"inline ordered", "counter ordered", row_inline_ordered, 200, NULL},
    {"inline relaxed", "counter relaxed", row_inline_relaxed, 200, NULL},
    {"inline vtime64", "counter ordered", row_inline_vtime64, 200, NULL},
    {"call ordered", "inline ordered", row_call_ordered, 200, NULL},
    {"call relaxed", "inline relaxed", row_call_relaxed, 200, NULL},
    {"call vtime64", "inline vtime64", row_call_vtime64, 200, NULL},
    {"fc_clock_gettime", "libc", row_gettime, 200, NULL},
    {"libc coarse", NULL, row_libc_coarse, 500, NULL},
    {"inline coarse", "libc coarse", row_inline_coarse, 1000, NULL},
    {"call coarse", "libc coarse", row_call_coarse, 1000, NULL},
};

enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS <= (int)ROWS_MAX, "more rows than are measured");

/* ---- Single reads --------------------------------------------------------------------------- */

/* The distances of successive reads, as a user of the clock meets them: counted by whole
 * nanoseconds up to a bound, and kept apart beyond it. */
enum { DISTANCE_MAX_NS = 1 << 20 };

struct distances {
    uint64_t counts[DISTANCE_MAX_NS];
    uint64_t max_ns;
};

static uint64_t libc_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void count_distance(struct distances *d, uint64_t ns) {
    d->counts[ns < DISTANCE_MAX_NS ? ns : DISTANCE_MAX_NS - 1]++;
    if (ns > d->max_ns)
        d->max_ns = ns;
}

/* Read in runs, and counted after each, so that counting is no part of a distance. */
enum { RUN = 4096 };

#define DISTANCES(name, read)                                                                      \
    static void name(uint64_t reads, struct distances *d) {                                        \
        static uint64_t run[RUN + 1];                                                              \
        for (uint64_t done = 0; done < reads; done += RUN) {                                       \
            for (uint32_t i = 0; i <= RUN; i++)                                                    \
                run[i] = read;                                                                     \
            for (uint32_t i = 0; i < RUN && done + i < reads; i++)                                 \
                count_distance(d, run[i + 1] - run[i]);                                            \
        }                                                                                          \
    }
DISTANCES(distances_libc, libc_ns())
DISTANCES(distances_ordered, fc_monotonic_ns())
DISTANCES(distances_relaxed, fc_monotonic_relaxed_ns())

static uint64_t percentile(const struct distances *d, uint64_t reads, double part) {
    uint64_t seen = 0;
    for (uint64_t ns = 0; ns < DISTANCE_MAX_NS; ns++) {
        seen += d->counts[ns];
        if ((double)seen >= part * (double)reads)
            return ns;
    }
    return d->max_ns;
}

static bool print_distances(uint64_t reads) {
    static const struct {
        const char *name;
        void (*run)(uint64_t, struct distances *);
    } kinds[] = {{"libc", distances_libc},
                 {"inline ordered", distances_ordered},
                 {"inline relaxed", distances_relaxed}};
    printf("  \"distances\": [\n");
    for (uint32_t k = 0; k < 3; k++) {
        struct distances *d = calloc(1, sizeof *d);
        const char *comma = "";
        if (!d)
            return false;
        kinds[k].run(reads, d);
        printf("    {\"name\": \"%s\", \"reads\": %" PRIu64 ", \"p50_ns\": %" PRIu64
               ", \"p99_ns\": %" PRIu64 ", \"p99_99_ns\": %" PRIu64 ", \"max_ns\": %" PRIu64
               ", \"histogram\": [",
               kinds[k].name, reads, percentile(d, reads, .5), percentile(d, reads, .99),
               percentile(d, reads, .9999), d->max_ns);
        for (uint64_t ns = 0; ns < DISTANCE_MAX_NS; ns++) {
            if (!d->counts[ns])
                continue;
            printf("%s[%" PRIu64 ", %" PRIu64 "]", comma, ns, d->counts[ns]);
            comma = ", ";
        }
        printf("]}%s\n", k < 2 ? "," : "");
        free(d);
    }
    printf("  ],\n");
    return true;
}

/* ---- Output --------------------------------------------------------------------------------- */

/* The strings are constants of the library and the compiler, without quotes or backslashes. */
static void print_info(void) {
    struct fc_info info;
    fc_get_info(&info, sizeof info);
    printf("  \"info\": {\n"
           "    \"version\": \"%s\",\n"
           "    \"source\": \"%s\",\n"
           "    \"wanted\": \"%s\",\n"
           "    \"wanted_reason\": \"%s\",\n"
           "    \"serving\": \"%s\",\n"
           "    \"serving_reason\": \"%s\",\n"
           "    \"coarse_serving\": \"%s\",\n"
           "    \"layout\": \"%s\",\n"
           "    \"mode\": %" PRId32 ",\n"
           "    \"time_namespace\": %" PRId32 ",\n"
           "    \"counter_hz\": %" PRIu64 ",\n"
           "    \"proof_rounds\": %" PRIu32 ",\n"
           "    \"resolution_ns\": %" PRIu64 ",\n"
           "    \"coarse_resolution_ns\": %" PRIu64 ",\n"
           "    \"slow_reads\": %" PRIu64 ",\n"
           "    \"refused\": {",
           fc_version(), fc_source_name(info.source), fc_source_name(info.wanted),
           info.wanted_reason ? fc_reason_text(info.wanted_reason) : "",
           fc_source_name(info.serving),
           info.serving_reason ? fc_reason_text(info.serving_reason) : "",
           fc_source_name(info.coarse_serving), info.layout, info.mode, info.time_namespace,
           info.counter_hz, info.proof_rounds, info.resolution_ns, info.coarse_resolution_ns,
           info.slow_reads);
    for (int32_t source = FC_SOURCE_KERNEL_PAGE; source <= FC_SOURCE_LIBC; source++)
        printf("%s\"%s\": \"%s\"", source > FC_SOURCE_KERNEL_PAGE ? ", " : "",
               fc_source_name(source),
               info.reason[source] ? fc_reason_text(info.reason[source]) : "");
    printf("}\n  },\n");
}

static bool find_vdso(void) {
    void *vdso = dlopen("linux-vdso.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = vdso ? dlsym(vdso, "__vdso_clock_gettime") : NULL;
    if (vdso && !symbol)
        symbol = dlsym(vdso, "__kernel_clock_gettime"); /* its name on arm64 */
    memcpy(&vdso_gettime, &symbol, sizeof symbol);
    return symbol != NULL;
}

static const char usage[] =
    "usage: reads [--rounds N] [--distances N]\n"
    "Measures what each way of reading the time costs; JSON on standard output.\n"
    "  --rounds N     rounds over all rows, 1 to 1000000; 2000 if not given\n"
    "  --distances N  also the distances of N successive reads, 1 to 1000000000\n";

int main(int argc, char **argv) {
    uint64_t rounds = ROUNDS, distances = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc &&
            (rounds = parse_whole(argv[++i], ROUNDS_MAX)) != 0)
            continue;
        if (strcmp(argv[i], "--distances") == 0 && i + 1 < argc &&
            (distances = parse_whole(argv[++i], 1000000000)) != 0)
            continue;
        fprintf(stderr, "reads: cannot take '%s'\n%s", argv[i], usage);
        return 2;
    }
    if (fc_init() < 0) {
        fprintf(stderr, "reads: no source of time serves\n");
        return 1;
    }
    if (!find_vdso()) {
        fprintf(stderr, "reads: this process has no vDSO with a clock\n");
        return 1;
    }
    measure_rows(rows, ROWS, (uint32_t)rounds);
    printf("{\n");
    if (distances && !print_distances(distances)) {
        fprintf(stderr, "reads: no memory for a histogram\n");
        return 1;
    }
    print_info();
    print_rows(rows, ROWS);
    printf("}\n");
    return fflush(stdout) == 0 ? 0 : 1;
}
