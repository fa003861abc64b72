/* SPDX-License-Identifier: MIT
 *
 * fastclock gettime: one clock, read a million times, and what that took as time(1) tells it.
 */
#define _GNU_SOURCE
#include <fastclock.h>
#include <inttypes.h>
#include <string.h>
#include <sys/resource.h>

#include "cli.h"
#include "clocks.h"

struct spent {
    double real_s, user_s, system_s;
};

static double seconds(struct timeval tv) {
    return (double)tv.tv_sec + (double)tv.tv_usec / 1e6;
}

static void now(struct spent *s) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    s->real_s = (double)fc_monotonic_ns() / 1e9;
    s->user_s = seconds(usage.ru_utime);
    s->system_s = seconds(usage.ru_stime);
}

/* In pieces, so that there can be progress. */
static struct spent spend(enum cli_way way, int32_t clock, uint64_t reads) {
    const uint64_t piece = 100000;
    const double progress_s = 1;
    struct spent start, end;
    double shown_s;
    now(&start);
    end = start;
    shown_s = start.real_s;
    for (uint64_t done = 0; done < reads;) {
        const uint64_t some = reads - done < piece ? reads - done : piece;
        cli_read(way, clock, some);
        done += some;
        now(&end);
        if (end.real_s - shown_s > progress_s && done < reads) {
            cli_progress("%" PRIu64 " of %" PRIu64 " reads", done, reads);
            shown_s = end.real_s;
        }
    }
    cli_progress_end();
    return (struct spent){end.real_s - start.real_s, end.user_s - start.user_s,
                          end.system_s - start.system_s};
}

static void print_json(const struct cli_args *args, int32_t clock, enum cli_way way, uint64_t reads,
                       const struct spent *s) {
    struct fc_info info;
    struct json j;
    fc_get_info(&info, sizeof info);
    cli_json_begin(args, &j);
    json_string(&j, "clock", cli_clock_name(clock));
    json_string(&j, "way", cli_way_name(way));
    json_string(&j, "source", way == CLI_WAY_ORDERED ? fc_source_name(info.source) : NULL);
    json_uint(&j, "reads", reads);
    json_double(&j, "real_s", s->real_s, 6);
    json_double(&j, "user_s", s->user_s, 6);
    json_double(&j, "system_s", s->system_s, 6);
    json_double(&j, "real_ns_per_read", s->real_s * 1e9 / (double)reads, 2);
    json_end(&j);
}

static int run(struct cli_args *args) {
    const uint64_t reads_max = 100000000000u;
    enum cli_way way = CLI_WAY_ORDERED;
    uint64_t reads = 1000000, unused;
    bool coarse = false, mono;
    struct spent spent;
    const char *value;
    int32_t clock;
    int code, id;
    while ((id = cli_next(args, &value, &code)) != CLI_END) {
        switch (id) {
        case CLI_STOP: return code;
        case 'c': coarse = true; break;
        case 's': way = CLI_WAY_SYSCALL; break;
        default:
            if (!cli_number(args, "the number of reads", value, 1, reads_max, &reads))
                return CLI_USAGE;
        }
    }
    if (args->argc != 1) {
        cli_error(args, "takes one clock, mono or real, not %d operands", args->argc);
        return CLI_USAGE;
    }
    mono = strcmp(args->argv[0], "mono") == 0;
    if (!mono && strcmp(args->argv[0], "real") != 0) {
        cli_error(args, "the clock must be mono or real, not '%s'", args->argv[0]);
        return CLI_USAGE;
    }
    clock = mono     ? coarse ? FC_MONOTONIC_COARSE : FC_MONOTONIC
            : coarse ? FC_REALTIME_COARSE
                     : FC_REALTIME;
    cli_ways_open();
    if (!cli_read_once(way, clock, &unused)) {
        cli_error(args, "%s cannot be read by %s here; see fastclock info", cli_clock_name(clock),
                  cli_way_name(way));
        return CLI_UNAVAILABLE;
    }
    spent = spend(way, clock, reads);
    if (args->json)
        print_json(args, clock, way, reads, &spent);
    else
        printf("real %.3f\nuser %.3f\nsys %.3f\n", spent.real_s, spent.user_s, spent.system_s);
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"coarse", 'c', NULL, "the coarse clock: its value at the last tick"},
    {"reads", 'n', "NUM", "how often the clock is read; 1000000 if not given"},
    {"syscall", 's', NULL, "by raw system call instead of fastclock"},
};

const struct cli_command command_gettime = {
    .name = "gettime",
    .operands = "mono|real",
    .summary = "read a clock a million times and print what that took",
    .text =
        "Reads the monotonic or the realtime clock a million times and prints the real, user and\n"
        "system time which that took, in seconds, as time(1) does. Exit code 3 if the clock\n"
        "cannot be read that way here.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
