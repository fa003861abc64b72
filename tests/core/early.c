/* SPDX-License-Identifier: MIT
 *
 * Reads before main are right: from the program's first code, from its constructors, and from those
 * of a library that it is linked with. Each is tried as the first read of its process.
 */
#define _GNU_SOURCE
#include "early.h"

static struct early from_preinit, from_constructor;

#ifndef CHECK_SANITIZER /* whose own start is not over there */

/* The C library passes main's arguments; its `environ` is not set yet. */
static void preinit(int count, char **arguments, char **variables) {
    (void)count;
    (void)arguments;
    early_read("preinit", variables, &from_preinit);
}

/* Run before any library's constructors, by C libraries that know of it. */
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(int, char **,
                                                                              char **) = preinit;

#endif

__attribute__((constructor(101))) static void constructor(void) {
    early_read("constructor", environ, &from_constructor);
}

/* In a process of its own that reads in this place first, and maybe nowhere else before main. */
static int report(const char *where) {
    const struct early *early = strcmp(where, "preinit") == 0       ? &from_preinit
                                : strcmp(where, "constructor") == 0 ? &from_constructor
                                                                    : early_library_reads();
    if (!early->tried)
        return CHECK_CANNOT;
    if (early->outside) {
        printf("    %u readings outside their brackets\n", early->outside);
        return CHECK_FAILED;
    }
    all_must_lie_in_brackets(100, true);
    CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE, "%s", fc_source_name(info_now().source));
    return 0;
}

static void read_before_main(const void *argument) {
    char *const arguments[] = {(char *)(uintptr_t)argument, NULL};
    const pid_t pid = fork();
    int status = -1;
    MUST(pid);
    if (pid == 0) {
        MUST(setenv("EARLY", argument, 1));
        execv("/proc/self/exe", arguments);
        FAIL("execv: %s", strerror(errno));
    }
    MUST(waitpid(pid, &status, 0));
    if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_CANNOT)
        CANNOT("this C library does not run code there, or the sanitizer's own start is not over");
    CHECK(status == 0, "status %#x", (unsigned)status);
}

int main(int argc, char **argv) {
    if (getenv("EARLY"))
        return report(getenv("EARLY"));
    check_begin(argc, argv);
    check_that("a read in the program's preinit_array is right", read_before_main, "preinit");
    check_that("a read in a library's constructor is right", read_before_main, "library");
    check_that("a read in a program's constructor is right", read_before_main, "constructor");
    return check_end();
}
