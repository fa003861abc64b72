/* SPDX-License-Identifier: MIT
 *
 * The publisher's side of the host's page: the file, and what is asked of the machine between two
 * updates. Not part of the library: `fastclock publish` and the tests use it.
 */
#ifndef FASTCLOCK_CORE_TIMEKEEP_HOST_H
#define FASTCLOCK_CORE_TIMEKEEP_HOST_H

#include "timekeep.h"
#include "timekeep_processors.h"

#pragma GCC visibility push(hidden)

/* The device by which a hypervisor tells that the counter was disturbed, as by a migration. */
struct fc_timekeep_vmclock {
    const volatile unsigned char *device; /* NULL: there is none, or it is not readable */
    uint64_t marker;
    bool known; /* the marker has been read */
};

struct fc_timekeep_host {
    struct fc_timekeep *page;
    int directory, lock; /* descriptors */
    bool taken_over;     /* the page was there, and its readers go on with it */
    bool shown;          /* it bears its name */
    bool table_due;      /* the table of skews has to be written before the page can serve */
    uint64_t watched_ns, well_since_ns; /* FC_BOOTTIME when a processor was last looked at, and when
                                           the table was found to be right, 0: not yet */
    struct fc_timekeep_ports ports;
    struct fc_timekeep_discipline discipline;
    struct fc_timekeep_vmclock vmclock;
    struct fc_timekeep_processors processors;
};

/* Opens the page in `directory` for publishing: takes over the one that is there, or makes a new
 * one, which nobody sees before fc_timekeep_host_show. The directory is made if it does not exist.
 * Returns NULL, or a constant sentence that says what is wrong and *error, an errno value or 0. */
const char *fc_timekeep_host_open(struct fc_timekeep_host *host, const char *directory,
                                  uint64_t interval_ns, int *error);

/* Updates the page once: asks the hypervisor, looks at a processor now and then, and at all of them
 * before the page gets into service, and lets the discipline sample and publish. As
 * fc_timekeep_update; where it fails, host->discipline.outage says why. */
enum fc_timekeep_end fc_timekeep_host_update(struct fc_timekeep_host *host);

/* Gives a new page its name; does nothing for one that has it. False with errno. */
bool fc_timekeep_host_show(struct fc_timekeep_host *host);

/* Takes the page out of service. The file stays, for the next publisher to go on with. */
void fc_timekeep_host_close(struct fc_timekeep_host *host);

/* Maps the page of `directory` for the switch alone; NULL with *why and *error, as above. */
struct fc_timekeep *fc_timekeep_host_switch(const char *directory, const char **why, int *error);

#define FC_TIMEKEEP_VMCLOCK "/dev/vmclock0"

void fc_timekeep_vmclock_open(struct fc_timekeep_vmclock *vmclock, const char *path);

/* Whether the counter was disturbed since the last call. While the hypervisor is writing the
 * device, and where there is none: no. */
bool fc_timekeep_vmclock_disrupted(struct fc_timekeep_vmclock *vmclock);

#pragma GCC visibility pop

#endif
