/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the parser of the vDSO's image. An input is an image; what is found lies in it, and no
 * byte outside is touched, which the sanitizer watches.
 */
#include "../../core/vdso.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const wanted[] = {"__vdso_clock_gettime", "__vdso_clock_gettime64",
                                         "__kernel_clock_gettime", "__vdso_clock_getres", NULL};
    static const char *const absent[] = {"", "clock_gettime_that_nobody_has", NULL};
    unsigned char *image = malloc(size); /* of this size, so that its end is watched, and aligned */
    size_t found;
    REQUIRE(image || !size);
    if (size)
        memcpy(image, data, size);
    found = fc_elf_find(image, size, wanted);
    REQUIRE(found < size || found == 0);
    /* The same image gives the same answer, and what it does not have is not found in it. */
    REQUIRE(fc_elf_find(image, size, wanted) == found);
    found = fc_elf_find(image, size, absent);
    REQUIRE(found < size || found == 0);
    free(image);
    return 0;
}
