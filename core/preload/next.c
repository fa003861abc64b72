/* SPDX-License-Identifier: MIT
 *
 * The symbol tables of libraries that the dynamic linker has loaded are trusted as it trusts them:
 * their code runs anyway. (The vDSO's parser, which trusts nothing, reads an image as it is in a
 * file; here the parts of an image lie where they were loaded to.)
 */
#define _GNU_SOURCE
#include "next.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/auxv.h>

extern ElfW(Dyn) _DYNAMIC[] __attribute__((visibility("hidden")));

/* The list, by way of the program's dynamic section, where the dynamic linker leaves its address
 * for debuggers. NULL in a program without one. */
static const struct link_map *first_map(void) {
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    const size_t count = getauxval(AT_PHNUM);
    const ElfW(Dyn) *dynamic = NULL;
    uintptr_t base = 0;
    for (size_t i = 0; segments && i < count; i++)
        if (segments[i].p_type == PT_PHDR)
            base = (uintptr_t)segments - segments[i].p_vaddr;
    for (size_t i = 0; segments && i < count; i++)
        if (segments[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(base + segments[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
        if (dynamic->d_tag == DT_DEBUG && dynamic->d_un.d_ptr)
            return ((const struct r_debug *)dynamic->d_un.d_ptr)->r_map;
    return NULL;
}

struct tables {
    const ElfW(Sym) * symbols;
    const char *strings;
    const uint32_t *gnu_hash, *sysv_hash;
};

static struct tables tables_of(const struct link_map *map) {
    struct tables t = {NULL, NULL, NULL, NULL};
    for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
        /* Some dynamic linkers have added where the library lies, some have not. */
        const uintptr_t at =
            d->d_un.d_ptr >= map->l_addr ? d->d_un.d_ptr : map->l_addr + d->d_un.d_ptr;
        switch (d->d_tag) {
        case DT_SYMTAB: t.symbols = (const ElfW(Sym) *)at; break;
        case DT_STRTAB: t.strings = (const char *)at; break;
        case DT_GNU_HASH: t.gnu_hash = (const uint32_t *)at; break;
        case DT_HASH: t.sysv_hash = (const uint32_t *)at; break;
        default: break;
        }
    }
    return t;
}

static bool same(const char *a, const char *b) {
    while (*a && *a == *b) {
        a++;
        b++;
    }
    return *a == *b;
}

/* A function of that name which the library itself defines. An indirect one (STT_GNU_IFUNC) is the
 * C library's own way to its vDSO, and nobody's who wants to change the answer. */
static bool is_function(const struct tables *t, const ElfW(Sym) * symbol, const char *name) {
    return symbol->st_shndx != SHN_UNDEF && ELF32_ST_TYPE(symbol->st_info) == STT_FUNC &&
           same(t->strings + symbol->st_name, name);
}

static const ElfW(Sym) * find_by_gnu_hash(const struct tables *t, const char *name) {
    const uint32_t buckets = t->gnu_hash[0], first = t->gnu_hash[1], words = t->gnu_hash[2];
    const uint32_t *bucket = t->gnu_hash + 4 + words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    uint32_t hash = 5381, index;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    index = buckets ? bucket[hash % buckets] : 0;
    for (; index && index >= first; index++) {
        const uint32_t link = chain[index - first];
        if ((link | 1) == (hash | 1) && is_function(t, &t->symbols[index], name))
            return &t->symbols[index];
        if (link & 1)
            break;
    }
    return NULL;
}

static const ElfW(Sym) * find_by_sysv_hash(const struct tables *t, const char *name) {
    const uint32_t buckets = t->sysv_hash[0];
    const uint32_t *bucket = t->sysv_hash + 2, *chain = bucket + buckets;
    uint32_t hash = 0;
    for (const char *c = name; *c; c++) {
        hash = (hash << 4) + (unsigned char)*c;
        hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
    }
    for (uint32_t i = buckets ? bucket[hash % buckets] : 0; i; i = chain[i])
        if (is_function(t, &t->symbols[i], name))
            return &t->symbols[i];
    return NULL;
}

static uintptr_t find(const struct link_map *map, const char *name) {
    const struct tables t = tables_of(map);
    const ElfW(Sym) *symbol = NULL;
    if (!t.symbols || !t.strings)
        return 0;
    if (t.gnu_hash)
        symbol = find_by_gnu_hash(&t, name);
    else if (t.sysv_hash)
        symbol = find_by_sysv_hash(&t, name);
    return symbol ? map->l_addr + symbol->st_value : 0;
}

uintptr_t fc_next_function(const char *name) {
    const struct link_map *map = first_map();
    while (map && map->l_ld != _DYNAMIC)
        map = map->l_next;
    if (!map)
        return 0;
    for (map = map->l_next; map; map = map->l_next) {
        uintptr_t found;
        if (find(map, "__libc_start_main")) /* the C library: nobody came before it */
            return 0;
        found = find(map, name);
        if (found)
            return found;
    }
    return 0;
}
