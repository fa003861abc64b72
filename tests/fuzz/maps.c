/* SPDX-License-Identifier: MIT
 *
 * Fuzzes the parser of /proc/self/maps. An input is a byte, which says into what pieces the text is
 * cut, and the text. However it is cut, the same is found; and what is found is in order.
 */
#include "../../core/maps.h"
#include "input.h"

static struct fc_maps feed(const uint8_t *text, size_t size, size_t piece) {
    struct fc_maps maps;
    memset(&maps, 0, sizeof maps);
    for (size_t at = 0; at < size; at += piece) {
        /* A copy of this size, so that its end is watched. */
        const size_t now = size - at < piece ? size - at : piece;
        char *copy = malloc(now);
        REQUIRE(copy);
        memcpy(copy, text + at, now);
        fc_maps_feed(&maps, copy, now);
        free(copy);
    }
    return maps;
}

static bool same(struct fc_mapping a, struct fc_mapping b) {
    return a.start == b.start && a.end == b.end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct fc_mapping vvar, vclock;
    struct fc_maps pieces, whole;
    if (size < 2)
        return 0;
    pieces = feed(data + 1, size - 1, (size_t)data[0] + 1);
    whole = feed(data + 1, size - 1, size - 1);
    REQUIRE(same(pieces.vvar, whole.vvar) && same(pieces.vdso, whole.vdso) &&
            same(pieces.vclock, whole.vclock));
    if (fc_maps_vvar(&whole, whole.vdso.start, &vvar)) {
        REQUIRE(vvar.start < vvar.end && vvar.end <= whole.vdso.start);
        if (fc_maps_vclock(&whole, whole.vdso.start, &vclock))
            REQUIRE(vclock.start < vclock.end && vvar.end <= vclock.start &&
                    vclock.end <= whole.vdso.start);
    }
    REQUIRE(!fc_maps_vvar(&whole, whole.vdso.start + 4096, &vvar));
    return 0;
}
