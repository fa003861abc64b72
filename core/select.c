/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "select.h"

#include <errno.h>
#include <fastclock.h>
#include <stdlib.h>

#ifdef FASTCLOCK_NO_LIBC
#include <sys/auxv.h>
#endif

#include "libc.h"
#include "text.h"
#include "timekeep.h"
#include "vdso.h"
#include "view.h"

struct fc_kernel_page fc_page;

/* One word that says who serves, and notes for fc_get_info beside it. No lock guards them: two
 * threads that choose at once do the same work and come to the same end. */
static atomic_uint choice;
static atomic_int wanted = FC_SOURCE_AUTO, wanted_reason, reasons[8];
static atomic_uint count; /* of the choices that were begun */

/* ---- Showing ----------------------------------------------------------------------------------
 */

/* Why the counter may not be read, FC_REASON_NONE if it may. Asked only when it matters, so that a
 * source that needs no counter needs no such system call. */
enum { UNASKED = -1 };
static atomic_int counter = UNASKED;

static uint32_t to_show(uint32_t chosen) {
    const uint32_t proved = atomic_load(&fc_page.proved);
    uint32_t show = 0;
    if ((chosen & FC_CHOICE_PAGE_FINE) && (proved & FC_WAY_COUNTER))
        show |= FC_SHOW_FINE;
    if ((chosen & FC_CHOICE_PAGE_COARSE) && (proved & FC_WAY_COARSE))
        show |= FC_SHOW_COARSE;
    if (atomic_load(&counter) == FC_REASON_NONE)
        show |= FC_SHOW_COUNTER;
    if ((chosen & FC_CHOICE_SOURCE) == FC_SOURCE_TIMEKEEP)
        show |= FC_SHOW_TIMEKEEP;
    return show;
}

static const struct fc_timekeep_hands *hands_to_show(uint32_t chosen) {
    return (chosen & FC_CHOICE_SOURCE) == FC_SOURCE_TIMEKEEP ? fc_timekeep_shown() : NULL;
}

/* Whoever stores last looks once more, so that the view agrees with the choice in the end, however
 * many threads and handlers do this at once. */
static void show_choice(void) {
    const struct fc_timekeep_hands *hands;
    const unsigned char *first;
    uint32_t show;
    do {
        const uint32_t chosen = atomic_load(&choice);
        first = atomic_load(&fc_page.first);
        show = to_show(chosen);
        hands = hands_to_show(chosen);
        fc_view_set(&fc_page, hands, show);
    } while (to_show(atomic_load(&choice)) != show || atomic_load(&fc_page.first) != first ||
             hands_to_show(atomic_load(&choice)) != hands);
}

void fc_choice_show(void) {
    const uint32_t chosen = atomic_load(&choice);
    if (fc_view_shown() != to_show(chosen) || fc_view_hands() != hands_to_show(chosen))
        show_choice();
}

void fc_choice_refuse_counter(void) {
    atomic_store(&counter, FC_REASON_COUNTER_STUCK);
    fc_choice_show();
}

static int32_t ask_for_counter(void) {
    const int32_t allowed = fc_sys_counter_allowed();
    const int32_t reason = allowed == 1   ? FC_REASON_NONE
                           : allowed == 0 ? FC_REASON_COUNTER_DISABLED
                                          : FC_REASON_COUNTER_UNCERTAIN;
    atomic_store(&counter, reason);
    return reason;
}

static int32_t counter_reason(void) {
    const int32_t reason = atomic_load(&counter);
    return reason == UNASKED ? ask_for_counter() : reason;
}

bool fc_choice_counter(void) {
    const bool allowed = fc_choice() && counter_reason() == FC_REASON_NONE;
    fc_choice_show();
    return allowed;
}

uint32_t fc_choice_count(void) {
    return atomic_load_explicit(&count, memory_order_relaxed);
}

/* ---- The sources ------------------------------------------------------------------------------
 */

static int32_t open_syscall(void) {
    struct fc_reading reading;
    for (int i = 0; i < FC_FINE_COUNT; i++)
        if (fc_sys_gettime(fc_fine_clocks[i], &reading) < 0)
            return FC_REASON_REFUSED;
    return FC_REASON_NONE;
}

static int32_t open_libc(void) {
    struct fc_reading reading;
#ifdef FASTCLOCK_NO_LIBC
    /* What the C library would call; a read of a disabled counter would kill. */
    if (counter_reason() == FC_REASON_NONE)
        fc_vdso_open();
#endif
    return fc_libc_gettime(FC_REALTIME, &reading) ? FC_REASON_NONE : FC_REASON_REFUSED;
}

/* ---- Choosing ---------------------------------------------------------------------------------
 */

static int32_t note(int32_t source, int32_t reason) {
    atomic_store_explicit(&reasons[source], reason, memory_order_relaxed);
    return reason;
}

/* Whether the page that the vDSO reads is there, in a process that may have unmapped it. */
static int32_t time_page_reason(void) {
    switch (atomic_load(&reasons[FC_SOURCE_KERNEL_PAGE])) {
    case FC_REASON_NOT_TRIED:
    case FC_REASON_NO_MAPS: return fc_kernel_page_mapped();
    case FC_REASON_NO_VVAR: return FC_REASON_NO_VVAR;
    default: return FC_REASON_NONE;
    }
}

/* A disabled counter would kill in the vDSO, and so would a page that is gone. */
static int32_t open_vdso(void) {
    int32_t reason = counter_reason();
    if (reason == FC_REASON_NONE)
        reason = time_page_reason();
    if (reason == FC_REASON_NONE)
        return fc_vdso_open();
    fc_vdso_close();
    return reason;
}

/* Opens one source. Returns what of the choice word it earns: its own number if it serves, and what
 * the page gives even if it does not. */
static uint32_t open_source(int32_t source) {
    switch (source) {
    case FC_SOURCE_KERNEL_PAGE:
        if (note(source, fc_kernel_page_open(&fc_page, counter_reason() == FC_REASON_NONE)))
            return 0;
        if (note(source, counter_reason()))
            return FC_CHOICE_PAGE_COARSE;
        return (uint32_t)source | FC_CHOICE_PAGE_FINE | FC_CHOICE_PAGE_COARSE;
    case FC_SOURCE_TIMEKEEP:
        open_vdso(); /* which makes for narrower samples */
        return note(source, counter_reason() ? counter_reason() : fc_timekeep_open())
                   ? 0
                   : (uint32_t)source;
    case FC_SOURCE_VDSO: return note(source, open_vdso()) ? 0 : (uint32_t)source;
    case FC_SOURCE_SYSCALL: return note(source, open_syscall()) ? 0 : (uint32_t)source;
    default: return note(source, open_libc()) ? 0 : (uint32_t)source;
    }
}

/* What follows when the source that was asked for is refused: those that are slower. Who asked for
 * our own page wanted to be fast, and starts at the head of the list. */
static int32_t next_source(int32_t refused) {
    switch (refused) {
    case FC_SOURCE_TIMEKEEP: return FC_SOURCE_KERNEL_PAGE;
    case FC_SOURCE_KERNEL_PAGE: return FC_SOURCE_VDSO;
    case FC_SOURCE_VDSO: return FC_SOURCE_SYSCALL;
#ifdef __linux__
    case FC_SOURCE_SYSCALL: return FC_SOURCE_NONE;
#else
    case FC_SOURCE_SYSCALL: return FC_SOURCE_LIBC;
#endif
    default: return FC_SOURCE_NONE;
    }
}

/* The time namespace at the last choice: 1 in one, 0 not, -1 unknown. */
static atomic_int namespace_chosen_in = -1;

static int32_t in_namespace(void) {
    int32_t mode;
    bool within;
    return fc_kernel_page_mode(&fc_page, &mode, &within) ? within : -1;
}

bool fc_choice_namespace_moved(void) {
    return in_namespace() != atomic_load_explicit(&namespace_chosen_in, memory_order_relaxed);
}

/* Goes through the sources from `first` on; with `alone`, no further. */
static uint32_t choose(int32_t first, bool alone) {
    int32_t source = first == FC_SOURCE_AUTO ? FC_SOURCE_KERNEL_PAGE : first;
    uint32_t earned = 0;
    atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
    if (first == FC_SOURCE_SYSCALL || first == FC_SOURCE_LIBC)
        atomic_store(&counter, UNASKED);
    else
        ask_for_counter(); /* anew, as it can be forbidden at any time */
    while (source != FC_SOURCE_NONE) {
        earned |= open_source(source);
        if ((earned & FC_CHOICE_SOURCE) || alone)
            break;
        source = next_source(source);
    }
    source = (int32_t)(earned & FC_CHOICE_SOURCE);
    /* The coarse clocks need no counter, and the kernel's own are the better ones. */
    if (source == FC_SOURCE_TIMEKEEP) {
        earned |= open_source(FC_SOURCE_KERNEL_PAGE) & FC_CHOICE_PAGE_COARSE;
        if (earned & FC_CHOICE_PAGE_COARSE)
            note(FC_SOURCE_KERNEL_PAGE, FC_REASON_NOT_TRIED);
        atomic_store(&namespace_chosen_in, in_namespace());
    }
    /* A page stands back at times, and then, most often, the vDSO answers. */
    if ((source == FC_SOURCE_KERNEL_PAGE || source == FC_SOURCE_TIMEKEEP) &&
        open_source(FC_SOURCE_VDSO) != 0)
        note(FC_SOURCE_VDSO, FC_REASON_NOT_TRIED);
    return earned;
}

static void forget_reasons(void) {
    for (int32_t source = FC_SOURCE_KERNEL_PAGE; source <= FC_SOURCE_LIBC; source++)
        note(source, source == FC_SOURCE_TIMEKEEP ? FC_REASON_NOT_OPTED_IN : FC_REASON_NOT_TRIED);
}

/* What FASTCLOCK_SOURCE asks for; FC_SOURCE_AUTO and a reason where it is not to be followed. */
static int32_t environment(int32_t *reason) {
    const char *value;
    int32_t source = FC_SOURCE_AUTO;
    *reason = FC_REASON_NONE;
#ifdef __linux__
    value = secure_getenv("FASTCLOCK_SOURCE");
    if (!value && getenv("FASTCLOCK_SOURCE"))
        *reason = FC_REASON_SECURE;
#ifdef FASTCLOCK_NO_LIBC
    if (getauxval(AT_SECURE)) {
        /* Nobody asked a program with raised privileges whether it wants to be preloaded. */
        *reason = FC_REASON_SECURE;
        return FC_SOURCE_LIBC;
    }
#endif
#else
    value = getenv("FASTCLOCK_SOURCE");
#endif
    if (value && *value && !fc_source_by_name(value, &source))
        *reason = FC_REASON_UNKNOWN_NAME;
    return source;
}

int32_t fc_init(void) {
    uint32_t none = 0, chosen = atomic_load_explicit(&choice, memory_order_acquire);
    if (!(chosen & FC_CHOICE_SOURCE)) {
        int32_t reason;
        const int32_t asked = environment(&reason);
        atomic_store(&wanted, asked);
        atomic_store(&wanted_reason, reason);
        forget_reasons();
        none = chosen;
        chosen = choose(asked, false) | FC_CHOICE_MADE;
        /* The view before the choice: a child that another thread forks in between either chooses
         * anew or has both. */
        fc_view_set(&fc_page, hands_to_show(chosen), to_show(chosen));
        /* Only over what was there: a choice that another thread asked for meanwhile stands. */
        atomic_compare_exchange_strong(&choice, &none, chosen);
        show_choice();
        chosen = atomic_load(&choice);
    }
    return chosen & FC_CHOICE_SOURCE ? 0 : -ENOTSUP;
}

uint32_t fc_choice(void) {
    uint32_t chosen = atomic_load_explicit(&choice, memory_order_acquire);
    if (__builtin_expect(!(chosen & FC_CHOICE_MADE), 0)) {
        fc_init();
        chosen = atomic_load_explicit(&choice, memory_order_acquire);
    }
    return chosen;
}

/* Whether a source that was chosen before can go on, as far as the counter is concerned. */
static bool still_stands(int32_t source) {
    return (source != FC_SOURCE_KERNEL_PAGE && source != FC_SOURCE_TIMEKEEP &&
            source != FC_SOURCE_VDSO) ||
           counter_reason() == FC_REASON_NONE;
}

int32_t fc_select(int32_t source) {
    uint32_t earned;
    int32_t former, result = 0;
    if (source != FC_SOURCE_AUTO && (source < FC_SOURCE_KERNEL_PAGE || source > FC_SOURCE_LIBC))
        return -EINVAL;
    former = (int32_t)(fc_choice() & FC_CHOICE_SOURCE);
    if (source == FC_SOURCE_AUTO)
        forget_reasons();
    earned = choose(source, source != FC_SOURCE_AUTO);
    if (!(earned & FC_CHOICE_SOURCE)) {
        result = -ENOTSUP;
        /* What was just refused cannot stand, nor can what reads a counter that was forbidden. */
        if (source == FC_SOURCE_AUTO || source == former || !still_stands(former))
            earned = choose(FC_SOURCE_AUTO, false);
    } else {
        atomic_store(&wanted, source);
        atomic_store(&wanted_reason, FC_REASON_NONE);
    }
    if (result == 0 || (earned & FC_CHOICE_SOURCE))
        atomic_store(&choice, earned | FC_CHOICE_MADE);
    show_choice();
    return result;
}

void fc_choice_tell(struct fc_info *info) {
    info->source = (int32_t)(fc_choice() & FC_CHOICE_SOURCE);
    info->wanted = atomic_load_explicit(&wanted, memory_order_relaxed);
    info->wanted_reason = atomic_load_explicit(&wanted_reason, memory_order_relaxed);
    for (int i = 0; i < 8; i++)
        info->reason[i] = atomic_load_explicit(&reasons[i], memory_order_relaxed);
}
