/* SPDX-License-Identifier: MIT
 *
 * By the library's own parser, whose tests are elsewhere: the program is linked statically and has
 * no dynamic linker to ask.
 */
#include "vdso_entry.h"

#include <link.h>
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
    const uintptr_t image = getauxval(AT_SYSINFO_EHDR);
    const ElfW(Ehdr) *header = (const ElfW(Ehdr) *)image;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(image + (image ? header->e_phoff : 0));
    size_t size = 0, offset;
    for (int i = 0; image && i < header->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_offset + segments[i].p_memsz > size)
            size = segments[i].p_offset + segments[i].p_memsz;
    offset = image ? fc_elf_find((const unsigned char *)image, size, names) : 0;
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
