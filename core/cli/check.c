/* SPDX-License-Identifier: MIT
 *
 * fastclock check: whether the clocks of this machine, as fastclock reads them, are right.
 *
 * A thread on each processor does four things by turns: reads the monotonic clock twice in a row,
 * which gives the cost of a read and, now and then, a gap in which the thread was away; hands its
 * reading over to the others (see threads.h); looks whether any clock that must not go back has;
 * and reads each clock between two raw system calls, where a reading outside of its bracket is
 * wrong.
 */
#define _GNU_SOURCE
#include "check.h"

#include <fastclock.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "cli.h"
#include "clocks.h"
#include "sys.h"
#include "threads.h"

enum {
    COSTS_MAX_NS = 1 << 16, /* costs below are counted by the nanosecond, all by powers of two */
    POWERS = 64,
    GAP_NS = 1000000,          /* a read that took longer than this was interrupted */
    BRACKET_MAX_NS = 100000000 /* ends further apart than this say nothing */
};

struct agreement {
    uint64_t brackets, void_brackets, outside;
    uint64_t largest_outside_ns; /* how far outside */
};

struct worker {
    struct handover *handover;
    uint64_t end_ns;
    _Atomic uint64_t *reads_done;
    uint64_t reads, hand_overs;
    uint64_t back[CLI_CLOCKS], largest_back_ns[CLI_CLOCKS]; /* in one thread */
    uint64_t crossed_back, largest_crossed_back_ns;         /* between threads */
    struct agreement agreement[CLI_CLOCKS];
    uint64_t costs[COSTS_MAX_NS], powers[POWERS];
    uint64_t gaps, largest_ns, unreadable;
    uint64_t last_ns[CLI_CLOCKS];
};

/* ---- Checking ---------------------------------------------------------------------------------
 */

static bool may_go_back(int32_t clock) {
    return clock == FC_REALTIME || clock == FC_REALTIME_COARSE || clock == FC_TAI;
}

static uint32_t power_of(uint64_t ns) {
    return ns ? 63 - (uint32_t)__builtin_clzll(ns) : 0;
}

/* The nanoseconds that a power of two stands for: from 2^power on, 0 with the first. */
static uint64_t power_start(uint32_t power) {
    return power ? (uint64_t)1 << power : 0;
}

static uint64_t power_end(uint32_t power) {
    return ((uint64_t)2 << power) - 1;
}

static void note_cost(struct worker *w, uint64_t ns) {
    w->costs[ns < COSTS_MAX_NS ? ns : COSTS_MAX_NS - 1]++;
    w->powers[power_of(ns)]++;
    w->gaps += ns > GAP_NS;
    if (ns > w->largest_ns)
        w->largest_ns = ns;
}

/* `c` is an index into cli_clocks. */
static void note_order(struct worker *w, int c, uint64_t ns) {
    if (ns < w->last_ns[c] && !may_go_back(cli_clocks[c].id)) {
        w->back[c]++;
        if (w->last_ns[c] - ns > w->largest_back_ns[c])
            w->largest_back_ns[c] = w->last_ns[c] - ns;
    }
    w->last_ns[c] = ns;
}

static void check_cost(struct worker *w, int monotonic) {
    enum { PAIRS = 64 };
    for (int i = 0; i < PAIRS; i++) {
        const uint64_t first = check_monotonic_ns(), second = check_monotonic_ns();
        note_order(w, monotonic, first);
        note_order(w, monotonic, second);
        if (second >= first)
            note_cost(w, second - first);
    }
    w->reads += 2 * PAIRS;
}

static void check_hand_over(struct worker *w) {
    enum { STEPS = 64 };
    for (int i = 0; i < STEPS; i++) {
        const uint64_t back = handover_step(w->handover, check_monotonic_ns);
        w->crossed_back += back > 0;
        if (back > w->largest_crossed_back_ns)
            w->largest_crossed_back_ns = back;
    }
    w->hand_overs += STEPS;
    w->reads += STEPS;
}

static void check_agreement(struct worker *w, int c) {
    struct agreement *a = &w->agreement[c];
    struct fc_reading reading;
    uint64_t before, ours, after;
    if (fc_sys_gettime(cli_clocks[c].id, &reading) < 0)
        return; /* the kernel does not know the clock */
    before = fc_reading_count(reading);
    ours = check_read_ns(cli_clocks[c].id);
    fc_sys_gettime(cli_clocks[c].id, &reading);
    after = fc_reading_count(reading);
    w->reads++;
    if (ours == FC_NO_TIME) {
        w->unreadable++;
        return;
    }
    note_order(w, c, ours);
    a->brackets++;
    if (after < before || after - before > BRACKET_MAX_NS) {
        a->void_brackets++;
    } else if (ours < before || ours > after) {
        const uint64_t by = ours < before ? before - ours : ours - after;
        a->outside++;
        if (by > a->largest_outside_ns)
            a->largest_outside_ns = by;
    }
}

static uint64_t kernel_monotonic_ns(void) {
    struct fc_reading reading = {0, 0};
    fc_sys_gettime(FC_MONOTONIC, &reading);
    return fc_reading_count(reading);
}

/* The end is told by the kernel: the clock under test may be wrong. */
static void work(void *state) {
    struct worker *w = state;
    int monotonic = 0;
    while (cli_clocks[monotonic].id != FC_MONOTONIC)
        monotonic++;
    do {
        const uint64_t done = w->reads;
        check_cost(w, monotonic);
        check_hand_over(w);
        for (int c = 0; c < CLI_CLOCKS; c++)
            check_agreement(w, c);
        atomic_fetch_add_explicit(w->reads_done, w->reads - done, memory_order_relaxed);
    } while (kernel_monotonic_ns() < w->end_ns);
}

/* ---- Adding up --------------------------------------------------------------------------------
 */

static void larger(uint64_t *most, uint64_t value) {
    if (value > *most)
        *most = value;
}

static void add(struct worker *sum, const struct worker *w) {
    sum->reads += w->reads;
    sum->hand_overs += w->hand_overs;
    sum->crossed_back += w->crossed_back;
    larger(&sum->largest_crossed_back_ns, w->largest_crossed_back_ns);
    for (int c = 0; c < CLI_CLOCKS; c++) {
        sum->back[c] += w->back[c];
        larger(&sum->largest_back_ns[c], w->largest_back_ns[c]);
        sum->agreement[c].brackets += w->agreement[c].brackets;
        sum->agreement[c].void_brackets += w->agreement[c].void_brackets;
        sum->agreement[c].outside += w->agreement[c].outside;
        larger(&sum->agreement[c].largest_outside_ns, w->agreement[c].largest_outside_ns);
    }
    for (int i = 0; i < COSTS_MAX_NS; i++)
        sum->costs[i] += w->costs[i];
    for (int i = 0; i < POWERS; i++)
        sum->powers[i] += w->powers[i];
    sum->gaps += w->gaps;
    sum->unreadable += w->unreadable;
    larger(&sum->largest_ns, w->largest_ns);
}

static uint64_t cost_count(const struct worker *sum) {
    uint64_t count = 0;
    for (int i = 0; i < POWERS; i++)
        count += sum->powers[i];
    return count;
}

/* Exact below COSTS_MAX_NS, else the end of the power of two that it lies in. */
static uint64_t percentile_ns(const struct worker *sum, double part) {
    const double wanted = part * (double)cost_count(sum);
    uint64_t seen = 0;
    for (uint64_t ns = 0; ns < COSTS_MAX_NS - 1; ns++) {
        seen += sum->costs[ns];
        if ((double)seen >= wanted)
            return ns;
    }
    for (uint32_t power = power_of(COSTS_MAX_NS - 1) + 1; power < POWERS - 1; power++) {
        seen += sum->powers[power];
        if ((double)seen >= wanted)
            return power_end(power) < sum->largest_ns ? power_end(power) : sum->largest_ns;
    }
    return sum->largest_ns;
}

static uint64_t wrongs(const struct worker *sum) {
    uint64_t count = sum->crossed_back + sum->unreadable;
    for (int c = 0; c < CLI_CLOCKS; c++)
        count += sum->back[c] + sum->agreement[c].outside;
    return count;
}

/* ---- Telling ----------------------------------------------------------------------------------
 */

static const struct {
    const char *name;
    double part;
} percentiles[] = {{"p50", .5}, {"p90", .9}, {"p99", .99}, {"p99.9", .999}, {"p99.99", .9999}};

enum { PERCENTILES = sizeof percentiles / sizeof *percentiles };

static void print_histogram(const struct worker *sum) {
    const uint64_t count = cost_count(sum);
    puts("\ncost of a read                      count    part");
    for (uint32_t power = 0; power < POWERS; power++) {
        const double part = (double)sum->powers[power] / (double)count;
        if (!sum->powers[power])
            continue;
        printf("  %10" PRIu64 " to %10" PRIu64 " ns %12" PRIu64 " %8.4f %% ", power_start(power),
               power_end(power), sum->powers[power], 100 * part);
        for (int i = 0; i < (int)(part * 30 + .5); i++)
            putchar('#');
        putchar('\n');
    }
    fputs(" ", stdout);
    for (int i = 0; i < PERCENTILES; i++)
        printf(" %s %" PRIu64 " ns,", percentiles[i].name, percentile_ns(sum, percentiles[i].part));
    printf(" largest %" PRIu64 " ns\n", sum->largest_ns);
    printf("  gaps of more than %d ms, in which the thread was away: %" PRIu64 "\n",
           GAP_NS / 1000000, sum->gaps);
}

static void print_text(const struct worker *sum, const struct fc_info *info, uint32_t threads,
                       uint64_t slow) {
    printf("%" PRIu64
           " reads by %u threads; source %s, answering: %s; falls to the slow path: %" PRIu64
           "\n\n",
           sum->reads, threads, fc_source_name(info->source), fc_source_name(info->serving), slow);
    puts("clock              brackets     void  outside  largest    back  largest");
    for (int c = 0; c < CLI_CLOCKS; c++) {
        const struct agreement *a = &sum->agreement[c];
        printf("%-16s %10" PRIu64 " %8" PRIu64 " %8" PRIu64 " %8" PRIu64, cli_clocks[c].name,
               a->brackets, a->void_brackets, a->outside, a->largest_outside_ns);
        if (may_go_back(cli_clocks[c].id))
            puts("   may be set");
        else
            printf(" %7" PRIu64 " %8" PRIu64 "\n", sum->back[c], sum->largest_back_ns[c]);
    }
    printf("\nhanded over between threads %" PRIu64 " times: went back %" PRIu64
           " times, by %" PRIu64 " ns at most\n",
           sum->hand_overs, sum->crossed_back, sum->largest_crossed_back_ns);
    if (sum->unreadable)
        printf("could not be read: %" PRIu64 " times\n", sum->unreadable);
    print_histogram(sum);
    if (wrongs(sum))
        printf("\nWRONG: %" PRIu64
               " readings were outside of their bracket, went back or could not "
               "be made\n",
               wrongs(sum));
    else
        puts("\nnothing is wrong");
}

static void print_json(const struct cli_args *args, const struct worker *sum,
                       const struct fc_info *info, uint32_t threads, uint64_t slow,
                       uint64_t seconds) {
    struct json j;
    cli_json_begin(args, &j);
    json_bool(&j, "right", wrongs(sum) == 0);
    json_uint(&j, "wrong_readings", wrongs(sum));
    json_uint(&j, "seconds", seconds);
    json_uint(&j, "threads", threads);
    json_uint(&j, "reads", sum->reads);
    json_string(&j, "source", fc_source_name(info->source));
    json_string(&j, "serving", fc_source_name(info->serving));
    json_uint(&j, "slow_reads", slow);
    json_uint(&j, "unreadable", sum->unreadable);
    json_array(&j, "clocks");
    for (int c = 0; c < CLI_CLOCKS; c++) {
        const struct agreement *a = &sum->agreement[c];
        json_object(&j, NULL);
        json_string(&j, "name", cli_clocks[c].name);
        json_uint(&j, "brackets", a->brackets);
        json_uint(&j, "void_brackets", a->void_brackets);
        json_uint(&j, "outside", a->outside);
        json_uint(&j, "largest_outside_ns", a->largest_outside_ns);
        if (may_go_back(cli_clocks[c].id)) {
            json_null(&j, "back");
            json_null(&j, "largest_back_ns");
        } else {
            json_uint(&j, "back", sum->back[c]);
            json_uint(&j, "largest_back_ns", sum->largest_back_ns[c]);
        }
        json_object_end(&j);
    }
    json_array_end(&j);
    json_object(&j, "hand_over");
    json_uint(&j, "steps", sum->hand_overs);
    json_uint(&j, "back", sum->crossed_back);
    json_uint(&j, "largest_back_ns", sum->largest_crossed_back_ns);
    json_object_end(&j);
    json_object(&j, "cost");
    for (int i = 0; i < PERCENTILES; i++) {
        char key[16];
        snprintf(key, sizeof key, "%s_ns", percentiles[i].name);
        json_uint(&j, key, percentile_ns(sum, percentiles[i].part));
    }
    json_uint(&j, "largest_ns", sum->largest_ns);
    json_uint(&j, "gaps", sum->gaps);
    json_uint(&j, "gap_ns", GAP_NS);
    json_array(&j, "histogram");
    for (uint32_t power = 0; power < POWERS; power++) {
        if (!sum->powers[power])
            continue;
        json_object(&j, NULL);
        json_uint(&j, "from_ns", power_start(power));
        json_uint(&j, "to_ns", power_end(power));
        json_uint(&j, "count", sum->powers[power]);
        json_object_end(&j);
    }
    json_array_end(&j);
    json_object_end(&j);
    json_end(&j);
}

/* ---- The command ------------------------------------------------------------------------------
 */

/* The thread that tells how far the others are, once a second. */
struct watcher {
    const _Atomic uint64_t *reads_done;
    uint64_t seconds;
    _Atomic bool stop;
};

static void *watch(void *argument) {
    struct watcher *w = argument;
    const struct timespec tenth = {0, 100000000};
    for (uint64_t tenths = 1; !atomic_load(&w->stop); tenths++) {
        nanosleep(&tenth, NULL);
        if (tenths % 10 == 0 && !atomic_load(&w->stop))
            cli_progress("checking: %" PRIu64 " of %" PRIu64 " s, %" PRIu64 " million reads",
                         tenths / 10, w->seconds,
                         atomic_load_explicit(w->reads_done, memory_order_relaxed) / 1000000);
    }
    return NULL;
}

static bool check_run(struct worker *workers, uint32_t threads, uint64_t seconds,
                      const _Atomic uint64_t *reads_done) {
    struct watcher watcher = {reads_done, seconds, false};
    pthread_t thread;
    bool watching, started;
    watching = pthread_create(&thread, NULL, watch, &watcher) == 0;
    started = threads_run(work, workers, threads, sizeof *workers);
    atomic_store(&watcher.stop, true);
    if (watching)
        pthread_join(thread, NULL);
    cli_progress_end();
    return started;
}

static int run(struct cli_args *args) {
    const uint32_t threads = threads_wanted();
    struct handover handover = {0};
    _Atomic uint64_t reads_done = 0;
    uint64_t seconds = 3, end_ns, slow;
    struct worker *workers, *sum;
    struct fc_info before, after;
    const char *value;
    bool started;
    int code, id;
    while ((id = cli_next(args, &value, &code)) != CLI_END) {
        if (id == CLI_STOP)
            return code;
        if (!cli_number(args, "the number of seconds", value, 1, 86400, &seconds))
            return CLI_USAGE;
    }
    if (args->argc) {
        cli_error(args, "takes no operands, and so not '%s'", args->argv[0]);
        return CLI_USAGE;
    }
    if (fc_init() < 0) {
        cli_error(args, "no source of time serves; see fastclock info");
        return CLI_UNAVAILABLE;
    }
    workers = calloc(threads + 1, sizeof *workers);
    if (!workers) {
        cli_error(args, "no memory for %u threads", threads);
        return CLI_UNAVAILABLE;
    }
    fc_get_info(&before, sizeof before);
    end_ns = kernel_monotonic_ns() + seconds * 1000000000u;
    for (uint32_t i = 0; i < threads; i++) {
        workers[i].handover = &handover;
        workers[i].end_ns = end_ns;
        workers[i].reads_done = &reads_done;
    }
    sum = &workers[threads];
    started = check_run(workers, threads, seconds, &reads_done);
    for (uint32_t i = 0; i < threads; i++)
        add(sum, &workers[i]);
    fc_get_info(&after, sizeof after);
    slow = after.slow_reads - before.slow_reads;
    if (!started) {
        cli_error(args, "cannot make %u threads", threads);
        code = CLI_UNAVAILABLE;
    } else {
        if (args->json)
            print_json(args, sum, &after, threads, slow, seconds);
        else
            print_text(sum, &after, threads, slow);
        code = wrongs(sum) ? CLI_WRONG : CLI_OK;
    }
    free(workers);
    return code;
}

static const struct cli_option options[] = {
    {"seconds", 's', "N", "how long to check; 3 if not given"},
};

const struct cli_command command_check = {
    .name = "check",
    .operands = "",
    .summary = "whether the clocks agree with the kernel and never go back",
    .text =
        "Reads the clocks on every processor at once and checks each reading: against the kernel\n"
        "between two system calls, against the last one in its thread, and against the last one\n"
        "that another processor handed over. Prints what reads cost, as a histogram.\n"
        "Exit code 1 if anything is wrong.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
