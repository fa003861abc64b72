/* SPDX-License-Identifier: MIT
 *
 * dlopen and dlclose, again and again, with reads between: nothing is left behind.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>

#include "../bracket.h"
#include "check.h"

/* This program is not linked with the library: its headers are all it has. */
#include <fastclock.h>

#ifdef __SANITIZE_THREAD__
/* The loader's own lock is not seen by the sanitizer: what it frees when it unloads seems to be
 * used by another thread that loads. The library has no code that runs when it is unloaded. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void) {
    return "race:_dl_close_worker\n";
}
#endif

static void *load(void) {
    void *library = dlopen(FASTCLOCK_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    CHECK(library, "%s", dlerror());
    return library;
}

static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);
    CHECK(symbol, "%s", dlerror());
    return symbol;
}

static void must_read(void *library, uint64_t rounds) {
    struct bracket b;
    struct bracket_setup setup = {.clock = FC_MONOTONIC};
    memset(&b, 0, sizeof b);
    *(void **)&setup.read = find(library, "fc_monotonic_ns");
    bracket_run(&b, &setup, rounds);
    CHECK(b.ours.outside == 0 && b.ours.errors == 0, "%" PRIu64 " outside, %" PRIu64 " errors",
          b.ours.outside, b.ours.errors);
}

static int mapped_lines(const char *containing) {
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps, "%s", strerror(errno));
    while (fgets(line, sizeof line, maps))
        count += strstr(line, containing) != NULL;
    fclose(maps);
    return count;
}

static void load_and_unload(const void *argument) {
    (void)argument;
    CHECK(mapped_lines("libfastclock") == 0, "it is loaded before it is asked for");
    for (uint64_t i = 0; i < check_rounds(500); i++) {
        void *library = load();
        must_read(library, 10);
        CHECK(mapped_lines("libfastclock") > 0, "it is not loaded");
        CHECK(dlclose(library) == 0, "%s", dlerror());
#if defined(__GLIBC__) && !defined(CHECK_SANITIZER) /* elsewhere dlclose leaves what it wants to   \
                                                     */
        CHECK(mapped_lines("libfastclock") == 0, "round %" PRIu64 ": it is still there", i);
#endif
    }
}

static void *load_in_thread(void *argument) {
    for (uint64_t i = 0; i < check_rounds(100); i++) {
        void *library = load();
        must_read(library, 10);
        CHECK(dlclose(library) == 0, "%s", dlerror());
    }
    return argument;
}

static void load_in_threads(const void *argument) {
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    (void)argument;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, load_in_thread, NULL) == 0, "thread %d", i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    check_begin(argc, argv);
    check_that("the library can be loaded, read and unloaded hundreds of times", load_and_unload,
               NULL);
    check_that("threads may load, read and unload it at once", load_in_threads, NULL);
    return check_end();
}
