/* SPDX-License-Identifier: MIT
 *
 * What the fuzz targets share: what they require, and an input that is taken piece by piece.
 */
#ifndef FASTCLOCK_TESTS_FUZZ_INPUT_H
#define FASTCLOCK_TESTS_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *rest;
    size_t left;
};

/* Puts the next `size` bytes, or as many as are left, over what is at `to`. Returns how many. */
static inline size_t take(struct input *input, void *to, size_t size) {
    if (size > input->left)
        size = input->left;
    if (size)
        memcpy(to, input->rest, size);
    input->rest += size;
    input->left -= size;
    return size;
}

#endif
