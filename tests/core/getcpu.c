/* SPDX-License-Identifier: MIT
 *
 * fc_getcpu names the processor that the thread is on, by each way that it has.
 */
#define _GNU_SOURCE
#include <sched.h>

#include "clocks.h"
#include "deny.h"

static void compare_on_each_processor(void) {
    cpu_set_t allowed;
    MUST(sched_getaffinity(0, sizeof allowed, &allowed));
    for (unsigned i = 0; i < CPU_SETSIZE; i++) {
        cpu_set_t one;
        unsigned expected_cpu = 0, expected_node = 0;
        uint32_t cpu = UINT32_MAX, node = UINT32_MAX;
        if (!CPU_ISSET(i, &allowed))
            continue;
        CPU_ZERO(&one);
        CPU_SET(i, &one);
        MUST(sched_setaffinity(0, sizeof one, &one));
        MUST(syscall(SYS_getcpu, &expected_cpu, &expected_node, NULL));
        CHECK(expected_cpu == i, "the kernel says %u on %u", expected_cpu, i);
        CHECK(fc_getcpu(&cpu, &node) == 0 && cpu == i && node == expected_node,
              "%u of node %u, not %u of node %u", (unsigned)cpu, (unsigned)node, i, expected_node);
        cpu = node = UINT32_MAX;
        CHECK(fc_getcpu(&cpu, NULL) == 0 && cpu == i, "%u without the node", (unsigned)cpu);
        CHECK(fc_getcpu(NULL, &node) == 0 && node == expected_node, "node %u", (unsigned)node);
        CHECK(fc_getcpu(NULL, NULL) == 0, "nothing asked for");
    }
}

static void right_on_each_processor(const void *argument) {
    (void)argument;
    compare_on_each_processor();
}

/* By the C library's sequence area or by RDPID; which of them, depends on the C library. */
static void needs_no_system_call(const void *argument) {
    static const int number = SYS_getcpu;
    uint32_t cpu, node;
    (void)argument;
#ifndef __GLIBC__
    CANNOT("this C library registers no area, and RDPID is not everywhere");
#endif
    CHECK(fc_getcpu(&cpu, &node) == 0, "fc_getcpu");
    deny_calls(&number, 1, SECCOMP_RET_KILL_PROCESS);
    CHECK(fc_getcpu(&cpu, NULL) == 0, "fc_getcpu");
}

int main(int argc, char **argv) {
    check_begin(argc, argv);
    check_that("fc_getcpu agrees with the kernel on each processor", right_on_each_processor, NULL);
    check_that("fc_getcpu needs no system call for the processor's number", needs_no_system_call,
               NULL);
    return check_end();
}
