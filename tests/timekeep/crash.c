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
    while (fc_timekeep_update(&d, &page, &fc_timekeep_machine, 0) != FC_TIMEKEEP_SERVES)
        continue;
    failpoint.armed = true;
    fc_timekeep_update(&d, &page, &fc_timekeep_machine, 0);
    failpoint.armed = false;
    return failpoint.passed;
}

/* A page that is there from now on, and whose publisher has been killed. */
static const struct fc_timekeep *make_page(void) {
    const struct publisher p = {0};
    const pid_t pid = start_publisher(&p);
    const struct fc_timekeep *page = wait_for_page(NULL);
    MUST(kill(pid, SIGKILL));
    MUST(waitpid(pid, NULL, 0));
    return page;
}

/* At every store, two publications long, so that the wrap of the ring is among them. */
static void each_store(const void *argument) {
    const int signal = *(const int *)argument;
    const uint64_t stores = stores_of_an_update(), step = CHECK_SLOWER > 1 ? 7 : 1;
    struct page_reader reader = {0};
    CHECK(stores > 40, "an update has %" PRIu64 " stores", stores);
    own_run("");
    reader.page = make_page();
    for (uint64_t at = 1; at <= stores; at += step) {
        const struct publisher p = {.at = at, .signal = signal};
        const pid_t pid = start_publisher(&p);
        int status;
        while (waitpid(pid, &status, WNOHANG | WUNTRACED) == 0)
            read_and_check(&reader);
        if (signal == SIGSTOP) {
            CHECK(WIFSTOPPED(status), "status %#x instead of stopped", (unsigned)status);
            /* The timehands that is in force ends within ten intervals; what follows is the
             * kernel's, then the page's again. */
            read_for(&reader, 12 * FAST_INTERVAL_NS);
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
    CHECK(reader.from_page > 1000, "only %" PRIu64 " readings were from the page",
          reader.from_page);
    CHECK(reader.from_kernel > 0, "no reading was from the kernel");
}

static void restarts(const void *argument) {
    const struct publisher p = {0};
    const uint64_t rounds = check_rounds(100);
    struct page_reader reader = {0};
    const struct fc_timekeep *first = NULL;
    (void)argument;
    own_run("");
    for (uint64_t i = 0; i < rounds; i++) {
        const pid_t pid = start_publisher(&p);
        reader.page = wait_for_page(NULL);
        if (!first)
            first = reader.page;
        CHECK(reader.page == first, "the readers' page was replaced");
        read_for(&reader, i % 4 * FAST_INTERVAL_NS);
        MUST(kill(pid, i % 3 ? SIGKILL : SIGTERM));
        MUST(waitpid(pid, NULL, 0));
    }
}

static void dead(const void *argument) {
    const struct publisher p = {0};
    struct page_reader reader = {0};
    pid_t pid;
    (void)argument;
    own_run("");
    pid = start_publisher(&p);
    reader.page = wait_for_page(NULL);
    read_for(&reader, 3 * FAST_INTERVAL_NS);
    MUST(kill(pid, SIGKILL));
    MUST(waitpid(pid, NULL, 0));
    read_for(&reader, 12 * FAST_INTERVAL_NS);
    reader.from_page = 0;
    read_for(&reader, FAST_INTERVAL_NS);
    CHECK(reader.from_page == 0, "timehands hold after their time");
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
