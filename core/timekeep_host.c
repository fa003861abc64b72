/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "timekeep_host.h"

#include <fastclock.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "skew.h"

/* Readers trust nothing that anybody but root could have written. The lock is a file of its own,
 * which nobody else can open: a lock on a file that others may read can be taken, and kept, by
 * them. */
#define LOCK_NAME FC_TIMEKEEP_NAME ".lock"
#define NEW_NAME FC_TIMEKEEP_NAME ".new"

/* Between two looks at a processor: a sixteenth of the time that all was well, so that counters
 * which run at other rates are found soon, and looks cost next to nothing in the end. */
enum { WATCH_PART = 16 };
static const uint64_t watch_min_ns = 1000000000, watch_max_ns = 10000000000;

static bool only_root_can_write(const struct stat *status) {
    return status->st_uid == 0 && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

static const char *open_directory(struct fc_timekeep_host *host, const char *directory,
                                  int *error) {
    struct stat status;
    if (mkdir(directory, 0755) < 0 && errno != EEXIST) {
        *error = errno;
        return "the directory cannot be made";
    }
    host->directory = open(directory, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY);
    if (host->directory < 0) {
        *error = errno;
        return "the directory cannot be opened, or is none";
    }
    if (fstat(host->directory, &status) < 0 || !only_root_can_write(&status))
        return "the directory has to belong to root and to be writable by nobody else";
    return NULL;
}

static const char *take_lock(struct fc_timekeep_host *host, int *error) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct stat status;
    host->lock = openat(host->directory, LOCK_NAME,
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (host->lock < 0) {
        *error = errno;
        return "the lock file cannot be opened";
    }
    if (fstat(host->lock, &status) < 0 || !S_ISREG(status.st_mode) || status.st_uid != 0 ||
        (status.st_mode & 077) != 0)
        return "the lock file has to be a regular file that only root may open";
    if (fcntl(host->lock, F_OFD_SETLK, &whole) < 0) {
        *error = errno == EACCES ? EAGAIN : errno;
        return *error == EAGAIN ? "another publisher serves this directory"
                                : "the lock cannot be taken";
    }
    return NULL;
}

static struct fc_timekeep *map_shared(int file) {
    void *mapped = mmap(NULL, FC_TIMEKEEP_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    return mapped == MAP_FAILED ? NULL : mapped;
}

/* The page that is there already, if it is one: its readers need not notice that another process
 * writes it now. */
static struct fc_timekeep *map_former(int directory) {
    struct fc_timekeep *page = NULL;
    struct stat status;
    const int file =
        openat(directory, FC_TIMEKEEP_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return NULL;
    /* Allocating again what a sparse copy may lack: a hole on a full file system would kill. */
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode) && only_root_can_write(&status) &&
        (status.st_mode & S_IROTH) && status.st_nlink == 1 && status.st_size == FC_TIMEKEEP_SIZE &&
        posix_fallocate(file, 0, FC_TIMEKEEP_SIZE) == 0)
        page = map_shared(file);
    close(file);
    if (page && !fc_timekeep_is_page(page, FC_TIMEKEEP_SIZE)) {
        munmap(page, FC_TIMEKEEP_SIZE);
        page = NULL;
    }
    return page;
}

static bool take_over(struct fc_timekeep_host *host, uint64_t interval_ns) {
    uint64_t device, inode;
    struct fc_timekeep *page = map_former(host->directory);
    if (!page)
        return false;
    fc_timekeep_namespace(&device, &inode);
    if (page->namespace_dev != device || page->namespace_inode != inode) {
        /* Its readers live with other offsets than this process. */
        fc_timekeep_page_stop(page);
        munmap(page, FC_TIMEKEEP_SIZE);
        return false;
    }
    fc_timekeep_page_stop(page);
    fc_timekeep_page_note(&page->interval_ns, interval_ns);
    host->page = page;
    host->taken_over = host->shown = true;
    return true;
}

static const char *make_new(struct fc_timekeep_host *host, uint64_t interval_ns, int *error) {
    int file;
    /* Only a publisher that was killed leaves one, and the lock says that none is alive. */
    unlinkat(host->directory, NEW_NAME, 0);
    file =
        openat(host->directory, NEW_NAME, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) {
        *error = errno;
        return "the new page cannot be created";
    }
    *error = posix_fallocate(file, 0, FC_TIMEKEEP_SIZE);
    if (*error == 0) {
        host->page = map_shared(file);
        if (!host->page || fchmod(file, 0644) < 0)
            *error = errno;
    }
    close(file);
    if (*error != 0) {
        unlinkat(host->directory, NEW_NAME, 0);
        return *error == ENOSPC ? "the file system has no room for the page"
                                : "the new page cannot be allocated";
    }
    fc_timekeep_page_create(host->page, interval_ns);
    fc_timekeep_namespace(&host->page->namespace_dev, &host->page->namespace_inode);
    return NULL;
}

const char *fc_timekeep_host_open(struct fc_timekeep_host *host, const char *directory,
                                  uint64_t interval_ns, int *error) {
    const char *wrong;
    memset(host, 0, sizeof *host);
    host->ports = fc_timekeep_machine;
    fc_timekeep_discipline_init(&host->discipline, interval_ns);
    host->directory = host->lock = -1;
    *error = 0;
    if (geteuid() != 0)
        return "only root can publish: readers trust nobody else";
    wrong = open_directory(host, directory, error);
    if (!wrong)
        wrong = take_lock(host, error);
    if (!wrong && !take_over(host, interval_ns))
        wrong = make_new(host, interval_ns, error);
    if (wrong) {
        fc_timekeep_host_close(host);
        return wrong;
    }
    fc_timekeep_page_note32(&host->page->publisher, (uint32_t)getpid());
    fc_timekeep_processors_adopt(&host->processors, host->page);
    host->ports.context = host->page;
    host->table_due = host->processors.stale = true;
    fc_timekeep_vmclock_open(&host->vmclock, FC_TIMEKEEP_VMCLOCK);
    return NULL;
}

/* Before the page gets into service. Returns why it cannot, or NULL. */
static const char *write_table(struct fc_timekeep_host *host) {
    uint64_t count;
    if (host->processors.stale)
        fc_timekeep_processors_measure(&host->processors);
    fc_timekeep_processors_write(&host->processors, host->page);
    host->table_due = false;
    host->well_since_ns = 0;
    return host->page->cpus && !fc_skew_count(host->page, &count)
               ? "the counters of the processors differ, and here a count does not tell which "
                 "processor's it is"
               : NULL;
}

static const char *watch_processors(struct fc_timekeep_host *host) {
    const uint64_t now_ns = host->page->heartbeat_ns;
    uint64_t pause_ns;
    if (host->well_since_ns == 0)
        host->well_since_ns = now_ns;
    pause_ns = (now_ns - host->well_since_ns) / WATCH_PART;
    pause_ns = pause_ns < watch_min_ns   ? watch_min_ns
               : pause_ns > watch_max_ns ? watch_max_ns
                                         : pause_ns;
    if (now_ns - host->watched_ns < pause_ns)
        return NULL;
    host->watched_ns = now_ns;
    return fc_timekeep_processors_watch(&host->processors);
}

static const char *heed_hypervisor(struct fc_timekeep_host *host) {
    return fc_timekeep_vmclock_disrupted(&host->vmclock)
               ? "the hypervisor says that the counter was disturbed"
               : NULL;
}

/* disturbed: so that every processor has to be measured anew. */
static void leave_service(struct fc_timekeep_host *host, const char *why, bool disturbed) {
    fc_timekeep_outage(&host->discipline, host->page, &host->ports, why);
    host->table_due = true;
    if (disturbed)
        host->processors.stale = true;
}

enum fc_timekeep_end fc_timekeep_host_update(struct fc_timekeep_host *host) {
    struct fc_timekeep_discipline *d = &host->discipline;
    enum fc_timekeep_end end;
    const char *why = heed_hypervisor(host);
    bool trusted;
    if (why)
        leave_service(host, why, true);
    else if (d->proved && (why = watch_processors(host)))
        leave_service(host, why, false);
    if (host->table_due) {
        why = write_table(host);
        if (why) {
            d->outage = why;
            return FC_TIMEKEEP_FAILS;
        }
    }
    trusted = d->proved;
    end = fc_timekeep_update(d, host->page, &host->ports, false);
    if (trusted && !d->proved) /* what the samples showed can be a counter that was disturbed */
        host->table_due = host->processors.stale = true;
    why = heed_hypervisor(host); /* it can have been in the middle of the update */
    if (!why || end == FC_TIMEKEEP_FAILS)
        return end;
    leave_service(host, why, true);
    return FC_TIMEKEEP_PROVES;
}

bool fc_timekeep_host_show(struct fc_timekeep_host *host) {
    if (!host->shown)
        host->shown = renameat(host->directory, NEW_NAME, host->directory, FC_TIMEKEEP_NAME) == 0;
    return host->shown;
}

void fc_timekeep_host_close(struct fc_timekeep_host *host) {
    if (host->page) {
        fc_timekeep_page_stop(host->page);
        munmap(host->page, FC_TIMEKEEP_SIZE);
        if (!host->shown)
            unlinkat(host->directory, NEW_NAME, 0);
    }
    if (host->lock >= 0)
        close(host->lock);
    if (host->directory >= 0)
        close(host->directory);
    host->page = NULL;
    host->directory = host->lock = -1;
}

struct fc_timekeep *fc_timekeep_host_switch(const char *directory, const char **why, int *error) {
    struct fc_timekeep_host host = {.directory = -1, .lock = -1};
    struct fc_timekeep *page = NULL;
    struct stat status;
    *error = 0;
    *why = NULL;
    if (geteuid() != 0)
        *why = "only root can turn the page on or off";
    else if (stat(directory, &status) < 0) {
        *error = errno;
        *why = "there is no such directory";
    } else {
        *why = open_directory(&host, directory, error);
    }
    if (!*why) {
        page = map_former(host.directory);
        if (!page)
            *why = "no page is published there";
    }
    if (host.directory >= 0)
        close(host.directory);
    return page;
}

/* ---- vmclock ----------------------------------------------------------------------------------
 */

/* Linux, include/uapi/linux/vmclock-abi.h. */
enum {
    VMCLOCK_MAGIC = 0x4b4c4356,
    VMCLOCK_VERSION = 1,
    VMCLOCK_AT_MAGIC = 0,
    VMCLOCK_AT_SIZE = 4,
    VMCLOCK_AT_VERSION = 8,
    VMCLOCK_AT_SEQUENCE = 12,
    VMCLOCK_AT_MARKER = 16,
    VMCLOCK_SIZE_MIN = 24,
    VMCLOCK_LOOKS = 1000
};

static uint32_t vmclock32(const struct fc_timekeep_vmclock *vmclock, uint32_t at) {
    return *(const volatile uint32_t *)(const volatile void *)(vmclock->device + at);
}

static bool read_marker(const struct fc_timekeep_vmclock *vmclock, uint64_t *marker) {
    for (int i = 0; i < VMCLOCK_LOOKS; i++) {
        const uint32_t sequence = vmclock32(vmclock, VMCLOCK_AT_SEQUENCE);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        *marker = vmclock32(vmclock, VMCLOCK_AT_MARKER) |
                  (uint64_t)vmclock32(vmclock, VMCLOCK_AT_MARKER + 4) << 32;
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (!(sequence & 1) && vmclock32(vmclock, VMCLOCK_AT_SEQUENCE) == sequence)
            return true;
    }
    return false;
}

static bool is_vmclock(const struct fc_timekeep_vmclock *vmclock) {
    return vmclock32(vmclock, VMCLOCK_AT_MAGIC) == VMCLOCK_MAGIC &&
           (vmclock32(vmclock, VMCLOCK_AT_VERSION) & 0xffff) == VMCLOCK_VERSION &&
           vmclock32(vmclock, VMCLOCK_AT_SIZE) >= VMCLOCK_SIZE_MIN;
}

void fc_timekeep_vmclock_open(struct fc_timekeep_vmclock *vmclock, const char *path) {
    const size_t size = (size_t)sysconf(_SC_PAGESIZE);
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    void *mapped = MAP_FAILED;
    memset(vmclock, 0, sizeof *vmclock);
    if (file < 0)
        return;
    mapped = mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return;
    vmclock->device = mapped;
    if (!fc_sys_readable(mapped) || !is_vmclock(vmclock)) {
        munmap(mapped, size);
        vmclock->device = NULL;
        return;
    }
    vmclock->known = read_marker(vmclock, &vmclock->marker);
}

bool fc_timekeep_vmclock_disrupted(struct fc_timekeep_vmclock *vmclock) {
    uint64_t marker;
    bool disrupted;
    if (!vmclock->device || !read_marker(vmclock, &marker))
        return false;
    /* One that was being written when the device was opened is news as well. */
    disrupted = !vmclock->known || marker != vmclock->marker;
    vmclock->known = true;
    vmclock->marker = marker;
    return disrupted;
}
