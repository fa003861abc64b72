/* SPDX-License-Identifier: MIT
 *
 * fastclock publish: the host's timekeep page, kept up to date until told to stop.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fastclock.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "timekeep_host.h"
#include "vdso.h"

enum { OPTION_STATUS = 1001, OPTION_ON, OPTION_OFF };

struct wish {
    const char *directory;
    uint64_t interval_ms, seconds;
    int what; /* one of OPTION_, or 0 to publish */
};

static void complain(const struct cli_args *args, const char *directory, const char *wrong,
                     int error) {
    cli_error(args, "%s: %s%s%s", directory, wrong, error ? ": " : "",
              error ? strerror(error) : "");
}

/* ---- Looking and switching --------------------------------------------------------------------
 */

static uint64_t now_ns(int32_t clock) {
    struct fc_reading reading = {0, 0};
    if (!fc_vdso_gettime(clock, &reading))
        fc_sys_gettime(clock, &reading);
    return fc_reading_count(reading);
}

/* How far a counter is ahead of or behind the one that the page goes by, as its table has it. */
static double largest_skew_ns(const struct fc_timekeep *page) {
    const struct fc_timekeep_block *block = &page->hands[page->current % FC_TIMEKEEP_HANDS].fine;
    int64_t largest = 0;
    for (uint32_t i = 0; i < page->cpus && i < FC_TIMEKEEP_CPUS; i++) {
        const int64_t skew = page->skew[i];
        if (skew != FC_TIMEKEEP_SKEW_UNKNOWN && (skew < 0 ? -skew : skew) > largest)
            largest = skew < 0 ? -skew : skew;
    }
    return (double)largest * block->mult / (double)((uint64_t)1 << (block->shift & 63));
}

static int status(const struct cli_args *args, const struct wish *wish) {
    const uint64_t patience_ns = 1000000000;
    int32_t reason, hands;
    struct fc_reading reading;
    const struct fc_timekeep *page = fc_timekeep_map(wish->directory, FC_TIMEKEEP_NAME, &reason);
    struct fc_info told;
    uint64_t age;
    bool alive, serves;
    if (!page) {
        complain(args, wish->directory, "no page is published there, or it is not to be trusted",
                 0);
        return CLI_UNAVAILABLE;
    }
    fc_timekeep_page_tell(page, &told);
    age = now_ns(FC_BOOTTIME) - page->heartbeat_ns;
    alive = (int64_t)age < (int64_t)patience_ns;
    serves = fc_timekeep_page_read(page, FC_MONOTONIC, true, &reading, &hands) == FC_REASON_NONE;
    if (args->json) {
        struct json j;
        cli_json_begin(args, &j);
        json_string(&j, "directory", wish->directory);
        json_bool(&j, "serves", serves);
        json_bool(&j, "alive", alive);
        json_bool(&j, "enabled", page->enabled != 0);
        json_bool(&j, "in_service", told.timekeep_in_service != 0);
        json_uint(&j, "publisher", page->publisher);
        json_uint(&j, "updates", page->heartbeat);
        json_uint(&j, "interval_ns", told.timekeep_interval_ns);
        json_uint(&j, "worst_error_ns", told.timekeep_error_ns);
        json_uint(&j, "steps", told.timekeep_steps);
        json_uint(&j, "outages", told.timekeep_outages);
        json_uint(&j, "dropped", page->dropped);
        json_bool(&j, "processors_differ", page->cpus != 0);
        json_double(&j, "largest_skew_ns", largest_skew_ns(page), 0);
        json_end(&j);
    } else {
        printf("%s/%s %s: published by process %" PRIu32 "%s, %s, %s\n", wish->directory,
               FC_TIMEKEEP_NAME, serves ? "serves" : "does not serve", page->publisher,
               alive ? "" : ", which does not answer",
               page->enabled ? "switched on" : "switched off",
               told.timekeep_in_service ? "in service" : "out of service");
        printf("%" PRIu64 " updates, one every %.3f ms; furthest from the kernel %" PRIu64
               " ns; %" PRIu64 " steps of the realtime clock, %" PRIu64 " outages, %" PRIu64
               " samples dropped\n",
               page->heartbeat, (double)told.timekeep_interval_ns / 1e6, told.timekeep_error_ns,
               told.timekeep_steps, told.timekeep_outages, page->dropped);
        if (page->cpus)
            printf("the counters of the processors differ, by up to %.0f ns, or not all could be "
                   "measured; reads correct that, and are calls\n",
                   largest_skew_ns(page));
        else
            printf("the counters of the processors agree\n");
    }
    return serves ? CLI_OK : CLI_WRONG;
}

static int flip(const struct cli_args *args, const struct wish *wish) {
    const char *wrong;
    int error;
    struct fc_timekeep *page = fc_timekeep_host_switch(wish->directory, &wrong, &error);
    if (!page) {
        complain(args, wish->directory, wrong, error);
        return CLI_UNAVAILABLE;
    }
    fc_timekeep_page_note32(&page->wanted, wish->what == OPTION_ON);
    munmap(page, FC_TIMEKEEP_SIZE);
    return CLI_OK;
}

/* ---- Publishing -------------------------------------------------------------------------------
 */

static volatile sig_atomic_t told_to_stop;

static void stop(int signal) {
    (void)signal;
    told_to_stop = 1;
}

static void listen_for_stop(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = stop; /* without SA_RESTART: the sleep ends */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* What was used of a processor, of the time since `began_ns`, in percent. */
static double processor_percent(uint64_t began_ns) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return 100.0 * ((double)used.tv_sec * 1e9 + (double)used.tv_nsec) /
           (double)(now_ns(FC_MONOTONIC) - began_ns);
}

static void report(const struct cli_args *args, const struct wish *wish,
                   const struct fc_timekeep_host *host, uint64_t updates, uint64_t began_ns) {
    const struct fc_timekeep_discipline *d = &host->discipline;
    if (args->json) {
        struct json j;
        cli_json_begin(args, &j);
        json_string(&j, "directory", wish->directory);
        json_bool(&j, "taken_over", host->taken_over);
        json_uint(&j, "updates", updates);
        json_uint(&j, "worst_error_ns", (uint64_t)d->worst_error_ns);
        json_uint(&j, "steps", d->steps);
        json_uint(&j, "outages", d->outages);
        json_string(&j, "last_outage", d->outage);
        json_uint(&j, "dropped", d->dropped);
        json_double(&j, "processor_percent", processor_percent(began_ns), 3);
        json_end(&j);
        return;
    }
    printf("stopped after %" PRIu64 " updates; furthest from the kernel %.0f ns; %" PRIu64
           " steps of the realtime clock, %" PRIu64 " outages%s%s%s, %" PRIu64
           " samples dropped; %.3f %% of a processor\n",
           updates, d->worst_error_ns, d->steps, d->outages, d->outage ? " (the last one: " : "",
           d->outage ? d->outage : "", d->outage ? ")" : "", d->dropped,
           processor_percent(began_ns));
}

static void sleep_until(uint64_t ns) {
    const struct timespec at = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

/* What has been said of the page. */
struct told {
    bool serves, ever;
};

/* Tells of changes as they come, so that a journal has them with their time. */
static void tell(const struct cli_args *args, const struct wish *wish,
                 const struct fc_timekeep_host *host, struct told *told) {
    const bool serves = host->page->in_service != 0;
    const char *how = told->ever         ? "again"
                      : host->taken_over ? "taken over from a former publisher"
                                         : "newly made";
    if (serves == told->serves)
        return;
    told->serves = serves;
    told->ever = true;
    if (args->json)
        return;
    if (serves)
        printf("%s/%s is in service, %s\n", wish->directory, FC_TIMEKEEP_NAME, how);
    else
        printf("out of service: %s\n", host->discipline.outage);
    fflush(stdout);
}

static int serve(const struct cli_args *args, const struct wish *wish,
                 struct fc_timekeep_host *host) {
    const uint64_t began_ns = now_ns(FC_MONOTONIC);
    const struct fc_timekeep_discipline *d = &host->discipline;
    uint64_t now = began_ns, next = began_ns, updates = 0;
    struct told told = {false, false};
    while (!told_to_stop && (!wish->seconds || now - began_ns < wish->seconds * 1000000000u)) {
        switch (fc_timekeep_host_update(host)) {
        case FC_TIMEKEEP_FAILS: cli_error(args, "%s", d->outage); return CLI_UNAVAILABLE;
        case FC_TIMEKEEP_SERVES:
            if (!fc_timekeep_host_show(host)) {
                complain(args, wish->directory, "the page cannot be given its name", errno);
                return CLI_UNAVAILABLE;
            }
            break;
        case FC_TIMEKEEP_PROVES: break;
        }
        updates++;
        tell(args, wish, host, &told);
        /* On a grid, so that a late update does not make the next one late too. */
        next += d->next_ns;
        now = now_ns(FC_MONOTONIC);
        if (next < now)
            next = now + d->next_ns;
        sleep_until(next);
    }
    report(args, wish, host, updates, began_ns);
    return d->proved || updates == 0 ? CLI_OK : CLI_WRONG;
}

/* An update that comes late lets the readers ask the kernel. No matter if the wish is refused. */
static void be_punctual(void) {
    const struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
}

static int publish(const struct cli_args *args, const struct wish *wish) {
    static struct fc_timekeep_host host;
    const char *wrong;
    int error, code;
    if (fc_sys_counter_allowed() != 1) {
        cli_error(args, "%s", fc_reason_text(FC_REASON_COUNTER_DISABLED));
        return CLI_UNAVAILABLE;
    }
    fc_vdso_open(); /* for narrower samples, where it does not need the system call */
    wrong = fc_timekeep_host_open(&host, wish->directory, wish->interval_ms * 1000000, &error);
    if (wrong) {
        complain(args, wish->directory, wrong, error);
        return CLI_UNAVAILABLE;
    }
    listen_for_stop();
    be_punctual();
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
    mlockall(MCL_CURRENT); /* a page fault would widen a sample; no matter if it is refused */
    code = serve(args, wish, &host);
    fc_timekeep_host_close(&host);
    return code;
}

static int run(struct cli_args *args) {
    struct wish wish = {FC_TIMEKEEP_DIRECTORY, FC_TIMEKEEP_INTERVAL_NS / 1000000, 0, 0};
    const char *value;
    int code, id;
    while ((id = cli_next(args, &value, &code)) != CLI_END) {
        switch (id) {
        case CLI_STOP: return code;
        case 'd': wish.directory = value; break;
        case 'i':
            if (!cli_number(args, "the interval in milliseconds", value, 1, 100, &wish.interval_ms))
                return CLI_USAGE;
            break;
        case 's':
            if (!cli_number(args, "the number of seconds", value, 1, 1000000000, &wish.seconds))
                return CLI_USAGE;
            break;
        default:
            if (wish.what) {
                cli_error(args, "--status, --on and --off exclude each other");
                return CLI_USAGE;
            }
            wish.what = id;
        }
    }
    if (args->argc != 0) {
        cli_error(args, "'%s' is not expected; it takes options alone", args->argv[0]);
        return CLI_USAGE;
    }
    switch (wish.what) {
    case 0: return publish(args, &wish);
    case OPTION_STATUS: return status(args, &wish);
    default: return flip(args, &wish);
    }
}

static const struct cli_option options[] = {
    {"directory", 'd', "DIRECTORY", "where the page is; readers look in " FC_TIMEKEEP_DIRECTORY},
    {"interval", 'i', "MS", "milliseconds between two updates at most, 1 to 100; 10 if not given"},
    {"seconds", 's', "N", "stop after N seconds"},
    {"status", OPTION_STATUS, NULL, "say how the published page is, and end"},
    {"off", OPTION_OFF, NULL, "let every reader take the kernel's word from now on, and end"},
    {"on", OPTION_ON, NULL, "let them read the page again, and end"},
};

const struct cli_command command_publish = {
    .name = "publish",
    .operands = "",
    .summary = "publish the host's timekeep page, for kernels that distrust the counter",
    .text =
        "Follows the kernel's clocks and publishes what programs with FASTCLOCK_SOURCE=timekeep\n"
        "read, until told to stop by SIGTERM, SIGINT or SIGHUP. Needs root. Meant for hosts\n"
        "whose kernel does not let programs read the counter; whoever uses it trusts the\n"
        "counter where the kernel may not. With --status the exit code is 0 if the page\n"
        "serves, 1 if it does not, 3 if there is none.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .run = run,
};
