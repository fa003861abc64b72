/* SPDX-License-Identifier: MIT */
#include "prove.h"

#include <fastclock.h>

const uint8_t fc_fine_clocks[FC_FINE_COUNT] = {FC_REALTIME, FC_MONOTONIC, FC_RAW, FC_BOOTTIME,
                                               FC_TAI};
const uint8_t fc_coarse_clocks[FC_COARSE_COUNT] = {FC_REALTIME_COARSE, FC_MONOTONIC_COARSE};

/* A bracket is void if its own ends went back, since the clock was set in between, or if they are
 * so far apart that lying between them says nothing. */
enum { BRACKET_MAX_NS = 100000000 };

static int32_t prove_clock(fc_proof_read *read, const void *source, uint32_t clock, uint32_t rounds,
                           uint64_t tolerance_ns) {
    uint32_t good = 0, voids = 0, outside = 0;
    struct fc_reading reading;
    uint64_t before, ours, after;

    if (fc_sys_gettime((int32_t)clock, &reading) < 0)
        return FC_REASON_REFUSED;
    before = fc_reading_count(reading);
    while (good < rounds) {
        const int32_t reason = read(source, clock, &reading);
        if (reason != FC_REASON_NONE)
            return reason;
        ours = fc_reading_count(reading);
        if (fc_sys_gettime((int32_t)clock, &reading) < 0)
            return FC_REASON_REFUSED;
        after = fc_reading_count(reading);
        if (after < before || after - before > BRACKET_MAX_NS) {
            if (++voids > 64 + 4 * rounds)
                return FC_REASON_UNSTABLE;
        } else if (ours + tolerance_ns < before || ours > after + tolerance_ns) {
            /* Once, a small step back inside a bracket that it does not turn round can be the
             * cause; then every round has to be passed again. */
            if (++outside > 1)
                return FC_REASON_PROOF;
            good = 0;
        } else {
            good++;
        }
        before = after;
    }
    return FC_REASON_NONE;
}

int32_t fc_prove_within(fc_proof_read *read, const void *source, const uint8_t *clocks,
                        uint32_t count, uint32_t rounds, uint64_t tolerance_ns) {
    for (uint32_t i = 0; i < count; i++) {
        const int32_t reason = prove_clock(read, source, clocks[i], rounds, tolerance_ns);
        if (reason != FC_REASON_NONE)
            return reason;
    }
    return FC_REASON_NONE;
}

int32_t fc_prove(fc_proof_read *read, const void *source, const uint8_t *clocks, uint32_t count,
                 uint32_t rounds) {
    return fc_prove_within(read, source, clocks, count, rounds, 0);
}
