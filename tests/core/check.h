/* SPDX-License-Identifier: MIT
 *
 * What the C tests are written with. A program is a list of claims; each claim is a sentence and a
 * function that fails if the sentence is not true.
 *
 * Every claim runs in a child process of its own, with a deadline: a claim may kill itself, forbid
 * itself system calls, change its namespace or hang, and the next one starts fresh, before the
 * first read of a clock. That, and being built with -m32, with musl and statically for guests where
 * no test library is packaged, is why this is no library.
 *
 *     int main(int argc, char **argv) {
 *         check_begin(argc, argv);
 *         check_that("two and two make four", sum, NULL);
 *         return check_end();
 *     }
 *
 * An argument restricts the run to claims whose sentence contains it.
 */
#ifndef FASTCLOCK_TESTS_CHECK_H
#define FASTCLOCK_TESTS_CHECK_H

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define CHECK_SANITIZER "the address sanitizer"
#elif defined(__SANITIZE_THREAD__)
#define CHECK_SANITIZER "the thread sanitizer"
#endif

#ifdef CHECK_SANITIZER
enum { CHECK_SLOWER = 20, CHECK_DEADLINE_S = 120 };
#else
enum { CHECK_SLOWER = 1, CHECK_DEADLINE_S = 60 };
#endif

enum { CHECK_FAILED = 1, CHECK_CANNOT = 77 };

static struct {
    const char *only;
    int failed, passed, cannot;
} check_state_;

/* Ends the claim in its child: 0, CHECK_FAILED or CHECK_CANNOT. `expression`: what did not hold. */
__attribute__((noreturn, format(printf, 5, 6))) static inline void
check_end_claim_(int status, const char *file, int line, const char *expression, const char *format,
                 ...) {
    enum { SIZE = 1024 };
    char text[SIZE + 1];
    va_list arguments;
    int length =
        snprintf(text, SIZE, "    %s:%d:%s%s", file, line, expression, *expression ? ": " : "");
    if (length < SIZE) {
        va_start(arguments, format);
        length += vsnprintf(text + length, (size_t)(SIZE - length), format, arguments);
        va_end(arguments);
    }
    if (length > SIZE - 1)
        length = SIZE - 1;
    text[length++] = '\n';
    if (write(STDOUT_FILENO, text, (size_t)length) < 0)
        status = CHECK_FAILED;
    _exit(status);
}

/* Fails the claim, with a sentence that holds the values. */
#define FAIL(...) check_end_claim_(CHECK_FAILED, __FILE__, __LINE__, "", " " __VA_ARGS__)

/* Fails the claim unless the condition holds, with the values in a sentence if one is given. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_end_claim_(CHECK_FAILED, __FILE__, __LINE__, #condition, " " __VA_ARGS__);       \
    } while (0)

/* A step that has to work for the claim to be tried at all. */
#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) < 0)                                                                            \
            check_end_claim_(CHECK_FAILED, __FILE__, __LINE__, #call, " %s", strerror(errno));     \
    } while (0)

/* The claim cannot be tried in this build or on this machine, for a reason that is printed and
 * counted. Not for want of privileges: the tests run as root. */
#define CANNOT(...) check_end_claim_(CHECK_CANNOT, __FILE__, __LINE__, "", " " __VA_ARGS__)

/* FASTCLOCK_TEST_PERCENT: fewer repetitions on machines that are emulated, or more for a long run.
 */
static inline uint64_t check_percent_(void) {
    const char *percent = getenv("FASTCLOCK_TEST_PERCENT");
    return percent ? strtoull(percent, NULL, 10) : 100;
}

/* How often a claim repeats something: `rounds`, fewer under a sanitizer, and as the environment
 * says. */
static inline uint64_t check_rounds(uint64_t rounds) {
    rounds = rounds / CHECK_SLOWER * check_percent_() / 100;
    return rounds ? rounds : 1;
}

/* More repetitions have more time; fewer are no reason for less. */
static inline time_t check_deadline_s_(void) {
    return (time_t)(CHECK_DEADLINE_S * (check_percent_() > 100 ? check_percent_() : 100) / 100);
}

static inline void check_begin(int argc, char **argv) {
    sigset_t child;
    check_state_.only = argc > 1 ? argv[1] : NULL;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
}

static inline void check_run_child_(void (*claim)(const void *), const void *argument) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    setpgid(0, 0);
    sigprocmask(SIG_UNBLOCK, &child, NULL);
    claim(argument);
    fflush(stdout);
    _exit(0);
}

/* Runs one claim and prints what became of it. */
static inline void check_that(const char *sentence, void (*claim)(const void *),
                              const void *argument) {
    struct timespec deadline = {check_deadline_s_(), 0};
    sigset_t child;
    pid_t pid;
    int status = 0;

    if (check_state_.only && !strstr(sentence, check_state_.only))
        return;
    pid = fork();
    if (pid < 0) {
        perror("fork");
        exit(2);
    }
    if (pid == 0)
        check_run_child_(claim, argument);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (sigtimedwait(&child, NULL, &deadline) < 0 && errno == EAGAIN) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            printf("    no end within %ld s\n", (long)check_deadline_s_());
            break;
        }
    }
    kill(-pid, SIGKILL); /* whatever the claim left behind */
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        check_state_.passed++;
        printf("ok      %s\n", sentence);
    } else if (WIFEXITED(status) && WEXITSTATUS(status) == CHECK_CANNOT) {
        check_state_.cannot++;
        printf("cannot  %s\n", sentence);
    } else {
        check_state_.failed++;
        if (WIFSIGNALED(status))
            printf("    ended by signal %d\n", WTERMSIG(status));
        printf("FAILED  %s\n", sentence);
    }
}

/* The exit code of the program. */
static inline int check_end(void) {
    printf("%d passed, %d failed, %d could not be tried\n", check_state_.passed,
           check_state_.failed, check_state_.cannot);
    if (check_state_.passed + check_state_.failed + check_state_.cannot == 0) {
        printf("no claim contains \"%s\"\n", check_state_.only ? check_state_.only : "");
        return 2;
    }
    return check_state_.failed ? 1 : 0;
}

/* Waits for a child that the claim made, and fails the claim unless it exited with 0. */
#define MUST_EXIT_0(pid)                                                                           \
    do {                                                                                           \
        int status_ = -1;                                                                          \
        MUST(waitpid(pid, &status_, 0));                                                           \
        CHECK(status_ == 0, "the child's status is %#x", (unsigned)status_);                       \
    } while (0)

#endif /* FASTCLOCK_TESTS_CHECK_H */
