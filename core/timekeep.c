/* SPDX-License-Identifier: MIT
 *
 * The source: which timekeep page this process reads. The host's, if one is published and to be
 * trusted; else a page of its own, which its reads keep up to date.
 *
 * A page of one's own has no thread behind it. When an update is due the inlined reads leave it;
 * the first one that comes here updates it on its way, the others go on with what there is. So an
 * idle process costs nothing, a program does not become multi-threaded behind its back, and a
 * forked child has nothing to miss: its page is wiped by the kernel, and the child begins anew.
 * docs/timekeep.md has the measurements that this choice rests on.
 *
 * Only reads that come often pay for updates: one that comes later is answered by the kernel.
 */
#define _GNU_SOURCE
#define FASTCLOCK_INLINE
#include "timekeep.h"

#include <fastclock.h>
#include <string.h>

#if defined(__linux__) && defined(FC_MODE_COUNTER_)

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    TOLERANCE_NS = 50000,     /* that a reading may lie outside: the page follows, it is not the
                                 kernel's own; another time namespace is much further off */
    PATIENCE_NS = 100000000,  /* with a publisher that does not answer or has not proved its page */
    OPENING_UPDATES_MAX = 64, /* in which an own page has to be proved */
    BURST = 16,               /* reads in this time that make an update worth its price */
    BURST_NS = 1000000
};

/* A page of one's own and what is known for it. All of it is wiped in a child. */
struct own {
    struct fc_timekeep page;
    atomic_uint busy; /* 1 while somebody updates */
    atomic_uint burst;
    _Atomic uint64_t burst_began;
    struct fc_timekeep_discipline discipline;
};

static _Atomic(const struct fc_timekeep *) in_use;
static _Atomic(const struct fc_timekeep_hands *) shown;
static _Atomic(struct own *) own_page;

/* The host's page as it was mapped last, and which file it is. */
static _Atomic(const struct fc_timekeep *) host_page;
static _Atomic uint64_t host_device, host_inode;

const struct fc_timekeep_hands *fc_timekeep_shown(void) {
    return atomic_load_explicit(&shown, memory_order_relaxed);
}

const struct fc_timekeep *fc_timekeep_page(enum fc_timekeep_kind *kind) {
    const struct fc_timekeep *page = atomic_load_explicit(&in_use, memory_order_acquire);
    const struct own *own = atomic_load_explicit(&own_page, memory_order_relaxed);
    *kind = !page                       ? FC_TIMEKEEP_NONE
            : own && page == &own->page ? FC_TIMEKEEP_OWN
                                        : FC_TIMEKEEP_HOST;
    return page;
}

/* ---- The host's page --------------------------------------------------------------------------
 */

static bool only_root_can_write(const struct stat *status) {
    return status->st_uid == 0 && (status->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Opens the file and says which it is; -1 and a reason unless it is to be trusted. */
static int open_host(const char *directory, const char *name, struct stat *status,
                     int32_t *reason) {
    /* O_NONBLOCK: a FIFO is opened, and refused, without waiting for a writer. */
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    const int within = open(directory, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY);
    int file = -1;
    *reason = FC_REASON_NO_PAGE;
    if (within < 0)
        return -1;
    if (fstat(within, status) == 0 && only_root_can_write(status))
        file = openat(within, name, flags);
    close(within);
    if (file < 0)
        return -1;
    if (fstat(file, status) == 0 && S_ISREG(status->st_mode) && only_root_can_write(status) &&
        status->st_nlink == 1 && status->st_size == FC_TIMEKEEP_SIZE)
        return file;
    close(file);
    return -1;
}

const struct fc_timekeep *fc_timekeep_map(const char *directory, const char *name,
                                          int32_t *reason) {
    const int saved = errno;
    struct stat status;
    const struct fc_timekeep *page = NULL;
    const int file = open_host(directory, name, &status, reason);
    if (file >= 0) {
        void *mapped;
        page = atomic_load(&host_page);
        if (page && atomic_load(&host_device) == status.st_dev &&
            atomic_load(&host_inode) == status.st_ino) {
            close(file);
            errno = saved;
            *reason = FC_REASON_NONE;
            return page;
        }
        page = NULL;
        mapped = mmap(NULL, FC_TIMEKEEP_SIZE, PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (mapped != MAP_FAILED) {
            page = mapped;
            *reason = FC_REASON_NONE;
            if (!fc_timekeep_is_page(page, FC_TIMEKEEP_SIZE)) {
                munmap(mapped, FC_TIMEKEEP_SIZE);
                page = NULL;
                *reason = FC_REASON_LAYOUT;
            }
        }
    }
    /* What was mapped before stays: other threads may be reading it. */
    if (page) {
        atomic_store(&host_device, status.st_dev);
        atomic_store(&host_inode, status.st_ino);
        atomic_store(&host_page, page);
    }
    errno = saved;
    return page;
}

/* The time namespace that the kernel's clocks are read in: 0 and 0 on a kernel without them. */
void fc_timekeep_namespace(uint64_t *device, uint64_t *inode) {
    const int saved = errno;
    struct stat status;
    *device = *inode = 0;
    if (stat("/proc/self/ns/time", &status) == 0) {
        *device = status.st_dev;
        *inode = status.st_ino;
    }
    errno = saved;
}

static bool same_namespace(const struct fc_timekeep *page) {
    uint64_t device, inode;
    fc_timekeep_namespace(&device, &inode);
    /* Where /proc cannot tell, the proof can. */
    return inode == 0 || page->namespace_inode == 0 ||
           (device == page->namespace_dev && inode == page->namespace_inode);
}

/* ---- A page of one's own ----------------------------------------------------------------------
 */

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static struct own *make_own(void) {
    const int saved = errno;
    struct own *own = atomic_load(&own_page), *none = NULL;
    if (!own) {
        void *mapped =
            mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped != MAP_FAILED && madvise(mapped, sizeof *own, MADV_WIPEONFORK) != 0) {
            munmap(mapped, sizeof *own);
            mapped = MAP_FAILED;
        }
        if (mapped != MAP_FAILED) {
            own = mapped;
            if (!atomic_compare_exchange_strong(&own_page, &none, own)) {
                munmap(mapped, sizeof *own);
                own = none;
            }
        }
    }
    errno = saved;
    return own;
}

/* Updates the page unless somebody else does. All signals wait meanwhile: a handler that left by
 * longjmp would leave the page busy for ever; so they wait before it is. */
static bool update_own(struct own *own) {
    uint64_t signals;
    bool serves = false;
    if (atomic_load_explicit(&own->busy, memory_order_relaxed) != 0 ||
        !fc_sys_block_signals(&signals))
        return false;
    if (atomic_exchange_explicit(&own->busy, 1, memory_order_acquire) == 0) {
        if (own->page.magic != FC_TIMEKEEP_MAGIC) {
            fc_timekeep_discipline_init(&own->discipline, FC_TIMEKEEP_INTERVAL_NS);
            fc_timekeep_page_create(&own->page, FC_TIMEKEEP_INTERVAL_NS);
        }
        serves = fc_timekeep_update(&own->discipline, &own->page, &fc_timekeep_machine, true) ==
                 FC_TIMEKEEP_SERVES;
        atomic_store_explicit(&own->busy, 0, memory_order_release);
    }
    fc_sys_restore_signals(signals);
    return serves;
}

/* Whether this read is one of many, so that an update will be of use. */
static bool is_burst(struct own *own, uint64_t ns) {
    const uint64_t began = atomic_load_explicit(&own->burst_began, memory_order_relaxed);
    if (ns - began > BURST_NS) {
        atomic_store_explicit(&own->burst_began, ns, memory_order_relaxed);
        atomic_store_explicit(&own->burst, 1, memory_order_relaxed);
        return false;
    }
    return atomic_fetch_add_explicit(&own->burst, 1, memory_order_relaxed) + 1 >= BURST;
}

/* How many nanoseconds ago the page was updated, by the counter; large if that cannot be told. */
static uint64_t age_ns(const struct fc_timekeep *page) {
    const uint32_t current = __atomic_load_n(&page->current, __ATOMIC_ACQUIRE);
    const struct fc_timekeep_block *block = &page->hands[current % FC_TIMEKEEP_HANDS].fine;
    const uint64_t last = fc_load64_((const unsigned char *)&block->last);
    const uint64_t mult = fc_load32_((const unsigned char *)&block->mult);
    const uint32_t shift = fc_load32_((const unsigned char *)&block->shift);
    const uint64_t count = fc_counter_ordered_(); /* a page of one's own has no skews */
    uint64_t shifted;
    if ((int64_t)(count - last) < 0)
        return 0;
    if (__builtin_mul_overflow(count - last, mult, &shifted))
        return UINT64_MAX;
    return shifted >> (shift & 63);
}

/* What a read does that comes here: looks whether it should bring the page up to date. */
static void keep_own(struct own *own) {
    const uint64_t age = age_ns(&own->page);
    const uint64_t due = fc_load64_((const unsigned char *)&own->page.next_ns);
    const bool serves = __atomic_load_n(&own->page.in_service, __ATOMIC_RELAXED);
    struct fc_reading now;
    if (serves && age < due)
        return;
    /* Who comes soon after the time of an update comes often. */
    if (serves && age < due + BURST_NS) {
        update_own(own);
        return;
    }
    if (fc_sys_gettime(FC_MONOTONIC_COARSE, &now) == 0 && is_burst(own, fc_reading_count(now)))
        update_own(own);
}

/* ---- Opening ----------------------------------------------------------------------------------
 */

static int32_t proof_read(const void *source, uint32_t clock, struct fc_reading *out) {
    int32_t hands;
    return fc_timekeep_page_read(source, clock, true, out, &hands);
}

static int32_t prove(const struct fc_timekeep *page) {
    return fc_prove_within(proof_read, page, fc_fine_clocks, FC_FINE_COUNT, FC_TIMEKEEP_ROUNDS,
                           TOLERANCE_NS);
}

static void use(const struct fc_timekeep *page) {
    atomic_store(&shown, NULL);
    atomic_store_explicit(&in_use, page, memory_order_release);
}

void fc_timekeep_leave_host(void) {
    enum fc_timekeep_kind kind;
    fc_timekeep_page(&kind);
    if (kind == FC_TIMEKEEP_HOST) {
        const struct own *own = make_own();
        use(own ? &own->page : NULL);
    }
}

static int32_t open_own(void) {
    struct own *own = make_own();
    int32_t reason = FC_REASON_UNREADABLE;
    if (!own)
        return reason;
    for (int i = 0; i < OPENING_UPDATES_MAX; i++) {
        struct fc_reading began, now;
        if (update_own(own)) {
            reason = prove(&own->page);
            if (reason == FC_REASON_NONE)
                use(&own->page);
            if (reason != FC_REASON_BUSY && reason != FC_REASON_OUT_OF_SERVICE)
                return reason;
        }
        /* Samples that are to give a rate need a distance. */
        if (fc_sys_gettime(FC_MONOTONIC, &began) < 0)
            return FC_REASON_REFUSED;
        do
            if (fc_sys_gettime(FC_MONOTONIC, &now) < 0)
                return FC_REASON_REFUSED;
        while (fc_reading_count(now) - fc_reading_count(began) < BURST_NS);
    }
    return FC_REASON_PROOF;
}

/* A publisher that is held up, or begins to serve, is waited for; one that has died is not. */
static int32_t prove_host(const struct fc_timekeep *page) {
    uint64_t began_ns = 0;
    for (;;) {
        const int32_t reason = prove(page);
        struct fc_reading now;
        uint64_t now_ns, heartbeat_ns;
        if (reason != FC_REASON_BUSY && reason != FC_REASON_OUT_OF_SERVICE)
            return reason;
        heartbeat_ns = fc_load64_((const unsigned char *)&page->heartbeat_ns);
        if (fc_sys_gettime(FC_BOOTTIME, &now) < 0)
            return FC_REASON_REFUSED;
        now_ns = fc_reading_count(now);
        if (began_ns == 0)
            began_ns = now_ns;
        if ((int64_t)(now_ns - heartbeat_ns) > PATIENCE_NS || now_ns - began_ns > PATIENCE_NS)
            return reason;
    }
}

int32_t fc_timekeep_open(void) {
    int32_t reason;
    const struct fc_timekeep *host =
        fc_timekeep_map(FC_TIMEKEEP_DIRECTORY, FC_TIMEKEEP_NAME, &reason);
    reason = host && same_namespace(host) ? prove_host(host) : FC_REASON_NO_PAGE;
    if (reason == FC_REASON_NONE)
        use(host);
    /* Whoever switched the host's page off wants the kernel's word, not a page for each process. */
    if (reason == FC_REASON_NONE || reason == FC_REASON_SWITCHED_OFF)
        return reason;
    return open_own();
}

/* ---- Reading ----------------------------------------------------------------------------------
 */

/* The clocks that never go back, and the latest time of each that the kernel has told this process
 * while the page stood back; 0: none since the page came back. A timehands that arrives late begins
 * where the one before ended, which can be a little before that. */
static const uint8_t steady_clocks[] = {FC_MONOTONIC, FC_RAW, FC_BOOTTIME};
enum { STEADY = sizeof steady_clocks };
static _Atomic uint64_t told[STEADY];

static int steady_index(uint32_t clock) {
    for (int i = 0; i < STEADY; i++)
        if (steady_clocks[i] == clock)
            return i;
    return -1;
}

/* Lifts a reading of the page to what was told before. Returns whether it had to be. */
static bool lift_to_told(int index, struct fc_reading *out) {
    uint64_t before = atomic_load(&told[index]);
    const uint64_t now = fc_reading_count(*out);
    if (before == 0)
        return false;
    if (before > now && before - now < FC_TIMEKEEP_HOLD_NS) {
        out->sec = before / 1000000000u;
        out->ns = before % 1000000000u;
        return true;
    }
    /* Left behind; or, by far too much, from another time namespace. */
    atomic_compare_exchange_strong(&told[index], &before, 0);
    return false;
}

/* Whether inlined reads, which lift nothing, may be turned to the page. */
static bool may_show(const struct fc_timekeep *page) {
    for (int i = 0; i < STEADY; i++) {
        struct fc_reading reading;
        int32_t hands;
        if (atomic_load(&told[i]) != 0 &&
            (fc_timekeep_page_read(page, steady_clocks[i], true, &reading, &hands) !=
                 FC_REASON_NONE ||
             lift_to_told(i, &reading)))
            return false;
    }
    return true;
}

int32_t fc_timekeep_read(uint32_t clock, bool ordered, struct fc_reading *out) {
    const int index = steady_index(clock);
    enum fc_timekeep_kind kind;
    const struct fc_timekeep *page = fc_timekeep_page(&kind);
    int32_t hands, reason;
    if (!page)
        return FC_REASON_NO_PAGE;
    if (kind == FC_TIMEKEEP_OWN) {
        /* Nothing renews the coarse clocks of a page that nobody else reads. */
        if (clock == FC_REALTIME_COARSE || clock == FC_MONOTONIC_COARSE)
            return FC_REASON_NO_PAGE;
        keep_own(atomic_load_explicit(&own_page, memory_order_relaxed));
    }
    reason = fc_timekeep_page_read(page, clock, ordered, out, &hands);
    if (reason == FC_REASON_NONE && index >= 0)
        lift_to_told(index, out);
    if (hands >= 0 && fc_timekeep_shown() != &page->hands[hands] && may_show(page)) {
        atomic_store(&shown, &page->hands[hands]);
        /* Another thread may have had the kernel's answer meanwhile. */
        if (!may_show(page))
            atomic_store(&shown, NULL);
    }
    return reason;
}

/* The latest time that the page can have told, at most some of its bound after the kernel's where
 * the counter does not say how much of a timehands is over. */
static bool told_by_page(const struct fc_timekeep *page, uint32_t clock, uint64_t kernel_ns,
                         uint64_t *ns) {
    struct fc_reading floor;
    uint64_t count, most = FC_TIMEKEEP_HOLD_NS;
    if (!fc_timekeep_page_count(page, &count)) {
        const uint32_t current = __atomic_load_n(&page->current, __ATOMIC_ACQUIRE);
        const struct fc_timekeep_block *block = &page->hands[current % FC_TIMEKEEP_HANDS].fine;
        count = fc_load64_((const unsigned char *)&block->last) + UINT32_MAX;
        most = fc_load64_((const unsigned char *)&page->interval_ns) / FC_TIMEKEEP_BOUND;
    }
    if (!fc_timekeep_page_floor(page, clock, count, &floor))
        return false;
    *ns = fc_reading_count(floor);
    if (most < FC_TIMEKEEP_HOLD_NS && (int64_t)(*ns - kernel_ns) > (int64_t)most)
        *ns = kernel_ns + most;
    return *ns - kernel_ns < FC_TIMEKEEP_HOLD_NS;
}

void fc_timekeep_lift(uint32_t clock, struct fc_reading *out) {
    const int index = steady_index(clock);
    enum fc_timekeep_kind kind;
    const struct fc_timekeep *page = fc_timekeep_page(&kind);
    uint64_t before, now, page_ns;
    if (!page || index < 0)
        return;
    now = fc_reading_count(*out);
    /* In this order: who forgets what was told has seen the page beyond it. */
    before = atomic_load(&told[index]);
    if (told_by_page(page, clock, now, &page_ns))
        now = page_ns;
    if (before > now && before - now < FC_TIMEKEEP_HOLD_NS)
        now = before;
    out->sec = now / 1000000000u;
    out->ns = now % 1000000000u;
    /* What was told and is too far ahead is forgotten. */
    while ((before < now || before - now >= FC_TIMEKEEP_HOLD_NS) &&
           !atomic_compare_exchange_weak(&told[index], &before, now))
        continue;
    /* The timehands that inlined reads are turned to is over; what takes its place in the ring can
     * be behind what was told now. */
    atomic_store(&shown, NULL);
}

#else /* no Linux, or no counter known */

#ifdef __linux__
enum { ABSENT = FC_REASON_NO_COUNTER };
#else
enum { ABSENT = FC_REASON_NOT_LINUX };
#endif

void fc_timekeep_leave_host(void) {
}

int32_t fc_timekeep_open(void) {
    return ABSENT;
}

int32_t fc_timekeep_read(uint32_t clock, bool ordered, struct fc_reading *out) {
    (void)clock;
    (void)ordered;
    (void)out;
    return ABSENT;
}

void fc_timekeep_lift(uint32_t clock, struct fc_reading *out) {
    (void)clock;
    (void)out;
}

const struct fc_timekeep_hands *fc_timekeep_shown(void) {
    return NULL;
}

const struct fc_timekeep *fc_timekeep_page(enum fc_timekeep_kind *kind) {
    *kind = FC_TIMEKEEP_NONE;
    return NULL;
}

#endif
