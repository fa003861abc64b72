/* SPDX-License-Identifier: MIT
 *
 * The first user program of a guest in which the experiments are run: runs the commands of the file
 * /commands, one a line, and says on the console what each has printed as one line that begins with
 * a mark, and is JSON; see tests/kernels/qemu.py. A line is NAME VARIABLE=VALUE… PROGRAM ARGUMENT…;
 * a name that begins with & goes on in the background, and what it prints is not said.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK "\n@fastclock "
enum { WORDS_MAX = 32, RESULT_MAX = 1 << 16 };

static void say_all(const char *text) {
    for (size_t left = strlen(text); left;) {
        const ssize_t done = write(STDOUT_FILENO, text, left);
        if (done <= 0)
            return;
        text += done;
        left -= (size_t)done;
    }
}

static void first_line(const char *path, char *line, size_t size) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = file < 0 ? -1 : read(file, line, size - 1);
    if (file >= 0)
        close(file);
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
}

/* The kernel starts on a rough TSC, `tsc-early`, and goes on to the real one after a second. */
static void settle(char *name, size_t size) {
    enum { TRIES = 1000, STEP_US = 20000 };
    for (int i = 0; i < TRIES; i++) {
        first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", name, size);
        if (*name && strcmp(name, "tsc-early") != 0)
            return;
        usleep(STEP_US);
    }
}

/* Starts the words, of which the first ones may be variables, with this standard output. */
static pid_t start(char **words, int output) {
    const pid_t child = fork();
    if (child != 0)
        return child;
    dup2(output, STDOUT_FILENO);
    for (; *words && strchr(*words, '='); words++)
        putenv(*words);
    if (*words)
        execv(*words, words);
    _exit(127);
}

static void run_behind(char **words) {
    const int nowhere = open("/tmp/output", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    start(words, nowhere);
    close(nowhere);
    sleep(1); /* a server has to come up before it is asked; nothing is measured meanwhile */
}

/* Runs the words to their end; what they printed goes to `text`. */
static int run(char **words, char *text, size_t size) {
    int ends[2], status = -1;
    size_t length = 0;
    ssize_t got;
    pid_t child;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    child = start(words, ends[1]);
    close(ends[1]);
    while ((got = read(ends[0], text + length, size - 1 - length)) > 0)
        length += (size_t)got;
    close(ends[0]);
    text[length] = '\0';
    waitpid(child, &status, 0);
    return status;
}

/* What a program printed, as a value of JSON in one line: as it is if it is an object, else as a
 * string. */
static void make_value(const char *text, char *value, size_t size) {
    const int is_object = *text == '{';
    size_t length = 0;
    if (!is_object)
        value[length++] = '"';
    for (; *text && length < size - 8; text++) {
        const unsigned char c = (unsigned char)*text;
        if (is_object)
            value[length++] = (char)(c < ' ' ? ' ' : c);
        else if (c < ' ')
            length += (size_t)snprintf(value + length, 8, "\\u%04x", c);
        else {
            if (c == '"' || c == '\\')
                value[length++] = '\\';
            value[length++] = (char)c;
        }
    }
    if (!is_object)
        value[length++] = '"';
    value[length] = '\0';
}

static void run_line(char *line) {
    static char text[RESULT_MAX], value[2 * RESULT_MAX], said[2 * RESULT_MAX + 256];
    char *words[WORDS_MAX] = {NULL}, *word;
    int count = 0, status;
    while (count < WORDS_MAX - 1 && (word = strsep(&line, " \n")))
        if (*word)
            words[count++] = word;
    if (count < 2)
        return;
    if (words[0][0] == '&') {
        run_behind(words + 1);
        return;
    }
    status = run(words + 1, text, sizeof text);
    make_value(text, value, sizeof value);
    if (status == 0)
        snprintf(said, sizeof said, MARK "{\"check\": \"%s\", \"result\": %s}\n", words[0], value);
    else
        snprintf(said, sizeof said, MARK "{\"check\": \"%s\", \"failed\": %d}\n", words[0], status);
    say_all(said);
}

int main(void) {
    char clocksource[64] = "", said[256], line[1024];
    FILE *commands;
    mount("proc", "/proc", "proc", 0, NULL);
    mount("sysfs", "/sys", "sysfs", 0, NULL);
    mount("tmpfs", "/tmp", "tmpfs", 0, NULL);
    settle(clocksource, sizeof clocksource);
    snprintf(said, sizeof said, MARK "{\"clocksource\": \"%s\"}\n", clocksource);
    say_all(said);
    commands = fopen("/commands", "re");
    if (!commands)
        say_all(MARK "{\"error\": \"there is no /commands\"}\n");
    while (commands && fgets(line, sizeof line, commands))
        run_line(line);
    say_all(MARK "{\"done\": true}\n");
    usleep(200000); /* the console's buffer */
    reboot(RB_AUTOBOOT);
    return 1;
}
