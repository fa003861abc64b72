/* SPDX-License-Identifier: MIT
 *
 * Claims about the preloaded library in a program that runs with raised privileges. The dynamic
 * linker preloads nothing there; this program is linked with the library, so that it is there all
 * the same, and looks at what is executed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fastclock.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "../core/check.h"
#include "../core/step.h"

static const char *self;

/* What the child under test reports by its exit code. */
enum { BY_VDSO = 10, BY_ITSELF = 11, NEITHER = 12 };

static int who_answers(void) {
    struct step_seen seen;
    struct timespec ts;
    Dl_info info;
    if (!dladdr(dlsym(RTLD_DEFAULT, "clock_gettime"), &info) || !strstr(info.dli_fname, "preload"))
        return NEITHER;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    step_begin();
    clock_gettime(CLOCK_MONOTONIC, &ts);
    seen = step_end();
    if (seen.system_calls)
        return NEITHER;
    return seen.in_vdso ? BY_VDSO : BY_ITSELF;
}

/* Runs a copy of this program as nobody, with these mode bits and FASTCLOCK_SOURCE. */
static int run_copy(mode_t mode, const char *source) {
    const uid_t nobody = 65534;
    char copy[] = "/var/tmp/fastclock-secure-XXXXXX";
    const int from = open(self, O_RDONLY | O_CLOEXEC), to = mkostemp(copy, O_CLOEXEC);
    char buffer[65536];
    ssize_t size;
    int status = -1;
    pid_t child;
    MUST(from);
    MUST(to);
    while ((size = read(from, buffer, sizeof buffer)) > 0)
        MUST(write(to, buffer, (size_t)size));
    MUST(fchmod(to, mode));
    close(to);
    close(from);
    child = fork();
    MUST(child);
    if (child == 0) {
        if (source)
            setenv("FASTCLOCK_SOURCE", source, 1);
        MUST(setgid(nobody));
        MUST(setuid(nobody));
        execl(copy, copy, "--answer", (char *)NULL);
        _exit(99);
    }
    MUST(waitpid(child, &status, 0));
    unlink(copy);
    CHECK(WIFEXITED(status), "status %#x", (unsigned)status);
    return WEXITSTATUS(status);
}

static void not_in_a_set_uid_program(const void *unused) {
    const int answer = run_copy(04755, NULL);
    (void)unused;
    CHECK(answer == BY_VDSO, "it is %d", answer);
}

static void not_even_if_the_environment_asks(const void *unused) {
    const int answer = run_copy(04755, "kernel-page");
    (void)unused;
    CHECK(answer == BY_VDSO, "it is %d", answer);
}

static void but_in_any_other(const void *unused) {
    const int answer = run_copy(0755, NULL);
    (void)unused;
    CHECK(answer == BY_ITSELF, "it is %d", answer);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--answer") == 0)
        return who_answers();
    self = "/proc/self/exe";
    check_begin(argc, argv);
    check_that("a program without raised privileges has its clocks replaced", but_in_any_other,
               NULL);
    check_that("a set-user-id program is left to the vDSO", not_in_a_set_uid_program, NULL);
    check_that("a set-user-id program is left to the vDSO whatever FASTCLOCK_SOURCE says",
               not_even_if_the_environment_asks, NULL);
    return check_end();
}
