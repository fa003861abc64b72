/* SPDX-License-Identifier: MIT */
#include "vdso.h"

#include <string.h>

#ifdef __linux__

#include <elf.h>
#include <fastclock.h>
#include <link.h>
#include <stdatomic.h>
#include <sys/auxv.h>

#include "prove.h"

/* ---- The parser -------------------------------------------------------------------------------
 */

typedef ElfW(Ehdr) Header;
typedef ElfW(Phdr) Segment;
typedef ElfW(Dyn) Dynamic;
typedef ElfW(Sym) Symbol;

struct image {
    const unsigned char *start;
    size_t size;
};

/* `count` records of `record` bytes at `offset`; NULL unless all of them lie in the image, aligned.
 */
static const void *records(const struct image *image, size_t offset, size_t count, size_t record,
                           size_t alignment) {
    if (offset > image->size || count > (image->size - offset) / record)
        return NULL;
    if (((uintptr_t)image->start + offset) % alignment)
        return NULL;
    return image->start + offset;
}

/* The string at `offset` of the string table, if it ends within the image. */
static bool string_is(const struct image *image, size_t table, size_t offset, const char *name) {
    const size_t length = strlen(name) + 1;
    if (table > image->size || offset > image->size - table)
        return false;
    if (length > image->size - table - offset)
        return false;
    return memcmp(image->start + table + offset, name, length) == 0;
}

struct tables {
    size_t strings, symbols, sysv_hash, gnu_hash; /* offsets; 0: absent */
};

/* Addresses in the dynamic section are those the image was linked for: `linked` is where it begins.
 */
static bool find_tables(const struct image *image, struct tables *tables) {
    const Header *header = records(image, 0, 1, sizeof *header, _Alignof(Header));
    const Segment *segments;
    const Dynamic *dynamic = NULL;
    size_t dynamic_count = 0, linked = 0;
    bool loaded = false;
    if (!header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_phentsize != sizeof(Segment))
        return false;
    segments =
        records(image, header->e_phoff, header->e_phnum, sizeof *segments, _Alignof(Segment));
    if (!segments)
        return false;
    for (size_t i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD && !loaded) {
            linked = segments[i].p_vaddr - segments[i].p_offset;
            loaded = true;
        } else if (segments[i].p_type == PT_DYNAMIC) {
            dynamic_count = segments[i].p_memsz / sizeof *dynamic;
            dynamic = records(image, segments[i].p_offset, dynamic_count, sizeof *dynamic,
                              _Alignof(Dynamic));
        }
    }
    if (!loaded || !dynamic)
        return false;
    memset(tables, 0, sizeof *tables);
    for (size_t i = 0; i < dynamic_count && dynamic[i].d_tag != DT_NULL; i++) {
        const size_t offset = dynamic[i].d_un.d_ptr - linked;
        switch (dynamic[i].d_tag) {
        case DT_STRTAB: tables->strings = offset; break;
        case DT_SYMTAB: tables->symbols = offset; break;
        case DT_HASH: tables->sysv_hash = offset; break;
        case DT_GNU_HASH: tables->gnu_hash = offset; break;
        default: break;
        }
    }
    return tables->strings && tables->symbols && (tables->sysv_hash || tables->gnu_hash);
}

/* The offset in the image of symbol `index` if it is the function `name`; 0 otherwise. */
static size_t symbol_offset(const struct image *image, const struct tables *tables, size_t index,
                            const char *name) {
    const Symbol *symbols =
        records(image, tables->symbols, index + 1, sizeof *symbols, _Alignof(Symbol));
    const Symbol *symbol;
    const Header *header = (const Header *)(const void *)image->start;
    const Segment *segments = (const Segment *)(const void *)(image->start + header->e_phoff);
    if (!symbols)
        return 0;
    symbol = &symbols[index];
    if (ELF32_ST_TYPE(symbol->st_info) != STT_FUNC && ELF32_ST_TYPE(symbol->st_info) != STT_NOTYPE)
        return 0;
    if (symbol->st_shndx == SHN_UNDEF || !string_is(image, tables->strings, symbol->st_name, name))
        return 0;
    for (size_t i = 0; i < header->e_phnum; i++) {
        const Segment *s = &segments[i];
        if (s->p_type == PT_LOAD && symbol->st_value - s->p_vaddr < s->p_memsz &&
            symbol->st_value - s->p_vaddr + s->p_offset < image->size)
            return symbol->st_value - s->p_vaddr + s->p_offset;
    }
    return 0;
}

static uint32_t sysv_hash(const char *name) {
    uint32_t h = 0;
    for (; *name; name++) {
        h = (h << 4) + (unsigned char)*name;
        h = (h ^ (h >> 24 & 0xf0)) & 0x0fffffff;
    }
    return h;
}

/* System V ABI: {nbucket, nchain, bucket[nbucket], chain[nchain]}. A chain that comes back upon
 * itself is cut after nchain steps. */
static size_t find_by_sysv_hash(const struct image *image, const struct tables *tables,
                                const char *name) {
    const uint32_t *head = records(image, tables->sysv_hash, 2, sizeof *head, sizeof *head);
    const uint32_t *buckets, *chain;
    if (!head || head[0] == 0)
        return 0;
    buckets = records(image, tables->sysv_hash + 8, head[0], sizeof *buckets, sizeof *buckets);
    if (!buckets)
        return 0;
    chain = records(image, tables->sysv_hash + 8 + (size_t)head[0] * 4, head[1], sizeof *chain,
                    sizeof *chain);
    if (!chain)
        return 0;
    uint32_t index = buckets[sysv_hash(name) % head[0]];
    for (uint32_t steps = 0; index != 0 && index < head[1] && steps < head[1]; steps++) {
        const size_t offset = symbol_offset(image, tables, index, name);
        if (offset)
            return offset;
        index = chain[index];
    }
    return 0;
}

static uint32_t gnu_hash(const char *name) {
    uint32_t h = 5381;
    for (; *name; name++)
        h = h * 33 + (unsigned char)*name;
    return h;
}

/* GNU: {nbucket, first symbol, bloom words, bloom shift, bloom[], bucket[], chain[]}; a chain's
 * last element has bit 0 set. The bloom filter only saves time and is passed over. */
static size_t find_by_gnu_hash(const struct image *image, const struct tables *tables,
                               const char *name) {
    const uint32_t *head = records(image, tables->gnu_hash, 4, sizeof *head, sizeof *head);
    const uint32_t *buckets;
    const uint32_t hash = gnu_hash(name);
    size_t at;
    if (!head || head[0] == 0 || head[2] > image->size)
        return 0;
    at = tables->gnu_hash + 16 + (size_t)head[2] * sizeof(ElfW(Addr));
    buckets = records(image, at, head[0], sizeof *buckets, sizeof *buckets);
    if (!buckets)
        return 0;
    at += (size_t)head[0] * 4;
    for (uint32_t index = buckets[hash % head[0]]; index >= head[1] && index != 0; index++) {
        const uint32_t *link =
            records(image, at, (size_t)(index - head[1]) + 1, sizeof *link, sizeof *link);
        if (!link)
            return 0;
        link += index - head[1];
        if ((*link | 1) == (hash | 1)) {
            const size_t offset = symbol_offset(image, tables, index, name);
            if (offset)
                return offset;
        }
        if (*link & 1)
            break;
    }
    return 0;
}

size_t fc_elf_find(const unsigned char *start, size_t size, const char *const *names) {
    const struct image image = {start, size};
    struct tables tables;
    if (!find_tables(&image, &tables))
        return 0;
    for (; *names; names++) {
        size_t offset = 0;
        if (tables.gnu_hash)
            offset = find_by_gnu_hash(&image, &tables, *names);
        if (!offset && tables.sysv_hash)
            offset = find_by_sysv_hash(&image, &tables, *names);
        if (offset)
            return offset;
    }
    return 0;
}

/* ---- The source -------------------------------------------------------------------------------
 */

/* The kernel's timespec with 64-bit members, which is the native one on 64-bit machines. */
struct time64 {
    int64_t sec;
    int64_t nsec;
};

typedef int time_function(int32_t clock, struct time64 *out);

/* Names differ by architecture. PowerPC's follow a calling convention of their own: not ours. */
#if defined(__powerpc__)
static const char *const gettime_names[] = {NULL};
static const char *const getres_names[] = {NULL};
#elif UINTPTR_MAX > 0xffffffffu
static const char *const gettime_names[] = {"__vdso_clock_gettime", "__kernel_clock_gettime", NULL};
static const char *const getres_names[] = {"__vdso_clock_getres", "__kernel_clock_getres", NULL};
#else
static const char *const gettime_names[] = {"__vdso_clock_gettime64", NULL};
static const char *const getres_names[] = {NULL}; /* the 32-bit vDSO has the narrow one only */
#endif

static _Atomic(time_function *) gettime, getres;

/* How far the image says that it reaches, from its first page; 0 if that is no such image. A
 * process may have unmapped the vDSO, or moved it, without telling the auxiliary vector. */
static size_t image_size(const unsigned char *image) {
    const struct image first_page = {image, getauxval(AT_PAGESZ)};
    const Header *header = (const Header *)(const void *)image;
    const Segment *segments;
    size_t size = 0;
    if (!fc_sys_readable(image) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return 0;
    segments =
        records(&first_page, header->e_phoff, header->e_phnum, sizeof *segments, _Alignof(Segment));
    if (!segments)
        return 0;
    for (size_t i = 0; i < header->e_phnum; i++) {
        const size_t end = segments[i].p_offset + segments[i].p_memsz;
        if (segments[i].p_type == PT_LOAD && end > size)
            size = end;
    }
    return size;
}

static bool ask(time_function *function, int32_t clock, struct fc_reading *out) {
    struct time64 time;
    if (!function || function(clock, &time) != 0)
        return false;
    out->sec = (uint64_t)time.sec;
    out->ns = (uint64_t)time.nsec;
    return true;
}

static int32_t proof_read(const void *source, uint32_t clock, struct fc_reading *out) {
    return ask(*(time_function *const *)source, (int32_t)clock, out) ? FC_REASON_NONE
                                                                     : FC_REASON_NO_SYMBOL;
}

int32_t fc_vdso_open(void) {
    enum { ROUNDS = 4 };
    const uintptr_t address = getauxval(AT_SYSINFO_EHDR);
    const unsigned char *image = (const unsigned char *)address;
    time_function *found;
    size_t size, offset;
    int32_t reason;
    if (!address)
        return FC_REASON_NO_VDSO;
    size = image_size(image);
    if (!size)
        return FC_REASON_NO_VDSO;
    offset = fc_elf_find(image, size, gettime_names);
    if (!offset)
        return FC_REASON_NO_SYMBOL;
    found = (time_function *)(address + offset);
    reason = fc_prove(proof_read, &found, fc_fine_clocks, FC_FINE_COUNT, ROUNDS);
    if (reason == FC_REASON_NONE)
        reason = fc_prove(proof_read, &found, fc_coarse_clocks, FC_COARSE_COUNT, ROUNDS);
    if (reason != FC_REASON_NONE)
        return reason;
    atomic_store_explicit(&gettime, found, memory_order_release);
    offset = fc_elf_find(image, size, getres_names);
    if (offset)
        atomic_store_explicit(&getres, (time_function *)(address + offset), memory_order_release);
    return FC_REASON_NONE;
}

uintptr_t fc_vdso_function(const char *const *names) {
    const uintptr_t address = getauxval(AT_SYSINFO_EHDR);
    const unsigned char *image = (const unsigned char *)address;
    const size_t offset = address ? fc_elf_find(image, image_size(image), names) : 0;
    return offset ? address + offset : 0;
}

void fc_vdso_close(void) {
    atomic_store_explicit(&gettime, NULL, memory_order_relaxed);
    atomic_store_explicit(&getres, NULL, memory_order_relaxed);
}

bool fc_vdso_gettime(int32_t clock, struct fc_reading *out) {
    return ask(atomic_load_explicit(&gettime, memory_order_acquire), clock, out);
}

bool fc_vdso_getres(int32_t clock, struct fc_reading *out) {
    return ask(atomic_load_explicit(&getres, memory_order_acquire), clock, out);
}

#else

#include <fastclock.h>

uintptr_t fc_vdso_function(const char *const *names) {
    (void)names;
    return 0;
}

size_t fc_elf_find(const unsigned char *image, size_t size, const char *const *names) {
    (void)image;
    (void)size;
    (void)names;
    return 0;
}

int32_t fc_vdso_open(void) {
    return FC_REASON_NOT_LINUX;
}

void fc_vdso_close(void) {
}

bool fc_vdso_gettime(int32_t clock, struct fc_reading *out) {
    (void)clock;
    (void)out;
    return false;
}

bool fc_vdso_getres(int32_t clock, struct fc_reading *out) {
    (void)clock;
    (void)out;
    return false;
}

#endif
