/* SPDX-License-Identifier: MIT
 *
 * A model of the timekeep page's protocol, for SPIN: one publisher that may be held up between any
 * two of its steps and may be killed once at any of them, its successor, and readers in one
 * process. See docs/timekeep.md for the protocol in prose, and core/timekeep_page.c,
 * core/timekeep_discipline.c (publish_next, publish_beginning) and core/timekeep.c
 * (fc_timekeep_read, fc_timekeep_lift) for what is modelled.
 *
 * Claims, for every interleaving: a reading that began after another one was returned is not
 * smaller; no reading is made of two publications; readers never wait (they have no blocking step,
 * and the model has no invalid end state); a reading is never far from the kernel's clock.
 *
 * The counter advances whenever it likes. The kernel's clock is 4 * counter; the publisher's lines
 * have slopes of 3 or 5, worse than any real one, and begin up to 1 ahead. A ring of three
 * timehands instead of four leaves a reader less room, not more. Memory is sequentially consistent
 * here; what keeps it so in C is checked in the disassembly.
 */

/* How far the search goes; check_model.sh has the sizes that are searched in full. */
#ifndef COUNTER_MAX
#define COUNTER_MAX 5
#endif
#ifndef READERS
#define READERS 2
#endif
#ifndef READS
#define READS 1
#endif
#ifndef UPDATES
#define UPDATES 2
#endif
#define RING 3
#define AHEAD 1  /* counts from announcing a switch to the switch */
#define VALID 3  /* counts that a timehands holds */
#define FAR 8    /* what lines this bad can be off by */

#define KERNEL(count) (4 * (count))
#define MIN(a, b) ((a) < (b) -> (a) : (b))
#define MAX(a, b) ((a) > (b) -> (a) : (b))

byte counter;

typedef Hands {
    byte sequence, last, limit, base, slope, number;
    byte number_too /* written last: a reading of two publications has two numbers */
}
Hands hands[RING];
byte current, publications;
bool crashed;

/* The readers' process: where inlined reads are turned to, and what the kernel told last. */
byte shown = RING; /* none */
byte told;

byte given; /* the largest reading returned: what later readings are held against */

active proctype clock() {
    do
    :: counter < COUNTER_MAX -> counter++
    :: counter == COUNTER_MAX -> break
    od
}

#define VALUE(i, count) (hands[i].base + (count - hands[i].last) * hands[i].slope)

/* Between any two stores the publisher may be killed; the one that follows takes over. */
#define STEP \
    if \
    :: true \
    :: !crashed -> crashed = true; goto takeover \
    fi

inline lower(i, end) {
    atomic {
        if
        :: hands[i].last + hands[i].limit > end ->
            hands[i].limit = (end > hands[i].last -> end - hands[i].last : 0);
            STEP
        :: else
        fi
    }
}

inline lower_all(end) {
    lower(current, end);
    lower((current + RING - 1) % RING, end);
    lower((current + RING - 2) % RING, end)
}

/* What a line consists of is one store here: the numbers before and after it tell whether a reading
 * is made of two publications, whichever of its fields is torn. */
inline write_next(from, value, rate) {
    atomic {
        next = (current + 1) % RING;
        hands[next].sequence = hands[next].sequence | 1;
        STEP
    };
    atomic { publications++; hands[next].number = publications; STEP };
    atomic {
        hands[next].last = from;
        hands[next].limit = VALID;
        hands[next].base = value;
        hands[next].slope = rate;
        STEP
    };
    atomic { hands[next].number_too = publications; STEP };
    atomic { hands[next].sequence = (hands[next].sequence + 1) % 16; STEP }
}

inline turn() {
    atomic { current = next; STEP }
}

/* The latest that the timehands i can have told. */
inline told_until(i) {
    if
    :: hands[i].slope != 0 && hands[i].sequence % 2 == 0 && counter >= hands[i].last ->
        floor = MAX(floor, VALUE(i, MIN(counter, hands[i].last + hands[i].limit)))
    :: else
    fi
}

active proctype publisher() {
    byte now, at, value, rate, next, floor, updates;
    goto begin;
takeover: skip;
    d_step { now = 0; at = 0; value = 0; rate = 0; next = 0; floor = 0 }
begin:
    now = counter;
    lower_all(now);
    d_step { floor = 0; told_until(0); told_until(1); told_until(2) }
    atomic {
        now = counter;
        /* The latest that the kernel can have told by now, and rounded up. */
        value = MAX(KERNEL(now) + 1, floor);
        floor = 0;
        if :: rate = 3 :: rate = 5 fi
    };
    write_next(now, value, rate);
    turn();
    goto update;
late: /* as begin, with the line continued to now for a floor */
    lower_all(counter);
    d_step { now = counter; floor = value + (now - at) * rate }
    atomic {
        now = counter;
        value = MAX(KERNEL(now) + 1, floor);
        floor = 0;
        if :: rate = 3 :: rate = 5 fi
    };
    write_next(now, value, rate);
    turn();
update:
    do
    :: updates < UPDATES ->
        atomic {
            updates++;
            now = counter;
            if
            :: now + AHEAD - hands[current].last >= hands[current].limit -> goto begin
            :: else
            fi;
            at = now + AHEAD;
            rate = hands[current].slope;
            value = VALUE(current, at)
        };
        lower_all(at);
        if
        :: counter >= at -> goto late
        :: else
        fi;
        if :: rate = 3 :: rate = 5 fi;
        write_next(at, value, rate);
        if
        :: counter >= at -> goto late
        :: else
        fi;
        /* Held up here, the turn comes late, and the readers have asked the kernel. */
        turn()
    :: break
    od
}

/* One look at the timehands i, as in inline.h: sequence, counter, limit, line, sequence. */
inline look(i) {
    atomic { ok = false; sequence = hands[i].sequence };
    if
    :: sequence % 2 == 0 ->
        count = counter;
        d_step { last = hands[i].last; limit = hands[i].limit };
        if
        :: count >= last && count - last <= limit ->
            d_step {
                one = hands[i].number;
                value = hands[i].base + (count - last) * hands[i].slope
            };
            other = hands[i].number_too;
            atomic {
                ok = (hands[i].sequence == sequence) && hands[i].slope != 0;
                assert(!ok || one == other)
            }
        :: else
        fi
    :: else
    fi
}

inline return_reading() {
    d_step {
        assert(value >= before);
        assert(value + FAR >= KERNEL(began) && value <= KERNEL(counter) + FAR);
        given = MAX(given, value);
        value = 0; count = 0; last = 0; limit = 0; sequence = 0; one = 0; other = 0; ok = false;
        index = 0; before = 0; began = 0
    }
}

active [READERS] proctype reader() {
    byte value, count, last, limit, sequence, one, other, index, before, began, reads, floor;
    bool ok;
    do
    :: reads < READS ->
        reads++;
        d_step { before = given; began = counter }
        /* The inlined read: wherever the process was turned to, however long ago. */
        index = shown;
        if
        :: index < RING -> look(index)
        :: else
        fi;
        if
        :: ok -> goto done
        :: else
        fi;
        /* The read by call: the current timehands, and the one before it until that begins. */
        index = current;
        look(index);
        if
        :: ok ->
            if
            :: value < told -> value = told
            :: else -> d_step { told = 0; shown = index }
            fi;
            goto done
        :: else
        fi;
        index = (index + RING - 1) % RING;
        look(index);
        if
        :: ok -> value = MAX(value, told); goto done
        :: else
        fi;
        /* The kernel. */
        value = KERNEL(counter);
        d_step {
            floor = told;
            told_until(0); told_until(1); told_until(2);
            value = MAX(value, floor);
            floor = 0;
            told = MAX(told, value)
        }
    done: skip;
        return_reading()
    :: break
    od
}
