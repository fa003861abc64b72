/* SPDX-License-Identifier: MIT
 *
 * By the library's own parser, whose tests are elsewhere: the program is linked statically and has
 * no dynamic linker to ask.
 */
#include "vdso_entry.h"

#include <sys/auxv.h>

#include "vdso.h"

struct time64 {
    int64_t sec, nsec;
};

static int (*entry)(int32_t clock, struct time64 *time);

bool vdso_entry_open(void) {
    static const char *const names[] = {
#if defined(__aarch64__)
        "__kernel_clock_gettime",
#elif UINTPTR_MAX > 0xffffffffu
        "__vdso_clock_gettime",
#else
        "__vdso_clock_gettime64",
#endif
        0
    };
    enum { IMAGE_SIZE = 4096 }; /* the tables are in its first page */
    const uintptr_t image = getauxval(AT_SYSINFO_EHDR);
    const size_t offset = image ? fc_elf_find((const unsigned char *)image, IMAGE_SIZE, names) : 0;
    entry = (int (*)(int32_t, struct time64 *))(image + offset);
    return offset != 0;
}

bool vdso_entry_ns(int32_t clock, uint64_t *ns) {
    struct time64 time;
    if (entry(clock, &time) != 0)
        return false;
    *ns = (uint64_t)time.sec * 1000000000u + (uint64_t)time.nsec;
    return true;
}
