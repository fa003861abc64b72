/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli.h"

#include <errno.h>
#include <fastclock.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Speaking ---------------------------------------------------------------------------------
 */

static bool progress_open; /* a line of progress stands on the terminal without its end */

static void progress_close(const char *end) {
    if (progress_open)
        fputs(end, stderr);
    progress_open = false;
}

void cli_progress(const char *format, ...) {
    const bool terminal = isatty(STDERR_FILENO);
    va_list arguments;
    progress_close("\r\033[K");
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is right before it */
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    if (terminal)
        fflush(stderr);
    else
        putc('\n', stderr);
    progress_open = terminal;
}

void cli_progress_end(void) {
    progress_close("\r\033[K");
    fflush(stderr);
}

void cli_error(const struct cli_args *args, const char *format, ...) {
    va_list arguments;
    progress_close("\n");
    fprintf(stderr, "fastclock %s: ", args->command->name);
    va_start(arguments, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is right before it */
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    putc('\n', stderr);
}

void cli_json_begin(const struct cli_args *args, struct json *j) {
    json_begin(j, stdout);
    json_string(j, "command", args->command->name);
    json_string(j, "version", fc_version());
}

/* ---- Arguments --------------------------------------------------------------------------------
 */

enum { OPTIONS_MAX = 16, ID_JSON = 1000, ID_HELP = 'h' };

static const struct cli_option common[] = {
    {"json", ID_JSON, NULL, "print the result as JSON"},
    {"help", ID_HELP, NULL, "print this text"},
};

enum { COMMON = sizeof common / sizeof *common };

static const struct cli_option *option_at(const struct cli_command *command, uint32_t i) {
    return i < command->option_count ? &command->options[i] : &common[i - command->option_count];
}

static void help(const struct cli_command *command) {
    printf("usage: fastclock %s [OPTION…]%s%s\n\n%s\n\n", command->name,
           *command->operands ? " " : "", command->operands, command->text);
    for (uint32_t i = 0; i < command->option_count + COMMON; i++) {
        const struct cli_option *o = option_at(command, i);
        char left[64];
        snprintf(left, sizeof left, "%c%c%s --%s%s%s", o->id < 256 ? '-' : ' ',
                 o->id < 256 ? o->id : ' ', o->id < 256 ? "," : " ", o->name,
                 o->argument ? " " : "", o->argument ? o->argument : "");
        printf("  %-24s %s\n", left, o->help);
    }
}

static void list_options(const struct cli_command *command) {
    fputs("  its options are", stderr);
    for (uint32_t i = 0; i < command->option_count + COMMON; i++)
        fprintf(stderr, "%s --%s", i ? "," : "", option_at(command, i)->name);
    fputs("\n", stderr);
}

int cli_next(struct cli_args *args, const char **value, int *code) {
    const struct cli_command *command = args->command;
    struct option longs[OPTIONS_MAX + 1];
    char shorts[3 + 2 * OPTIONS_MAX];
    uint32_t length = 0;
    int id;
    *value = NULL;
    *code = CLI_OK;
    memset(longs, 0, sizeof longs);
    if (command->operands_end_options)
        shorts[length++] = '+';
    shorts[length++] = ':';
    for (uint32_t i = 0; i < command->option_count + COMMON && i < OPTIONS_MAX; i++) {
        const struct cli_option *o = option_at(command, i);
        longs[i] =
            (struct option){o->name, o->argument ? required_argument : no_argument, NULL, o->id};
        if (o->id < 256) {
            shorts[length++] = (char)o->id;
            if (o->argument)
                shorts[length++] = ':';
        }
    }
    shorts[length] = '\0';
    opterr = 0;
    while ((id = getopt_long(args->argc, args->argv, shorts, longs, NULL)) == ID_JSON)
        args->json = true;
    if (id == ID_HELP) {
        help(command);
        return CLI_STOP;
    }
    if (id == -1) {
        args->argc -= optind;
        args->argv += optind;
        return CLI_END;
    }
    if (id == '?' || id == ':') {
        const char letter[3] = {'-', (char)optopt, '\0'};
        const bool is_letter = optopt > 0 && optopt < 256 && args->argv[optind - 1][1] != '-';
        cli_error(args, "%s '%s'", id == ':' ? "an argument is missing after" : "cannot take",
                  is_letter ? letter : args->argv[optind - 1]);
        list_options(command);
        *code = CLI_USAGE;
        return CLI_STOP;
    }
    *value = optarg;
    return id;
}

bool cli_number(const struct cli_args *args, const char *what, const char *text, uint64_t min,
                uint64_t max, uint64_t *number) {
    char *end;
    unsigned long long value;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || value < min || value > max) {
        cli_error(args, "%s must be a whole number from %" PRIu64 " to %" PRIu64 ", not '%s'", what,
                  min, max, text);
        return false;
    }
    *number = value;
    return true;
}
