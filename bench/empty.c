/* SPDX-License-Identifier: MIT
 *
 * A function that does nothing, in a shared library of its own: the cost of a call.
 */
#include <stdint.h>

uint64_t bench_empty(void);

uint64_t bench_empty(void) {
    return 0;
}
