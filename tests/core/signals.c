/* SPDX-License-Identifier: MIT
 *
 * Reads in a signal handler, ten thousand times a second, amid reads, first reads and changes of
 * the source: each is right, and the interrupted one too.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "clocks.h"

static atomic_int handled;
static bool judge_in_handler;

static void handle(int number) {
    const int saved = errno, before_errno = errno = 4711 + number;
    for (int i = 0; i < CLOCK_READS; i++) {
        const struct clock_read *c = &clock_reads[i];
        uint64_t before = 0, ns, after = 0;
        if (!judge_in_handler) {
            CHECK(c->read() != FC_NO_TIME, "%s tells no time", c->name);
            continue;
        }
        if (bracket_syscall_ns(c->clock, &before) != 0)
            FAIL("the system call was refused");
        ns = c->read();
        if (bracket_syscall_ns(c->clock, &after) != 0)
            FAIL("the system call was refused");
        if (after >= before)
            CHECK(ns + (c->kind == RELAXED ? BRACKET_RELAXED_EARLY_NS : 0) >= before && ns <= after,
                  "%s in the handler: %" PRIu64 ", not %" PRIu64 " to %" PRIu64, c->name, ns,
                  before, after);
    }
    CHECK(errno == before_errno, "errno became %d", errno);
    errno = saved;
    atomic_fetch_add(&handled, 1);
}

static void storm(bool judge) {
    const struct itimerval ten_kilohertz = {{0, 100}, {0, 100}};
    struct sigaction action;
    judge_in_handler = judge;
    memset(&action, 0, sizeof action);
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    MUST(sigaction(SIGALRM, &action, NULL));
    MUST(setitimer(ITIMER_REAL, &ten_kilohertz, NULL));
}

static void calm(void) {
    const struct itimerval never = {{0, 0}, {0, 0}};
    MUST(setitimer(ITIMER_REAL, &never, NULL));
}

static int handled_enough(void) {
    return (uint64_t)atomic_load(&handled) >= check_rounds(5000);
}

static void reads_are_right_in_a_storm(const void *argument) {
    use_source(argument);
    storm(true);
    while (!handled_enough())
        all_must_lie_in_brackets(100, true);
    calm();
}

/* The storm is on before anything was chosen; the handler may be the one who chooses. */
static void first_read_is_right_in_a_storm(const void *argument) {
    (void)argument;
    for (uint64_t i = 0; i < check_rounds(200); i++) {
        const pid_t pid = fork();
        MUST(pid);
        if (pid == 0) {
            storm(true);
            while (!atomic_load(&handled))
                all_must_lie_in_brackets(1, true);
            calm();
            CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE, "%s",
                  fc_source_name(info_now().source));
            _exit(0);
        }
        MUST_EXIT_0(pid);
    }
}

static void select_is_right_in_a_storm(const void *argument) {
    (void)argument;
    storm(true);
    for (int i = 0; !handled_enough(); i++) {
        const struct source *source = &sources[i % SOURCES];
        CHECK(fc_select(source->number) == 0, "%s: %s", source->name,
              fc_reason_text(info_now().reason[source->number]));
        CHECK(info_now().source == source->number, "%s, not %s", fc_source_name(info_now().source),
              source->name);
        all_must_lie_in_brackets(2, true);
    }
    calm();
}

/* Other threads are interrupted as well, and change the source under each other. */
static void *change_sources(void *argument) {
    (void)argument;
    for (int i = 0; !handled_enough(); i++)
        CHECK(fc_select(sources[i % SOURCES].number) == 0, "%s: %s", sources[i % SOURCES].name,
              fc_reason_text(info_now().reason[sources[i % SOURCES].number]));
    return NULL;
}

static void reads_are_right_while_others_select(const void *argument) {
    pthread_t threads[2];
    (void)argument;
    storm(true);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, change_sources, NULL) == 0, "thread %d", i);
    while (!handled_enough())
        all_must_lie_in_brackets(10, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    calm();
}

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    for (int s = 0; s < SOURCES; s++) {
        snprintf(sentence, sizeof sentence,
                 "%s: in a storm of signals, reads in the handler and outside are right",
                 sources[s].name);
        check_that(sentence, reads_are_right_in_a_storm, &sources[s]);
    }
    check_that("the first read is right in a storm of signals that read",
               first_read_is_right_in_a_storm, NULL);
    check_that("a handler that interrupts fc_select reads right", select_is_right_in_a_storm, NULL);
    check_that("reads are right while two threads change the source in a storm of signals",
               reads_are_right_while_others_select, NULL);
    return check_end();
}
