/* SPDX-License-Identifier: MIT
 *
 * fastclock run: a program with libfastclock-preload.so before the C library.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "text.h"

#define LIBRARY "libfastclock-preload.so"

/* Where the installed library lies, seen from the directory of the command; set by CMake. */
#ifndef FASTCLOCK_PRELOAD_FROM_COMMAND
#define FASTCLOCK_PRELOAD_FROM_COMMAND "../lib/fastclock"
#endif

/* ---- Finding things ---------------------------------------------------------------------------
 */

/* The library beside the command, as in a build folder, or where both are installed. */
static bool find_library(char *path) {
    static const char *const places[] = {".", FASTCLOCK_PRELOAD_FROM_COMMAND};
    char self[PATH_MAX], candidate[2 * PATH_MAX], *slash;
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0)
        return false;
    self[length] = '\0';
    slash = strrchr(self, '/');
    if (!slash)
        return false;
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(candidate, sizeof candidate, "%s/%s/%s", self, places[i], LIBRARY);
        if (realpath(candidate, path))
            return true;
    }
    return false;
}

/* The file that execvp would run; an empty path if there is none. */
static void find_program(const char *name, char *path) {
    const char *search = getenv("PATH");
    *path = '\0';
    if (strchr(name, '/')) {
        snprintf(path, PATH_MAX, "%s", name);
        return;
    }
    for (const char *at = search ? search : "/bin:/usr/bin"; at;) {
        const size_t length = strcspn(at, ":");
        snprintf(path, PATH_MAX, "%.*s%s%s", (int)length, at, length ? "/" : "", name);
        if (access(path, X_OK) == 0)
            return;
        at = at[length] ? at + length + 1 : NULL;
    }
    *path = '\0';
}

/* ---- Whether it can be preloaded --------------------------------------------------------------
 */

#if UINTPTR_MAX > 0xffffffffu
typedef Elf64_Ehdr Header;
typedef Elf64_Phdr Segment;
enum { OUR_CLASS = ELFCLASS64, OUR_BITS = 64 };
#else
typedef Elf32_Ehdr Header;
typedef Elf32_Phdr Segment;
enum { OUR_CLASS = ELFCLASS32, OUR_BITS = 32 };
#endif

/* Why nothing can be preloaded into the program at `path`, or NULL. What is no ELF file, a script
 * for one, is left to its interpreter. */
static const char *obstacle(const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const char *found = NULL;
    struct stat status;
    Header header;
    if (file < 0)
        return NULL; /* execvp will tell */
    if (fstat(file, &status) == 0 && (status.st_mode & (S_ISUID | S_ISGID)))
        found = "it runs with raised privileges, for which nothing is preloaded";
    else if (read(file, &header, sizeof header) == (ssize_t)sizeof header &&
             memcmp(header.e_ident, ELFMAG, SELFMAG) == 0) {
        bool interpreted = false;
        if (header.e_ident[EI_CLASS] != OUR_CLASS) {
            found = OUR_BITS == 64 ? "it is no 64-bit program, and the library is"
                                   : "it is no 32-bit program, and the library is";
        } else {
            for (int i = 0; i < header.e_phnum; i++) {
                Segment segment;
                const off_t at = (off_t)(header.e_phoff + (size_t)i * sizeof segment);
                if (pread(file, &segment, sizeof segment, at) != (ssize_t)sizeof segment)
                    break;
                interpreted |= segment.p_type == PT_INTERP;
            }
            if (!interpreted)
                found = "it is linked statically, and nothing can be preloaded";
        }
    }
    close(file);
    return found;
}

/* ---- The command ------------------------------------------------------------------------------
 */

/* Behind what is preloaded already: a library that was put there to change the time, or a sanitizer
 * that has to come first, goes on to do so, and asks this one in turn. */
static bool append(const char *name, const char *value) {
    const char *old = getenv(name);
    char *all;
    if (!old || !*old)
        return setenv(name, value, 1) == 0;
    if (asprintf(&all, "%s:%s", old, value) < 0)
        return false;
    const bool done = setenv(name, all, 1) == 0;
    free(all);
    return done;
}

static void print_json(const struct cli_args *args, const char *path) {
    static const char *const names[] = {"LD_PRELOAD", "FASTCLOCK_SOURCE", "FASTCLOCK_RELAXED"};
    struct json j;
    cli_json_begin(args, &j);
    json_string(&j, "program", *path ? path : NULL);
    json_array(&j, "arguments");
    for (int i = 0; i < args->argc; i++)
        json_string(&j, NULL, args->argv[i]);
    json_array_end(&j);
    json_object(&j, "environment");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_string(&j, names[i], getenv(names[i]));
    json_object_end(&j);
    json_end(&j);
}

static int run(struct cli_args *args) {
    char library[PATH_MAX], program[PATH_MAX];
    const char *source = NULL, *value, *why;
    bool relaxed = false;
    int32_t number;
    int code, id;
    while ((id = cli_next(args, &value, &code)) != CLI_END) {
        switch (id) {
        case CLI_STOP: return code == CLI_USAGE ? CLI_RUN_FAILED : code;
        case 's':
            if (!fc_source_by_name(value, &number)) {
                cli_error(args,
                          "the source must be auto, kernel-page, timekeep, vdso, syscall or off, "
                          "not '%s'",
                          value);
                return CLI_RUN_FAILED;
            }
            source = value;
            break;
        default: relaxed = true;
        }
    }
    if (args->argc == 0) {
        cli_error(args, "the program to run is missing; usage: fastclock run [OPTION…] -- PROGRAM "
                        "[ARGUMENT…]");
        return CLI_RUN_FAILED;
    }
    if (!find_library(library)) {
        cli_error(args, "%s is neither beside this command nor in %s from there", LIBRARY,
                  FASTCLOCK_PRELOAD_FROM_COMMAND);
        return CLI_RUN_FAILED;
    }
    if (strpbrk(library, ": ")) {
        cli_error(args,
                  "the path '%s' holds a blank or a colon, which LD_PRELOAD takes for its end",
                  library);
        return CLI_RUN_FAILED;
    }
    find_program(args->argv[0], program);
    why = *program ? obstacle(program) : NULL;
    if (why) {
        cli_error(args, "'%s' cannot be run with the clocks replaced: %s", args->argv[0], why);
        return CLI_RUN_FAILED;
    }
    if (!append("LD_PRELOAD", library) || (source && setenv("FASTCLOCK_SOURCE", source, 1) < 0) ||
        (relaxed && setenv("FASTCLOCK_RELAXED", "1", 1) < 0)) {
        cli_error(args, "no memory");
        return CLI_RUN_FAILED;
    }
    if (args->json) {
        print_json(args, program);
        return CLI_OK;
    }
    execvp(args->argv[0], args->argv);
    code = errno;
    cli_error(args, "cannot run '%s': %s", args->argv[0], strerror(code));
    return code == ENOENT ? CLI_RUN_NOT_FOUND : CLI_RUN_CANNOT;
}

static const struct cli_option options[] = {
    {"source", 's', "SOURCE", "auto, kernel-page, timekeep, vdso, syscall or off"},
    {"relaxed", 'r', NULL, "no fence before the counter: half the cost, weaker order"},
};

const struct cli_command command_run = {
    .name = "run",
    .operands = "-- PROGRAM [ARGUMENT…]",
    .summary = "run a program with its clock calls answered by fastclock",
    .text =
        "Runs PROGRAM with libfastclock-preload.so, which answers clock_gettime, gettimeofday,\n"
        "time, timespec_get and clock_getres in place of the C library. With --json prints what\n"
        "would be run and with which environment, and runs nothing.\n"
        "Exit code: that of PROGRAM; 125 if it cannot be run with the clocks replaced, 126 if it\n"
        "cannot be run, 127 if it is not found.",
    .options = options,
    .option_count = sizeof options / sizeof *options,
    .operands_end_options = true,
    .run = run,
};
