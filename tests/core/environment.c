/* SPDX-License-Identifier: MIT
 *
 * FASTCLOCK_SOURCE: its names, what is none, and who must not follow it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "clocks.h"

static void every_name_is_followed(const void *argument) {
    const struct source *source = argument;
    struct fc_info info;
    use_source(source);
    info = info_now();
    CHECK(info.wanted == source->number && info.wanted_reason == FC_REASON_NONE, "wanted %d: %s",
          (int)info.wanted, fc_reason_text(info.wanted_reason));
}

static void auto_is_as_if_unset(const void *argument) {
    MUST(setenv("FASTCLOCK_SOURCE", argument, 1));
    CHECK(fc_init() == 0, "no source");
    CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE, "%s", fc_source_name(info_now().source));
    CHECK(info_now().wanted == FC_SOURCE_AUTO && info_now().wanted_reason == FC_REASON_NONE, "%s",
          fc_reason_text(info_now().wanted_reason));
}

static void unknown_name_is_refused(const void *argument) {
    MUST(setenv("FASTCLOCK_SOURCE", argument, 1));
    CHECK(fc_init() == 0, "no source");
    CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE, "the choice changed to %s",
          fc_source_name(info_now().source));
    CHECK(info_now().wanted == FC_SOURCE_AUTO, "wanted %d", (int)info_now().wanted);
    CHECK(info_now().wanted_reason == FC_REASON_UNKNOWN_NAME, "%s",
          fc_reason_text(info_now().wanted_reason));
}

/* ---- Set-user-id ------------------------------------------------------------------------------
 */

/* What the set-user-id copy of this program does. */
static int privileged(void) {
    struct fc_info info;
    if (!getauxval(AT_SECURE))
        return 3;
    if (fc_get_info(&info, sizeof info) != 0 || info.source != FC_SOURCE_KERNEL_PAGE ||
        info.wanted != FC_SOURCE_AUTO)
        return 4;
    return info.wanted_reason == FC_REASON_SECURE ? 0 : 5;
}

static void copy(const char *from, const char *to) {
    static char buffer[65536];
    int in, out;
    ssize_t size;
    MUST(in = open(from, O_RDONLY | O_CLOEXEC));
    MUST(out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700));
    while ((size = read(in, buffer, sizeof buffer)) > 0)
        CHECK(write(out, buffer, (size_t)size) == size, "%s", strerror(errno));
    MUST(size);
    MUST(fchmod(out, 04755));
    close(in);
    close(out);
}

/* The copy lies where any user can get at it, since the build directory may not. */
static void secure_ignores_the_environment(const void *argument) {
    enum { NOBODY = 65534 };
    char directory[] = "/tmp/fastclock-secure-XXXXXX", path[64];
    int status = -1;
    pid_t pid;
    (void)argument;
    if (geteuid() != 0)
        FAIL("this claim needs root");
    CHECK(mkdtemp(directory), "%s", strerror(errno));
    MUST(chmod(directory, 0755));
    snprintf(path, sizeof path, "%s/environment", directory);
    copy("/proc/self/exe", path);
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        char *const arguments[] = {path, "--privileged", NULL};
        char *const variables[] = {"FASTCLOCK_SOURCE=syscall", NULL};
        MUST(setgid(NOBODY));
        MUST(setuid(NOBODY));
        execve(path, arguments, variables);
        FAIL("execve: %s", strerror(errno));
    }
    waitpid(pid, &status, 0);
    unlink(path);
    rmdir(directory);
    CHECK(status == 0, "status %#x: %s", (unsigned)status,
          WIFEXITED(status) && WEXITSTATUS(status) == 3   ? "the copy has no raised privileges"
          : WIFEXITED(status) && WEXITSTATUS(status) == 4 ? "the environment was followed"
          : WIFEXITED(status) && WEXITSTATUS(status) == 5 ? "the reason is not FC_REASON_SECURE"
                                                          : "the copy failed");
}

int main(int argc, char **argv) {
    static const char *const unknown[] = {
        "tsc",     "Kernel-page", "kernel-page ", "kernel_page", "none", "libc",
        "unknown", "1",           "vdso,",        "syscalls",    " "};
    char sentence[160];
    if (argc > 1 && strcmp(argv[1], "--privileged") == 0)
        return privileged();
    check_begin(argc, argv);
    for (int s = 0; s < SOURCES; s++) {
        snprintf(sentence, sizeof sentence, "FASTCLOCK_SOURCE=%s is followed", sources[s].name);
        check_that(sentence, every_name_is_followed, &sources[s]);
    }
    check_that("FASTCLOCK_SOURCE=auto leaves the choice to the library", auto_is_as_if_unset,
               "auto");
    check_that("an empty FASTCLOCK_SOURCE is none", auto_is_as_if_unset, "");
    for (unsigned i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        snprintf(sentence, sizeof sentence,
                 "FASTCLOCK_SOURCE=\"%s\" is refused with a reason and changes nothing",
                 unknown[i]);
        check_that(sentence, unknown_name_is_refused, unknown[i]);
    }
    check_that("a set-user-id program ignores FASTCLOCK_SOURCE and says so",
               secure_ignores_the_environment, NULL);
    return check_end();
}
