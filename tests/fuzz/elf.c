/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the parser of the vDSO's image. An input is an image; what is found lies in it, and no
 * byte outside is touched, which the sanitizer watches.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../core/vdso.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const wanted[] = {"__vdso_clock_gettime", "__vdso_clock_gettime64",
                                         "__kernel_clock_gettime", "__vdso_clock_getres", NULL};
    static const char *const absent[] = {"", "clock_gettime_that_nobody_has", NULL};
    unsigned char *image = malloc(size); /* of this size, so that its end is watched, and aligned */
    size_t found;
    if (!image && size)
        abort();
    if (size)
        memcpy(image, data, size);
    found = fc_elf_find(image, size, wanted);
    if (found >= size && found != 0) {
        fprintf(stderr, "found at %zu of %zu\n", found, size);
        abort();
    }
    /* The same image gives the same answer, and what it does not have is not found in it. */
    if (fc_elf_find(image, size, wanted) != found)
        abort();
    found = fc_elf_find(image, size, absent);
    if (found >= size && found != 0)
        abort();
    free(image);
    return 0;
}
