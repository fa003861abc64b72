/* SPDX-License-Identifier: MIT
 *
 * The library that early.c is linked with, for its constructor.
 */
#define _GNU_SOURCE
#include "early.h"

static struct early early;

__attribute__((constructor)) static void constructor(void) {
    early_read("library", environ, &early);
}

const struct early *early_library_reads(void) {
    return &early;
}
