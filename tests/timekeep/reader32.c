/* SPDX-License-Identifier: MIT
 *
 * A program for another word size than the publisher's: attaches to the host's page and holds what
 * it reads against the kernel. Exit code 0 if all is well.
 */
#define _GNU_SOURCE
#include "reader.h"

int main(void) {
    struct fc_info info;
    choose_timekeep(FC_TIMEKEEP_HOST);
    near_kernel(100000);
    fc_get_info(&info, sizeof info);
    CHECK(info.source == FC_SOURCE_TIMEKEEP && info.timekeep == FC_TIMEKEEP_HOST,
          "source %d, page %d", info.source, info.timekeep);
    return 0;
}
