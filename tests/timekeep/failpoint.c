/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "failpoint.h"

struct failpoint failpoint;

void fc_timekeep_failpoint(void) {
    if (!failpoint.armed)
        return;
    if (++failpoint.passed != failpoint.at)
        return;
    if (failpoint.act)
        failpoint.act();
    else
        raise(failpoint.signal);
}
