/* SPDX-License-Identifier: MIT
 *
 * A publisher that is killed or stopped between any two of its stores, while a reader goes on.
 */
#define _GNU_SOURCE
#include "publisher.h"

/* The stores of one update, counted by doing one. */
static uint64_t stores_of_an_update(void) {
    static struct fc_timekeep page;
    struct fc_timekeep_discipline d;
    fc_timekeep_discipline_init(&d, FAST_INTERVAL_NS);
    fc_timekeep_page_create(&page, FAST_INTERVAL_NS);
    while (fc_timekeep_update(&d, &page, &fc_timekeep_machine, false) != FC_TIMEKEEP_SERVES)
        continue;
    failpoint.armed = true;
    fc_timekeep_update(&d, &page, &fc_timekeep_machine, false);
    failpoint.armed = false;
    return failpoint.passed;
}

/* A reader that was served by the host's page; the publisher has been killed since. */
static struct reader attached_reader(void) {
    const struct publisher p = {0};
    const pid_t pid = start_publisher(&p);
    struct reader reader = {0};
    wait_for_page();
    attach(&reader);
    read_until_page(&reader);
    MUST(kill(pid, SIGKILL));
    MUST(waitpid(pid, NULL, 0));
    return reader;
}

/* A page is off by some of a bracket, which on a quick machine is less than the time between two
 * readings: these are off by more, and by less than the proof lets pass. */
enum { OFF_NS = 20000 };

/* Each store of an update; of a page that is behind the kernel, then of one that is ahead. */
static void each_store(const void *argument) {
    const int signal = *(const int *)argument;
    const uint64_t stores = stores_of_an_update(), step = CHECK_SLOWER > 1 ? 7 : 1;
    struct reader reader;
    CHECK(stores > 40, "an update has %" PRIu64 " stores", stores);
    own_run("");
    reader = attached_reader();
    for (uint64_t turn = 0; turn < 2 * stores; turn += step) {
        const struct publisher p = {
            .at = turn / 2 + 1, .signal = signal, .off_ns = turn % 2 ? OFF_NS : -OFF_NS};
        const pid_t pid = start_publisher(&p);
        int status;
        /* It is not disturbed before it has been seen to serve. */
        while (__atomic_load_n(&reader.page->publisher, __ATOMIC_RELAXED) != (uint32_t)pid)
            read_and_check(&reader);
        read_until_page(&reader);
        MUST(kill(pid, SIGUSR1));
        while (waitpid(pid, &status, WNOHANG | WUNTRACED) == 0)
            read_and_check(&reader);
        if (signal == SIGSTOP) {
            CHECK(WIFSTOPPED(status), "status %#x instead of stopped", (unsigned)status);
            /* What follows the end of the timehands is the kernel's, then the page's again. */
            read_for(&reader, VALID_NS + FAST_INTERVAL_NS);
            MUST(kill(pid, SIGCONT));
            read_for(&reader, 3 * FAST_INTERVAL_NS);
            MUST(kill(pid, SIGKILL));
            MUST(waitpid(pid, &status, 0));
        } else {
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %#x",
                  (unsigned)status);
        }
        read_for(&reader, FAST_INTERVAL_NS);
    }
    CHECK(reader.from_kernel > 0, "no reading was from the kernel");
}

static void restarts(const void *argument) {
    const struct publisher p = {0};
    const uint64_t rounds = check_rounds(100);
    struct reader reader;
    (void)argument;
    own_run("");
    reader = attached_reader();
    for (uint64_t i = 0; i < rounds; i++) {
        const pid_t pid = start_publisher(&p);
        CHECK(wait_for_page() == reader.page, "the readers' page was replaced");
        read_until_page(&reader);
        read_for(&reader, i % 4 * FAST_INTERVAL_NS);
        MUST(kill(pid, i % 3 ? SIGKILL : SIGTERM));
        MUST(waitpid(pid, NULL, 0));
    }
}

static void dead(const void *argument) {
    struct reader reader;
    uint64_t from_page;
    (void)argument;
    own_run("");
    reader = attached_reader();
    read_for(&reader, VALID_NS + FAST_INTERVAL_NS);
    from_page = reader.from_page;
    read_for(&reader, FAST_INTERVAL_NS);
    CHECK(reader.from_page == from_page, "timehands hold after their time");
}

int main(int argc, char **argv) {
    static const int kills = SIGKILL, stops = SIGSTOP;
    check_begin(argc, argv);
    check_that("a publisher that is killed before any of its stores leaves readers right",
               each_store, &kills);
    check_that("a publisher that is stopped before any of its stores leaves readers right",
               each_store, &stops);
    check_that("readers go on with the same page through restarts", restarts, NULL);
    check_that("the page of a dead publisher is left when its time is over", dead, NULL);
    return check_end();
}
