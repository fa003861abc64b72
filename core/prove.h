/* SPDX-License-Identifier: MIT
 *
 * The proof that a source passes before it is used: between two raw system calls for the same
 * clock, its reading must lie between theirs, round after round, clock after clock. What serves as
 * a source is given as a function; nothing here knows a page or a vDSO.
 */
#ifndef FASTCLOCK_CORE_PROVE_H
#define FASTCLOCK_CORE_PROVE_H

#include "sys.h"

#pragma GCC visibility push(hidden)

/* Reads `clock` from the source that `source` describes. Returns FC_REASON_NONE, or the reason why
 * it cannot, which ends the proof. */
typedef int32_t fc_proof_read(const void *source, uint32_t clock, struct fc_reading *out);

/* Proves `rounds` readings of each of `count` clocks. Returns FC_REASON_NONE; FC_REASON_PROOF for a
 * reading outside its bracket; FC_REASON_UNSTABLE if no bracket held still; FC_REASON_REFUSED if
 * there is no system call to compare with; or what `read` said. Bounded in time. */
int32_t fc_prove(fc_proof_read *read, const void *source, const uint8_t *clocks, uint32_t count,
                 uint32_t rounds);

/* The same for a source that follows the kernel's clocks instead of being them: a reading may lie
 * up to `tolerance_ns` outside its bracket. */
int32_t fc_prove_within(fc_proof_read *read, const void *source, const uint8_t *clocks,
                        uint32_t count, uint32_t rounds, uint64_t tolerance_ns);

/* The clocks of enum fc_clock, in two groups. */
enum { FC_FINE_COUNT = 5, FC_COARSE_COUNT = 2 };
extern const uint8_t fc_fine_clocks[FC_FINE_COUNT];
extern const uint8_t fc_coarse_clocks[FC_COARSE_COUNT];

#pragma GCC visibility pop

#endif
