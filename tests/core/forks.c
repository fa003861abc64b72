/* SPDX-License-Identifier: MIT
 *
 * Children read as their parents do, whenever they were forked.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "clocks.h"

static void children_read_right(const void *argument) {
    use_source(argument);
    for (uint64_t i = 0; i < check_rounds(300); i++) {
        const pid_t pid = fork();
        MUST(pid);
        if (pid == 0) {
            all_must_lie_in_brackets(2, true);
            _exit(0);
        }
        MUST_EXIT_0(pid);
    }
}

static void descend(int generations) {
    all_must_lie_in_brackets(2, true);
    if (generations > 0) {
        const pid_t pid = fork();
        MUST(pid);
        if (pid == 0) {
            descend(generations - 1);
            _exit(0);
        }
        MUST_EXIT_0(pid);
    }
    all_must_lie_in_brackets(2, true);
}

static void descendants_read_right(const void *argument) {
    use_source(argument);
    descend(30);
}

/* vfork shares memory with the parent until the child is gone. */
static void child_of_vfork_reads_right(const void *argument) {
    volatile uint64_t before = fc_monotonic_ns(), inside = 0;
    (void)argument;
#ifdef __SANITIZE_THREAD__
    CANNOT(CHECK_SANITIZER " makes fork of vfork");
#endif
    for (int i = 0; i < 100; i++) {
        const pid_t pid = vfork();
        if (pid == 0) {
            inside = fc_monotonic_ns();
            _exit(0);
        }
        MUST(pid);
        MUST_EXIT_0(pid);
        CHECK(before <= inside && inside <= fc_monotonic_ns(), "%" PRIu64 " after %" PRIu64, inside,
              before);
        before = inside;
    }
}

/* ---- Fork amid the first read -----------------------------------------------------------------
 */

static atomic_int ready;

static void *first_read(void *argument) {
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < 2)
        continue;
    all_must_lie_in_brackets(1, true);
    return argument;
}

static void fork_amid_first_read(void) {
    pthread_t thread;
    pid_t pid;
    CHECK(pthread_create(&thread, NULL, first_read, NULL) == 0, "no thread");
    while (atomic_load(&ready) < 1)
        continue;
    atomic_fetch_add(&ready, 1);
    pid = fork();
    MUST(pid);
    if (pid == 0) {
        all_must_lie_in_brackets(1, true);
        CHECK(info_now().source == FC_SOURCE_KERNEL_PAGE, "%s", fc_source_name(info_now().source));
        _exit(0);
    }
    MUST_EXIT_0(pid);
    pthread_join(thread, NULL);
}

static void fork_amid_first_reads(const void *argument) {
    (void)argument;
    for (uint64_t i = 0; i < check_rounds(500); i++) {
        const pid_t pid = fork(); /* for each time a process that has read nothing */
        MUST(pid);
        if (pid == 0) {
            fork_amid_first_read();
            _exit(0);
        }
        MUST_EXIT_0(pid);
    }
}

/* ---- Fork amid reads of many threads ----------------------------------------------------------
 */

static atomic_bool stop;

static void *read_on(void *argument) {
    while (!atomic_load(&stop))
        all_must_lie_in_brackets(10, true);
    return argument;
}

static void fork_amid_reads(const void *argument) {
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    use_source(argument);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, read_on, NULL) == 0, "thread %d", i);
    for (uint64_t i = 0; i < check_rounds(200); i++) {
        const pid_t pid = fork();
        MUST(pid);
        if (pid == 0) {
            all_must_lie_in_brackets(2, true);
            _exit(0);
        }
        MUST_EXIT_0(pid);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    char sentence[128];
    check_begin(argc, argv);
    for (int s = 0; s < SOURCES; s++) {
        snprintf(sentence, sizeof sentence, "%s: hundreds of children read right", sources[s].name);
        check_that(sentence, children_read_right, &sources[s]);
        snprintf(sentence, sizeof sentence, "%s: thirty generations read right", sources[s].name);
        check_that(sentence, descendants_read_right, &sources[s]);
        snprintf(sentence, sizeof sentence,
                 "%s: children that were forked amid other threads' reads read right",
                 sources[s].name);
        check_that(sentence, fork_amid_reads, &sources[s]);
    }
    check_that("a child of vfork reads right", child_of_vfork_reads_right, NULL);
    check_that("a child that was forked amid another thread's first read reads right",
               fork_amid_first_reads, NULL);
    return check_end();
}
