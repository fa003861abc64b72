/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "report.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct report *report;

void report_begin(void) {
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
}

static void words(bool replace, const char *format, va_list arguments) {
    size_t used = replace ? 0 : strlen(report->note);
    if (used && used + 2 < sizeof report->note) {
        memcpy(report->note + used, "; ", 3);
        used += 2;
    }
    vsnprintf(report->note + used, sizeof report->note - used, format, arguments);
}

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!atomic_exchange(&report->failed, 1))
        words(true, format, arguments);
    va_end(arguments);
}

bool expect(bool held, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!held && !atomic_exchange(&report->failed, 1))
        words(true, format, arguments);
    va_end(arguments);
    return held;
}

void impossible(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report->impossible = 1;
    if (!report->failed)
        words(false, format, arguments);
    va_end(arguments);
}

void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (!report->failed)
        words(false, format, arguments);
    va_end(arguments);
}

void note_kernels(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    report->kernels = 1;
    if (!report->failed)
        words(false, format, arguments);
    va_end(arguments);
}

static void print_quoted(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < ' ')
            printf("\\u%04x", (unsigned)*text);
        else
            putchar(*text);
    }
    putchar('"');
}

void report_end(const char *check) {
    const char *state = report->failed       ? "fail"
                        : report->impossible ? "impossible"
                        : report->kernels    ? "kernel"
                                             : "pass";
    printf("{\"check\": \"%s\", \"state\": \"%s\", \"brackets\": %" PRIu64 ", \"good\": %" PRIu64
           ", \"void\": %" PRIu64 ", \"outside\": %" PRIu64 ", \"control_outside\": %" PRIu64
           ", \"back\": %" PRIu64 ", \"control_back\": %" PRIu64 ", \"note\": ",
           check, state, report->brackets, report->good, report->voided, report->outside,
           report->control_outside, report->back, report->control_back);
    print_quoted(report->note);
    printf("}\n");
    fflush(stdout);
}
