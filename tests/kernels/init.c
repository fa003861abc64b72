/* SPDX-License-Identifier: MIT
 *
 * The first and only user program of a guest: mounts what the checks need, runs them one by one,
 * and says on the console what each has found, a line each, marked so that the kernel's own lines
 * do not matter. A check that does not end is killed and has failed. Then the machine is reset,
 * which ends the emulator.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MARK "@fastclock "
enum { CHECK_TIMEOUT_MS = 100000 };

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One write, so that the line stays whole. */
static void say(const char *format, ...) {
    char line[4096] = "\n" MARK;
    const size_t mark = strlen(line);
    va_list arguments;
    int length;
    va_start(arguments, format);
    length = vsnprintf(line + mark, sizeof line - mark - 1, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    strcat(line, "\n");
    for (size_t at = 0, size = strlen(line); at < size;) {
        const ssize_t done = write(STDOUT_FILENO, line + at, size - at);
        if (done <= 0)
            break;
        at += (size_t)done;
    }
}

static void mount_all(void) {
    static const char *const mounts[][2] = {
        {"/proc", "proc"}, {"/sys", "sysfs"}, {"/dev", "devtmpfs"}, {"/tmp", "tmpfs"}};
    for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
        mkdir(mounts[i][0], 0755);
        if (mount(mounts[i][1], mounts[i][0], mounts[i][1], 0, NULL) != 0 && errno != EBUSY)
            say("{\"error\": \"mount %s: %s\"}", mounts[i][0], strerror(errno));
    }
}

/* The value of a word NAME=VALUE of the kernel's command line. */
static bool option(const char *name, char *value, size_t size) {
    static char line[4096];
    const size_t length = strlen(name);
    const int fd = open("/proc/cmdline", O_RDONLY);
    char *rest = line, *word;
    ssize_t got = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    line[got > 0 ? got : 0] = '\0';
    while ((word = strsep(&rest, " \n"))) {
        if (strncmp(word, name, length) == 0 && word[length] == '=') {
            snprintf(value, size, "%s", word + length + 1);
            return true;
        }
    }
    return false;
}

static void first_line(const char *path, char *text, size_t size) {
    const int fd = open(path, O_RDONLY);
    const ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

/* The kernel starts on a rough TSC, `tsc-early`, and goes on to the real one after a second. */
static void settle(void) {
    enum { PATIENCE_MS = 15000, STEP_MS = 20 };
    char name[64] = "";
    for (int waited = 0; waited < PATIENCE_MS; waited += STEP_MS) {
        first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", name,
                   sizeof name);
        if (strcmp(name, "tsc-early") != 0)
            return;
        usleep(STEP_MS * 1000);
    }
}

static uint64_t now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_RAW, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* Runs a program and keeps what it prints. Returns its status, or -1 if it had to be killed. */
static int run(char *const *argv, char *text, size_t size) {
    const uint64_t start = now_ms();
    int ends[2], status = 0;
    size_t length = 0;
    pid_t child;
    bool killed = false;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    child = fork();
    if (child == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDOUT_FILENO);
        execv(argv[0], argv);
        _exit(127);
    }
    close(ends[1]);
    for (;;) {
        struct pollfd p = {.fd = ends[0], .events = POLLIN};
        ssize_t got;
        if (now_ms() - start > CHECK_TIMEOUT_MS) {
            kill(-child, SIGKILL);
            killed = true;
            break;
        }
        if (poll(&p, 1, 200) <= 0)
            continue;
        got = read(ends[0], text + length, size - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    return killed ? -1 : status;
}

static uint64_t good_in(const char *line) {
    const char *at = strstr(line, "\"good\": ");
    return at ? strtoull(at + strlen("\"good\": "), NULL, 10) : 0;
}

int main(void) {
    static char names[4096], line[3072];
    char program[] = "/checks", target[32] = "20000", total[32] = "0";
    char source[64], available[128];
    char *rest = names, *name;
    struct utsname uts;
    uint64_t good = 0, wanted;

    mount_all();
    option("fastclock_checks", names, sizeof names);
    option("fastclock_target", target, sizeof target);
    option("fastclock_total", total, sizeof total);
    wanted = strtoull(total, NULL, 10);
    uname(&uts);
    settle();
    first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
               sizeof source);
    first_line("/sys/devices/system/clocksource/clocksource0/available_clocksource", available,
               sizeof available);
    say("{\"kernel\": \"%s\", \"machine\": \"%s\", \"clocksource\": \"%s\", \"available\": \"%s\"}",
        uts.release, uts.machine, source, available);

    while ((name = strsep(&rest, ","))) {
        char enough[32];
        char *argv[] = {program, "--may-set-clock", "--target", target, name, NULL};
        const uint64_t start = now_ms();
        int status;
        if (!rest) { /* the last one makes the total full */
            const uint64_t missing = good < wanted ? wanted - good : 0;
            if (missing > strtoull(target, NULL, 10)) {
                snprintf(enough, sizeof enough, "%" PRIu64, missing);
                argv[3] = enough;
            }
        }
        say("{\"start\": \"%s\"}", name);
        status = run(argv, line, sizeof line);
        if (status == 0 && line[0] == '{') {
            line[strlen(line) - 1] = '\0';
            say("%s, \"ms\": %" PRIu64 "}", line, now_ms() - start);
            good += good_in(line);
        } else if (status == -1) {
            say("{\"check\": \"%s\", \"state\": \"fail\", \"note\": \"did not end in %d s\"}", name,
                CHECK_TIMEOUT_MS / 1000);
        } else {
            say("{\"check\": \"%s\", \"state\": \"fail\", \"note\": \"ended with status 0x%x\"}",
                name, (unsigned)status);
        }
    }
    say("{\"done\": true, \"good\": %" PRIu64 "}", good);
    usleep(200000); /* the console's buffer */
    sync();
    reboot(RB_AUTOBOOT);
    return 1;
}
