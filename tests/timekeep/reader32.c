/* SPDX-License-Identifier: MIT
 *
 * A program for another word size than the publisher's: attaches to the host's page and holds what
 * it reads against the kernel. Exit code 0 if all is well.
 */
#define _GNU_SOURCE
#include <fastclock.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "../bracket.h"

int main(void) {
    static const int32_t clocks[] = {FC_MONOTONIC, FC_REALTIME, FC_RAW, FC_BOOTTIME, FC_TAI};
    const uint64_t near_ns = 100000;
    struct fc_info info;
    setenv("FASTCLOCK_SOURCE", "timekeep", 1);
    if (fc_get_info(&info, sizeof info) < 0 || info.timekeep != 2) {
        printf("page %d is used\n", info.timekeep);
        return 1;
    }
    for (int i = 0; i < 100000; i++) {
        const int32_t clock = clocks[i % 5];
        uint64_t before = 0, ns = 0, after = 0;
        bracket_syscall_ns(clock, &before);
        fc_read_ns(clock, &ns);
        bracket_syscall_ns(clock, &after);
        if (ns + near_ns < before || ns > after + near_ns) {
            printf("clock %d: %" PRIu64 " is not near [%" PRIu64 ", %" PRIu64 "]\n", clock, ns,
                   before, after);
            return 1;
        }
    }
    fc_get_info(&info, sizeof info);
    return info.source == FC_SOURCE_TIMEKEEP && info.timekeep == 2 ? 0 : 1;
}
