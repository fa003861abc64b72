/* SPDX-License-Identifier: MIT
 *
 * The library's own conversion of ticks, for any rate and not only for this machine's: a counter
 * slower than 1 GHz, as Arm's are, can bring a result beyond 64 bits.
 */
#include "../../core/ticks.c"

uint64_t scale_product(uint64_t ticks, uint32_t mult, uint32_t shift);

uint64_t scale_product(uint64_t ticks, uint32_t mult, uint32_t shift) {
    return product_shifted(ticks, mult, shift);
}
