/* SPDX-License-Identifier: MIT
 *
 * What the commands of `fastclock` share: how one is described, how its arguments are taken, how it
 * speaks. Results go to standard output; progress and errors to standard error.
 */
#ifndef FASTCLOCK_CLI_H
#define FASTCLOCK_CLI_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "json.h"

/* Exit codes. `run` has those of its program, and 125 to 127 as env(1) has them. */
enum {
    CLI_OK = 0,
    CLI_WRONG = 1,       /* it was looked at and is wrong */
    CLI_USAGE = 2,       /* an argument cannot be taken */
    CLI_UNAVAILABLE = 3, /* what was asked for cannot be had here */
    CLI_RUN_FAILED = 125,
    CLI_RUN_CANNOT = 126,
    CLI_RUN_NOT_FOUND = 127
};

struct cli_option {
    const char *name;     /* without the dashes */
    int id;               /* its letter, or a number above 255 where it has none */
    const char *argument; /* what --help calls its argument; NULL if it takes none */
    const char *help;
};

struct cli_args;

struct cli_command {
    const char *name;
    const char *operands; /* as --help shows them; "" for none */
    const char *summary;  /* half a line */
    const char *text;     /* what --help says below the usage line */
    const struct cli_option *options;
    uint32_t option_count;
    bool operands_end_options; /* whatever follows the first operand belongs to it */
    int (*run)(struct cli_args *args);
};

/* The arguments of one command. When cli_next has returned CLI_END, the operands are left. */
struct cli_args {
    const struct cli_command *command;
    int argc;
    char **argv;
    bool json;
};

/* What cli_next returns besides the id of an option. */
enum { CLI_END = 0, CLI_STOP = -1 };

/* Takes the next option; `value` becomes its argument or NULL. --json is noted in `args` and --help
 * is answered. CLI_STOP: the command ends now with *code, all has been said. */
int cli_next(struct cli_args *args, const char **value, int *code);

/* A whole number within bounds, or false after an error that names `what` and the bounds. */
bool cli_number(const struct cli_args *args, const char *what, const char *text, uint64_t min,
                uint64_t max, uint64_t *number);

/* "fastclock COMMAND: " and the message, as a line on standard error. */
__attribute__((format(printf, 2, 3))) void cli_error(const struct cli_args *args,
                                                     const char *format, ...);

/* A line of progress on standard error, in place of the last one on a terminal. */
__attribute__((format(printf, 1, 2))) void cli_progress(const char *format, ...);
void cli_progress_end(void);

/* Opens the document of --json with what every command has in it. */
void cli_json_begin(const struct cli_args *args, struct json *j);

extern const struct cli_command command_info, command_gettime, command_timing, command_getcpu,
    command_check, command_run, command_publish;

#endif
