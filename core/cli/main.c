/* SPDX-License-Identifier: MIT
 *
 * The command `fastclock`: finds the command that its first argument names, and runs it. Each
 * command is a file of its own.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fastclock.h>
#include <string.h>

#include "cli.h"

static const struct cli_command *const commands[] = {
    &command_info,  &command_gettime, &command_timing,  &command_getcpu,
    &command_check, &command_run,     &command_publish, NULL,
};

static void help(FILE *out) {
    fputs("usage: fastclock COMMAND [OPTION…]\n\n"
          "Reads the kernel's own time at the price of reading the CPU's counter; these commands "
          "show\n"
          "how that goes on this machine, and give it to programs that nobody will recompile.\n\n",
          out);
    for (uint32_t i = 0; commands[i]; i++)
        fprintf(out, "  %-10s%s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  --help    print this text; after a command, its options\n"
          "  --version print the version\n\n"
          "FASTCLOCK_SOURCE chooses the source of time: auto, kernel-page, timekeep, vdso, syscall "
          "or\n"
          "off. Exit codes: 0 all is well; 1 something is wrong; 2 an argument cannot be taken; 3 "
          "what\n"
          "was asked for cannot be had here.\n",
          out);
}

static int run(const struct cli_command *command, int argc, char **argv) {
    struct cli_args args = {command, argc, argv, false};
    const int code = command->run(&args);
    cli_progress_end();
    if (fflush(stdout) != 0 || ferror(stdout)) {
        cli_error(&args, "cannot write the result: %s", strerror(errno));
        return CLI_UNAVAILABLE;
    }
    return code;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return CLI_OK;
    }
    if (strcmp(name, "--version") == 0) {
        printf("fastclock %s\n", fc_version());
        return CLI_OK;
    }
    for (uint32_t i = 0; commands[i]; i++)
        if (strcmp(name, commands[i]->name) == 0)
            return run(commands[i], argc - 1, argv + 1);
    fprintf(stderr, "fastclock: '%s' is no command; they are", name);
    for (uint32_t i = 0; commands[i]; i++)
        fprintf(stderr, "%s %s", i ? "," : "", commands[i]->name);
    fputs("\n", stderr);
    return CLI_USAGE;
}
