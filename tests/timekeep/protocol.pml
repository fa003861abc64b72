/* SPDX-License-Identifier: MIT
 *
 * A model of the timekeep page's protocol, for SPIN: one publisher that may be held up between any
 * two of its steps, and readers in one process. See docs/timekeep.md for the protocol in prose, and
 * core/timekeep_page.c, core/timekeep_discipline.c (publish_next, publish_beginning,
 * fc_timekeep_outage, the switch in fc_timekeep_update) and core/timekeep.c (fc_timekeep_read,
 * fc_timekeep_lift) for what is modelled.
 *
 * Claims, for every interleaving: a reading that began after another one was returned is not
 * smaller; no reading is made of two publications, nor of a table of skews and a timehands that do
 * not belong together; readers never wait (they have no blocking step, and the model has no invalid
 * end state); a reading is never far from the kernel's clock.
 *
 * The counter advances whenever it likes. The kernel's clock is 4 * counter; the publisher's lines
 * have slopes of 3 or 5, worse than any real one, and begin up to 1 ahead. A ring of three
 * timehands instead of four leaves a reader less room, not more. Memory is sequentially consistent
 * here; what keeps it so in C is checked in the disassembly.
 *
 * What happens to the publisher is chosen by options. check_model.sh has the combinations that are
 * searched, and how far:
 *
 *   -DCRASH   it may be killed once, at any step, and another one takes over
 *   -DOUTAGE  it may take the page out of service, and begin anew
 *   -DSWITCH  the page may be switched off and on
 *   -DSKEWS   the page has a table of skews, which may be changed while it is out of service
 *   -DTORN    the fields of a line are stored and loaded in two steps
 *
 * Steps that no other process could tell from one are one: what is stored between an odd and an
 * even sequence, and what a reader loads in a look that it throws away if the sequence has moved.
 */
#ifndef COUNTER_MAX
#define COUNTER_MAX 4
#endif
#ifndef READERS
#define READERS 1
#endif
#ifndef READS
#define READS 2
#endif
#ifndef UPDATES
#define UPDATES 2
#endif
#define RING 3
#define NONE RING
#define AHEAD 1  /* counts from announcing a switch to the switch */
#define VALID 2  /* counts that a timehands holds */
#define FAR 8    /* what lines this bad can be off by */

#define KERNEL(count) (4 * (count))
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define BEFORE(i) ((i + RING - 1) % RING)
#define AFTER(i) ((i + 1) % RING)

byte counter;

typedef Hands {
    bool odd; /* its sequence */
    byte last, limit, told, base, slope;
    bool off, withdrawn;
#ifdef SKEWS
    byte table; /* the one that it was made with */
#endif
#ifdef TORN
    byte number, number_too /* the line's first and last field */
#endif
}
Hands hands[RING];
byte current;
bool pending; /* one is written that was not turned to */
#ifdef SWITCH
bool disabled;
#endif
#ifdef SKEWS
byte cpus, skew; /* the table's length and an entry: which of the tables they are of */
#endif
#ifdef TORN
byte publications;
#endif

/* The readers' process: where inlined reads are turned to, and what the kernel told last. */
byte shown;
byte told;

byte given; /* the largest reading returned: what later readings are held against */

/* Whether the sequence has moved that a reader has loaded, of which timehands: a sequence never
 * comes back to what it was. */
#define ME (_pid - 3)
byte watched[READERS] = NONE;
bool moved[READERS];

proctype clock() {
    do
    :: atomic { counter < COUNTER_MAX -> counter++ }
    :: counter == COUNTER_MAX -> break
    od
}

#define VALUE(i, count) (hands[i].base + ((count) - hands[i].last) * hands[i].slope)
#define END(i) (hands[i].last + hands[i].limit)

/* The latest that the timehands i can have told. */
#define TOLD_UNTIL(i) \
    (hands[i].slope != 0 && !hands[i].odd && counter >= hands[i].last \
        -> VALUE(i, MIN(counter, hands[i].last + hands[i].told)) : 0)
#define FLOOR MAX(MAX(TOLD_UNTIL(0), TOLD_UNTIL(1)), TOLD_UNTIL(2))

/* ---- The publisher ------------------------------------------------------------------------- */

/* Between any two stores the publisher may be killed; the one that follows takes over. */
#ifdef CRASH
bool crashed;
#define STEP \
    if \
    :: true \
    :: !crashed -> crashed = true; goto takeover \
    fi
#else
#define STEP skip
#endif

#define ALL_BEGUN \
    (counter >= hands[0].last && counter >= hands[1].last && counter >= hands[2].last)

#define LEFT(i, end) (end > hands[i].last -> end - hands[i].last : 0)

inline lower(i, end) {
    atomic {
        if
        :: hands[i].limit > LEFT(i, end) -> hands[i].limit = LEFT(i, end); STEP
        :: else
        fi
    }
}

inline settle(i, end) {
    if
    :: hands[i].told > LEFT(i, end) -> hands[i].told = LEFT(i, end); STEP
    :: else
    fi
}

/* Of one that nobody can read any more both are one step. */
inline end_closed(i, end) {
    atomic {
        if
        :: hands[i].limit > LEFT(i, end) -> hands[i].limit = LEFT(i, end)
        :: else
        fi;
        settle(i, end)
    }
}

/* Besides the current one at most one is in use: the one before it until it begins, or the one
 * after it, by a process that was turned to that place long ago. So both are one step. */
inline turn_all_off() {
    atomic { hands[current].off = true; STEP };
    atomic { hands[BEFORE(current)].off = true; hands[AFTER(current)].off = true; STEP }
}

inline withdraw_all() {
    atomic { hands[current].withdrawn = true; STEP };
    atomic { hands[BEFORE(current)].withdrawn = true; hands[AFTER(current)].withdrawn = true; STEP }
}

/* Ends all when nobody can read them any more, `ahead` from then on. */
inline close_all(ahead) {
    turn_all_off();
    withdraw_all();
    now = counter + ahead;
    end_closed(current, now);
    end_closed(BEFORE(current), now);
    end_closed(AFTER(current), now);
    now = 0
}

inline watch(i) {
    watched[ME] = i;
    moved[ME] = false
}

inline move(i, is_odd) {
    hands[i].odd = is_odd;
    if
    :: watched[0] == i -> moved[0] = true
    :: else
    fi
#if READERS > 1
    ;
    if
    :: watched[1] == i -> moved[1] = true
    :: else
    fi
#endif
}

/* fc_timekeep_page_write up to where the sequence is even again; within an atomic step. */
inline write_next() {
    next = AFTER(current);
    pending = false;
    move(next, true);
#ifdef TORN
    STEP;
    publications++;
    hands[next].number = publications;
    STEP;
#endif
    hands[next].base = base;
    hands[next].last = now;
    base = 0;
    hands[next].limit = VALID;
    hands[next].told = VALID;
    if :: hands[next].slope = 3 :: hands[next].slope = 5 fi;
    hands[next].withdrawn = false;
#ifdef SWITCH
    hands[next].off = disabled;
#else
    hands[next].off = false;
#endif
#ifdef SKEWS
    hands[next].table = cpus;
#endif
    STEP
}

inline close_next() {
#ifdef TORN
    atomic { hands[next].number_too = publications; STEP };
#endif
    atomic { pending = true; hands[next].odd = false; next = 0; STEP }
}

inline turn() {
    atomic { current = AFTER(current); pending = false; now = 0; STEP }
}

proctype publisher() {
    byte now, next, base, updates;
    bool begun = true;
    goto update;
#ifdef CRASH
takeover:
    atomic { now = 0; next = 0; base = 0; begun = false };
    if
    :: ALL_BEGUN
    :: else -> goto update
    fi;
#ifdef SKEWS
    close_all(AHEAD);
    atomic { skew = 0; STEP };
    atomic { cpus = 0; STEP };
#endif
    goto begin;
#endif
update:
    do
    :: updates == UPDATES -> break
    :: updates < UPDATES ->
        updates++;
        if
#ifdef OUTAGE
        :: true ->
            close_all(AHEAD);
            begun = false;
#ifdef SKEWS
            if
            :: true
            :: cpus == 0 ->
                atomic { skew = 1; STEP };
                atomic { cpus = 1; STEP }
            fi
#endif
#endif
#ifdef SWITCH
        :: true ->
            atomic { disabled = !disabled; STEP };
            if
            :: disabled -> turn_all_off()
            :: !disabled -> begun = false
            fi
#endif
        :: true
        fi;
        /* Updates are further apart than a switch is announced ahead. */
        if
        :: ALL_BEGUN
        :: else -> goto update
        fi;
        /* publish_next */
        atomic {
            if
            :: begun && counter + AHEAD - hands[current].last < hands[current].limit ->
                now = counter + AHEAD
            :: else -> goto begin
            fi
        };
        lower(current, now);
        lower(BEFORE(current), now);
        lower(AFTER(current), now);
        if
        :: counter >= now -> goto begin
        :: else
        fi;
        atomic { settle(current, now) };
        atomic { base = VALUE(current, now); write_next() };
        close_next();
        if
        :: counter >= now -> goto begin
        :: else
        fi;
        /* Held up here, the turn comes late, and the readers have asked the kernel. */
        turn();
        goto update;
begin: /* publish_beginning */
        close_all(0);
        if
        :: pending -> turn()
        :: else
        fi;
        atomic {
            now = counter;
            base = FLOOR;
            base = MAX(KERNEL(now) + 1, base);
            write_next();
            now = 0
        };
        close_next();
        turn();
        begun = true
    od
}

/* ---- The readers --------------------------------------------------------------------------- */

#ifdef SKEWS
/* By any table but the one that the timehands was made with the count can be anything. */
#define FITS(i) (table == hands[i].table)
#else
#define FITS(i) true
#endif

#define HOLDS(i, bound) \
    (hands[i].slope != 0 && \
     (!FITS(i) || count >= hands[i].last && count - hands[i].last <= bound))

/* The look's last step, when it is known that the sequence has not moved. */
inline evaluate(i) {
    assert(FITS(i));
#ifdef TORN
    assert(one == hands[i].number && one == hands[i].number_too);
#endif
    value = VALUE(i, count);
    assert(value + FAR >= KERNEL(count) && value <= KERNEL(count) + FAR)
}

#ifdef TORN
#define FIRST_FIELD(i) one = hands[i].number
#else
#define FIRST_FIELD(i) skip
#endif

#if READERS > 1
#define BEFORE_IT before
#else
#define BEFORE_IT given
#endif

inline return_reading() {
    assert(value >= BEFORE_IT && value <= KERNEL(counter) + FAR);
    given = MAX(given, value);
    value = 0; count = 0; index = 0; watched[ME] = NONE; moved[ME] = false;
#if READERS > 1
    before = 0;
#endif
    if
    :: reads == READS && READERS == 1 -> given = 0; told = 0; shown = NONE
    :: else
    fi
}

/* Where another reader can tell them apart, these are steps of their own. */
#if READERS > 1
#define AND_THEN } atomic {
#else
#define AND_THEN ;
#endif

proctype reader() {
    byte value, count, index, reads;
#if READERS > 1
    byte before;
#endif
#ifdef TORN
    byte one;
#endif
#ifdef SKEWS
    byte table;
#endif
    do
    :: reads == READS -> break
    :: reads < READS ->
        /* The inlined read: wherever the process was turned to, however long ago. */
        atomic {
            reads++;
#if READERS > 1
            before = given;
#endif
            index = shown;
            if
            :: index == NONE -> goto call
            :: else
            fi;
            if
            :: hands[index].off || hands[index].odd -> goto call
            :: else -> watch(index)
            fi
        };
        count = counter;
        FIRST_FIELD(index);
        atomic {
            if
            :: !moved[ME] &&
               HOLDS(index, (hands[index].withdrawn -> 0 : hands[index].limit)) ->
                evaluate(index);
                goto done
            :: else
            fi
        };
call: /* The read by call: the current timehands, and the one before it until that begins. */
        atomic {
            count = 0;
            index = current;
#ifdef SWITCH
            if
            :: disabled -> goto kernel
            :: else
            fi;
#endif
            if
            :: hands[index].odd -> goto call
            :: !hands[index].odd && hands[index].off -> goto kernel
            :: else -> watch(index)
            fi
        };
#ifdef SKEWS
        table = cpus;
        atomic { count = counter; table = (table == skew -> skew : 2) };
#else
        count = counter;
#endif
        FIRST_FIELD(index);
        atomic {
            if
            :: moved[ME] -> goto call
            :: else
            fi;
            if
            :: hands[index].off -> goto kernel
            :: else
            fi;
            if
            :: HOLDS(index, hands[index].limit) -> evaluate(index); goto lift
            :: else
            fi;
            if
            :: count >= hands[index].last -> goto kernel
            :: else
            fi
        };
        FIRST_FIELD(BEFORE(index));
        atomic {
            if
            :: moved[ME] || hands[BEFORE(index)].odd -> goto call
            :: else
            fi;
            if
            :: !hands[BEFORE(index)].off && HOLDS(BEFORE(index), hands[BEFORE(index)].limit) ->
                evaluate(BEFORE(index));
                index = NONE
            :: else -> goto kernel
            fi
        };
lift:
        atomic {
            if
            :: value < told -> value = told; index = NONE
            :: else -> told = 0
            fi
            AND_THEN
            if
            :: index != NONE && told == 0 -> shown = index
            :: else
            fi
            AND_THEN
            if
            :: index != NONE && told != 0 -> shown = NONE
            :: else
            fi;
            goto done
        };
kernel:
        value = KERNEL(counter);
        atomic {
            count = told
            AND_THEN
            value = MAX(value, count);
            count = FLOOR;
            value = MAX(value, count)
            AND_THEN
            told = MAX(told, value)
            AND_THEN
            shown = NONE
        };
done:
        atomic { return_reading() }
    od
}

/* A page that serves, and a process that was turned to any of its timehands long ago. */
init {
    atomic {
        current = 1;
        hands[1].base = KERNEL(0) + 1;
        hands[1].limit = VALID;
        hands[1].told = VALID;
        if :: hands[1].slope = 3 :: hands[1].slope = 5 fi;
#ifdef SKEWS
        shown = NONE;
#else
        if :: shown = 0 :: shown = 1 :: shown = 2 fi;
#endif
        run clock();
        run publisher();
        run reader();
#if READERS > 1
        run reader()
#endif
    }
}
