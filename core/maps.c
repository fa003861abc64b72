/* SPDX-License-Identifier: MIT */
#include "maps.h"

#include <string.h>

/* Today's kernels put at most two pages between [vvar] and [vdso]. */
enum { GAP_MAX = 16 * 4096 };

/* Reads a hexadecimal number and the character that must follow it. */
static bool hexadecimal(const char **at, char then, uintptr_t *value) {
    const char *c = *at;
    uintptr_t v = 0;
    for (; *c != then; c++) {
        uintptr_t digit;
        if (*c >= '0' && *c <= '9')
            digit = (uintptr_t)(*c - '0');
        else if (*c >= 'a' && *c <= 'f')
            digit = (uintptr_t)(*c - 'a' + 10);
        else
            return false;
        if (v >> (sizeof v * 8 - 4))
            return false;
        v = v << 4 | digit;
    }
    if (c == *at)
        return false;
    *at = c + 1;
    *value = v;
    return true;
}

/* start-end perms offset device inode   [name] */
static void take_line(struct fc_maps *maps, const char *line) {
    const char *name = strchr(line, '[');
    struct fc_mapping m;
    struct fc_mapping *into;
    if (!name || memchr(line, '/', (size_t)(name - line)))
        return; /* a file may be called anything, but its path begins with a slash */
    if (strcmp(name, "[vvar]") == 0)
        into = &maps->vvar;
    else if (strcmp(name, "[vvar_vclock]") == 0)
        into = &maps->vclock;
    else if (strcmp(name, "[vdso]") == 0)
        into = &maps->vdso;
    else
        return;
    if (hexadecimal(&line, '-', &m.start) && hexadecimal(&line, ' ', &m.end) && m.start < m.end &&
        line[0] == 'r')
        *into = m;
}

void fc_maps_feed(struct fc_maps *maps, const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\n') {
            if (maps->length < sizeof maps->line) {
                maps->line[maps->length] = '\0';
                take_line(maps, maps->line);
            }
            maps->length = 0;
        } else {
            if (maps->length < sizeof maps->line)
                maps->line[maps->length] = text[i];
            if (maps->length <= sizeof maps->line)
                maps->length++;
        }
    }
}

bool fc_maps_vvar(const struct fc_maps *maps, uintptr_t vdso, struct fc_mapping *vvar) {
    if (!maps->vvar.end || !maps->vdso.end || maps->vdso.start != vdso)
        return false;
    if (maps->vvar.end > vdso || vdso - maps->vvar.end > GAP_MAX)
        return false;
    *vvar = maps->vvar;
    return true;
}

bool fc_maps_vclock(const struct fc_maps *maps, uintptr_t vdso, struct fc_mapping *vclock) {
    struct fc_mapping vvar;
    if (!fc_maps_vvar(maps, vdso, &vvar) || !maps->vclock.end)
        return false;
    if (maps->vclock.start < vvar.end || maps->vclock.end > vdso)
        return false;
    *vclock = maps->vclock;
    return true;
}
