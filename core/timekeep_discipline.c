/* SPDX-License-Identifier: MIT
 *
 * The discipline: how the page follows the kernel's clocks.
 *
 * A sample reads FC_MONOTONIC between two readings of the counter. Where in that bracket the kernel
 * took its time is unknown, so that the middle of the bracket is wrong by at most half its width:
 * of several brackets the narrowest counts, and one that is wide, because something interrupted it,
 * not at all. Two samples give the rate of the kernel's clock in nanoseconds a count.
 *
 * The page's own clock is a chain of straight lines, one for each update, each beginning where the
 * one before ends. Its slope is the kernel's rate plus what makes up the present error by the time
 * of the next update, but never more than SLEW_MAX away from the rate, so that it cannot run
 * backwards or wildly. FC_RAW has a chain of its own, from samples of its own.
 *
 * The kernel may begin to slew its clock the moment after a sample, by 500 ppm to either side of
 * its FC_RAW, and the page would not know before the next one. So the page is vouched for only as
 * long as the worst of it, with the present error, stays below a thousandth of the interval: 10 us
 * for 10 ms, and some 20 ms after a sample where the clock is not being slewed. While it is, the
 * time is shorter, and updates come twice in it. A page that is not updated by then is left by its
 * readers.
 *
 * The other clocks are FC_MONOTONIC plus a distance. A reading of one of them between two of
 * FC_MONOTONIC bounds its distance from both sides without any counter; as long as all these bounds
 * have a common part nothing has changed, and the distance stays exactly as it was. When they have
 * none, the clock was set: that is a step of this clock alone.
 *
 * When the chain breaks (the publisher was late, or the page was out of service) readers have had
 * the kernel's own answers meanwhile. The new line then begins at the latest time that the kernel
 * can have given, and not before where the old one ended: half a bracket ahead at most, which the
 * next updates take back by a smaller slope. So nobody sees time go back here either.
 *
 * Out of service at once, until four samples in a row agree about the rate again: a counter that
 * went back or stood still, two samples in a row that contradict the rate, a change of
 * FC_BOOTTIME's distance (a suspend), and whatever the caller knows of (a migration).
 */
#define FASTCLOCK_INLINE
#include "timekeep.h"

#include <fastclock.h>
#include <string.h>

#include "vdso.h"

#ifdef FC_MODE_COUNTER_

enum {
    SWEEPS_MAX = 4,
    SHIFT_MAX = 32,         /* the kernel's own bound; finer than 10^-9 at any counter's rate */
    AGREED_MIN = 3,         /* samples that have to agree before the counter is trusted */
    BAD_MAX = 2,            /* and those that may contradict */
    SPACE_MIN_NS = 1000000, /* between two samples that are to give a rate */
    REFINING = 16,          /* sweeps after which a distance is fixed */
    AHEAD_MAX_NS = 1000000  /* of the kernel that a line may begin: made up in a second or so */
};

/* Slope and rate as proportions. The kernel's own slewing is bounded by 500 ppm (MAXFREQ of
 * <linux/timex.h>), so that a rate can change by 1000 ppm between two samples. */
static const double kernel_slew_max = 500e-6, slew_max = 1000e-6, rate_move_max = 2000e-6;
/* Between two samples; the kernel's fastest slewing, a tick changed by a tenth, needs 10 ms. */
static const double jump_ns = 1000000;
/* What two samples say about a rate is this much worse than the widths of their brackets allow. */
static const double rate_noise = 0.2e-6;
static const double hz_min = 500000, hz_max = 100e9, ns_per_s = 1e9;

static uint64_t machine_counter(void *context) {
    uint64_t count;
    if (!context)
        return fc_counter_ordered_();
    fc_timekeep_page_count(context, &count); /* the publisher stays where the skews are known */
    return count;
}

static int32_t machine_gettime(void *context, int32_t clock, struct fc_reading *out) {
    (void)context;
    /* Where the kernel's own page serves, its vDSO makes for far narrower brackets; elsewhere it
     * makes the system call itself. */
    return fc_vdso_gettime(clock, out) ? 0 : fc_sys_gettime(clock, out);
}

const struct fc_timekeep_ports fc_timekeep_machine = {machine_counter, machine_gettime, NULL};

void fc_timekeep_discipline_init(struct fc_timekeep_discipline *d, uint64_t interval_ns) {
    memset(d, 0, sizeof *d);
    d->interval_ns = d->next_ns = interval_ns;
}

static double magnitude(double x) {
    return x < 0 ? -x : x;
}

/* ---- Samples ----------------------------------------------------------------------------------
 */

/* A clock's time at the middle of its bracket. */
struct sample {
    uint64_t count, ns;
    uint64_t width; /* counts; 0: none */
};

/* One pass over the clocks, with the counter in between. */
struct sweep {
    uint64_t count[7];
    uint64_t monotonic[3], realtime, other, raw;
    int32_t other_clock;
};

/* Why no sample came of it: a sentence, or NULL if there is one. */
static const char counter_back[] = "the counter went back or stood still";
static const char refused[] = "clock_gettime was refused";

static const char *sweep_clocks(struct fc_timekeep_discipline *d,
                                const struct fc_timekeep_ports *ports, struct sweep *s) {
    static const int32_t others[2] = {FC_BOOTTIME, FC_TAI};
    const int32_t clocks[6] = {FC_MONOTONIC,          FC_REALTIME,  FC_MONOTONIC,
                               others[d->turn++ % 2], FC_MONOTONIC, FC_RAW};
    uint64_t ns[6];
    s->other_clock = clocks[3];
    s->count[0] = ports->counter(ports->context);
    for (int i = 0; i < 6; i++) {
        struct fc_reading reading;
        if (ports->gettime(ports->context, clocks[i], &reading) < 0)
            return refused;
        ns[i] = fc_reading_count(reading);
        s->count[i + 1] = ports->counter(ports->context);
        if ((int64_t)(s->count[i + 1] - s->count[i]) < 0)
            return counter_back;
    }
    s->monotonic[0] = ns[0];
    s->realtime = ns[1];
    s->monotonic[1] = ns[2];
    s->other = ns[3];
    s->monotonic[2] = ns[4];
    s->raw = ns[5];
    return NULL;
}

static void keep_narrowest(struct sample *best, uint64_t before, uint64_t ns, uint64_t after) {
    const uint64_t width = after - before + 1; /* a slow counter's own step */
    if (best->width && best->width <= width)
        return;
    best->count = before + width / 2;
    best->ns = ns;
    best->width = width;
}

/* Takes in that the distance lies between the bounds, which round. Returns whether it has changed.
 */
static bool bound(struct fc_timekeep_distance *distance, bool refining, int64_t low, int64_t high) {
    const int64_t rounding = 2;
    int64_t common_low, common_high;
    low -= rounding;
    high += rounding;
    if (!distance->known) {
        distance->known = true;
        distance->low_ns = low;
        distance->high_ns = high;
        distance->value_ns = low + (high - low) / 2;
        return false;
    }
    common_low = low > distance->low_ns ? low : distance->low_ns;
    common_high = high < distance->high_ns ? high : distance->high_ns;
    if (common_low > common_high) {
        distance->low_ns = low;
        distance->high_ns = high;
        distance->value_ns = low + (high - low) / 2;
        return true;
    }
    distance->low_ns = common_low;
    distance->high_ns = common_high;
    if (refining)
        distance->value_ns = common_low + (common_high - common_low) / 2;
    else if (distance->value_ns < common_low)
        distance->value_ns = common_low;
    else if (distance->value_ns > common_high)
        distance->value_ns = common_high;
    return false;
}

/* Whether a bracket is as narrow as they come on this machine. */
static bool is_narrow(const struct sample *sample, const struct fc_timekeep_line *line) {
    return sample->width && line->narrowest &&
           sample->width <= line->narrowest + line->narrowest / 2;
}

static bool is_usable(const struct sample *sample, const struct fc_timekeep_line *line) {
    return sample->width && sample->width <= 2 * line->narrowest;
}

/* What a good bracket is grows slowly, as the machine's speed may change. */
static void learn_width(struct fc_timekeep_line *line, const struct sample *sample) {
    if (!line->narrowest || sample->width < line->narrowest)
        line->narrowest = sample->width;
    else
        line->narrowest += line->narrowest / 256 + 1;
}

/* What the sweeps of one update found. */
struct found {
    struct sample monotonic, raw;
    bool stepped, suspended;
    bool fresh; /* the lines have taken the samples in */
};

static const char *sample_clocks(struct fc_timekeep_discipline *d,
                                 const struct fc_timekeep_ports *ports, struct found *found) {
    int sweeps = d->proved ? 1 : SWEEPS_MAX;
    memset(found, 0, sizeof *found);
    for (int i = 0; i < sweeps; i++) {
        const bool refining = !d->proved || found->stepped;
        struct sweep s;
        struct fc_timekeep_distance *other;
        const char *fault = sweep_clocks(d, ports, &s);
        if (fault)
            return fault;
        /* A slow counter may stand still during a sweep, but not between two updates. */
        if (d->last_count && (int64_t)(s.count[0] - d->last_count) < (i == 0))
            return counter_back;
        d->last_count = s.count[6];
        keep_narrowest(&found->monotonic, s.count[0], s.monotonic[0], s.count[1]);
        keep_narrowest(&found->monotonic, s.count[2], s.monotonic[1], s.count[3]);
        keep_narrowest(&found->monotonic, s.count[4], s.monotonic[2], s.count[5]);
        keep_narrowest(&found->raw, s.count[5], s.raw, s.count[6]);
        if (bound(&d->realtime, refining, (int64_t)(s.realtime - s.monotonic[1]),
                  (int64_t)(s.realtime - s.monotonic[0])))
            found->stepped = true;
        other = s.other_clock == FC_TAI ? &d->tai : &d->boottime;
        if (bound(other, refining, (int64_t)(s.other - s.monotonic[2]),
                  (int64_t)(s.other - s.monotonic[1]))) {
            if (s.other_clock == FC_TAI)
                found->stepped = true;
            else
                found->suspended = true;
        }
        if (found->stepped || found->suspended || !is_narrow(&found->monotonic, &d->monotonic) ||
            !is_narrow(&found->raw, &d->raw))
            sweeps = SWEEPS_MAX;
        else if (d->proved)
            break;
    }
    learn_width(&d->monotonic, &found->monotonic);
    learn_width(&d->raw, &found->raw);
    return NULL;
}

/* ---- Lines ------------------------------------------------------------------------------------
 */

static double scale(uint32_t shift) {
    return (double)((uint64_t)1 << shift);
}

static double slope_of(const struct fc_timekeep_discipline *d,
                       const struct fc_timekeep_line *line) {
    return line->mult / scale(d->shift);
}

/* `ns` less the line's time at `count`. */
static double ahead_of(const struct fc_timekeep_discipline *d, const struct fc_timekeep_line *line,
                       uint64_t count, uint64_t ns) {
    const uint64_t whole = line->sec * 1000000000u + (line->base >> d->shift);
    const uint64_t part = line->base & (((uint64_t)1 << d->shift) - 1);
    return (double)(int64_t)(ns - whole) - (double)part / scale(d->shift) -
           (double)(int64_t)(count - line->last) * slope_of(d, line);
}

/* Moves the line's beginning along the line, exactly. `count` lies where the line is valid. */
static void advance(const struct fc_timekeep_discipline *d, struct fc_timekeep_line *line,
                    uint64_t count) {
    const uint64_t second = (uint64_t)1000000000 << d->shift;
    line->base += (count - line->last) * line->mult;
    line->last = count;
    while (line->base >= second) {
        line->base -= second;
        line->sec++;
    }
}

/* What the kernel's clock is expected to be at `count`, less the line. */
static double expected_ahead(const struct fc_timekeep_discipline *d,
                             const struct fc_timekeep_line *line, uint64_t count) {
    return ahead_of(d, line, count, line->seen_ns) +
           (double)(int64_t)(count - line->seen_count) * line->rate;
}

/* For how long from `count` on a line that is turned there is within its bound. Line and kernel go
 * apart at most by what the kernel is slewed now and what it can be. A line that is used for twice
 * the time in which it was to make up an error ends with the same error to the other side. */
static double vouched_ns(const struct fc_timekeep_discipline *d, uint64_t count) {
    const struct fc_timekeep_line *line = &d->monotonic;
    const double slewed = magnitude(line->rate / d->raw.rate - 1);
    const double apart = kernel_slew_max + (slewed < kernel_slew_max ? slewed : kernel_slew_max);
    const double bound_ns = (double)d->interval_ns / FC_TIMEKEEP_BOUND;
    const double error_ns = d->begun ? magnitude(expected_ahead(d, line, count)) : 0;
    const double room_ns = bound_ns - error_ns - line->seen_half_width_ns;
    const double least_ns = bound_ns / 4; /* an error beyond the bound has to be made up too */
    return (room_ns > least_ns ? room_ns : least_ns) / apart -
           (double)(int64_t)(count - line->seen_count) * line->rate;
}

/* When the next update is due: twice in the time that is left. */
static void plan(struct fc_timekeep_discipline *d) {
    const double half = vouched_ns(d, d->monotonic.last) / 2, most = (double)d->interval_ns;
    d->next_ns = (uint64_t)(half > most ? most : half < most / 8 ? most / 8 : half);
}

/* Turns the line, at its beginning, so that it meets the kernel when the next update is due. Of an
 * error that is within half a bracket most is noise: a quarter of it is taken. */
static void turn(const struct fc_timekeep_discipline *d, struct fc_timekeep_line *line) {
    const double interval = (double)d->next_ns / line->rate;
    const double ahead_ns = expected_ahead(d, line, line->last);
    const double certain = magnitude(ahead_ns) / (line->seen_half_width_ns + 1);
    const double part = certain > 1 ? 1 : certain < 0.25 ? 0.25 : certain;
    const double most = line->rate * slew_max;
    double correction = ahead_ns * part / interval;
    if (correction > most)
        correction = most;
    if (correction < -most)
        correction = -most;
    line->mult = (uint32_t)((line->rate + correction) * scale(d->shift) + 0.5);
}

/* Begins the line anew at `count`: at the latest time that the kernel can have shown by then, and
 * not before `floor`. False where the kernel has still far to go until there, so that a line would
 * be wrong for long: meanwhile the readers' answers stand still at the floor. */
static bool begin(const struct fc_timekeep_discipline *d, struct fc_timekeep_line *line,
                  uint64_t count, const struct fc_reading *floor) {
    const double since = (double)(int64_t)(count - line->seen_count) * line->rate;
    const double doubt = line->seen_half_width_ns + since * rate_noise;
    uint64_t ns = line->seen_ns + (uint64_t)(since + doubt) + 1;
    if (floor) {
        const int64_t above = (int64_t)(fc_reading_count(*floor) + 1 - ns);
        if (above > AHEAD_MAX_NS && above < FC_TIMEKEEP_HOLD_NS)
            return false;
        if (above > 0 && above <= AHEAD_MAX_NS)
            ns += (uint64_t)above;
    }
    line->last = count;
    line->sec = ns / 1000000000u;
    line->base = (ns % 1000000000u) << d->shift;
    return true;
}

static double half_width_ns(const struct sample *sample, double rate) {
    return (double)sample->width / 2 * rate;
}

static void remember(struct fc_timekeep_line *line, const struct sample *sample) {
    line->seen_count = sample->count;
    line->seen_ns = sample->ns;
    line->seen_half_width_ns = half_width_ns(sample, line->rate);
}

/* How far from the truth a rate can be that was found from the last sample and this one. */
static double rate_doubt(const struct fc_timekeep_line *line, const struct sample *sample) {
    const double elapsed_ns = (double)(sample->ns - line->seen_ns);
    return (half_width_ns(sample, line->rate) + line->seen_half_width_ns) / elapsed_ns + rate_noise;
}

/* Takes a sample into the ring. Returns the rate since the oldest there, 0 if it is the first. */
static double rate_since_oldest(struct fc_timekeep_line *line, const struct sample *sample) {
    const uint32_t places = sizeof line->past_ns / sizeof *line->past_ns;
    const uint32_t oldest = line->past < places ? 0 : line->past % places;
    const double elapsed = (double)(int64_t)(sample->count - line->past_count[oldest]);
    const double rate =
        line->past ? (double)(int64_t)(sample->ns - line->past_ns[oldest]) / elapsed : 0;
    line->past_count[line->past % places] = sample->count;
    line->past_ns[line->past % places] = sample->ns;
    line->past++;
    return rate;
}

/* What a sample says of a clock that is being followed. */
enum verdict {
    FOLLOWED,
    INTERRUPTED,   /* says nothing, and the prediction stands */
    OUT_OF_BOUNDS, /* dropped */
    JUMPED         /* by more than any slewing can explain */
};

static enum verdict follow(struct fc_timekeep_discipline *d, struct fc_timekeep_line *line,
                           const struct sample *sample) {
    const double elapsed = (double)(int64_t)(sample->count - line->seen_count);
    const double found = (double)(int64_t)(sample->ns - line->seen_ns) / elapsed;
    const double moved = found / line->rate - 1;
    const double doubt = rate_doubt(line, sample);
    double rate;
    bool told;
    if (!is_usable(sample, line))
        return INTERRUPTED;
    if (elapsed <= 0)
        return JUMPED;
    if (magnitude(moved) > rate_move_max + doubt)
        return magnitude(moved) * elapsed * line->rate > jump_ns ? JUMPED : OUT_OF_BOUNDS;
    if (magnitude(moved) > doubt) { /* the kernel's rate has changed: what was before is history */
        const struct sample last = {line->seen_count, line->seen_ns, 0};
        line->past = 0;
        rate_since_oldest(line, &last);
    }
    rate = rate_since_oldest(line, sample);
    if (rate > 0)
        line->rate = rate;
    /* What nobody was told any more is no error. */
    told = d->begun && (int64_t)(sample->count - line->last) <= (int64_t)d->valid_cycles;
    line->error_ns = told ? ahead_of(d, line, sample->count, sample->ns) : 0;
    remember(line, sample);
    return FOLLOWED;
}

/* Whether the sample agrees with those before about the rate; before the first two there is none.
 */
static bool agrees(struct fc_timekeep_line *line, const struct sample *sample, uint32_t agreed) {
    const double elapsed = (double)(int64_t)(sample->count - line->seen_count);
    const double found = (double)(int64_t)(sample->ns - line->seen_ns) / elapsed;
    bool same;
    if (!line->seen_count || elapsed <= 0 || found < ns_per_s / hz_max ||
        found > ns_per_s / hz_min) {
        line->rate = 0;
        remember(line, sample);
        return false;
    }
    same = agreed == 0 || magnitude(found / line->rate - 1) < rate_doubt(line, sample);
    line->rate = same && agreed ? line->rate + (found - line->rate) / (agreed + 1) : found;
    remember(line, sample);
    return same;
}

/* ---- Publishing -------------------------------------------------------------------------------
 */

static void put_base(const struct fc_timekeep_discipline *d, struct fc_timekeep_base *base,
                     const struct fc_timekeep_line *line, int64_t distance_ns) {
    const int64_t second_ns = 1000000000;
    const uint64_t second = (uint64_t)second_ns << d->shift;
    int64_t sec = distance_ns / second_ns, ns = distance_ns % second_ns;
    if (ns < 0) {
        ns += second_ns;
        sec--;
    }
    base->sec = line->sec + (uint64_t)sec;
    base->nsec = line->base + ((uint64_t)ns << d->shift);
    if (base->nsec >= second) {
        base->nsec -= second;
        base->sec++;
    }
}

static uint64_t clamp32(double x) {
    return x < 4294967295.0 ? (uint64_t)x : 4294967295u;
}

/* Turns the lines at their beginning, and publishes them. */
static void publish(struct fc_timekeep_discipline *d, struct fc_timekeep *page, bool by_readers) {
    const double vouched = vouched_ns(d, d->monotonic.last), valid_ns = vouched > 0 ? vouched : 0;
    struct fc_timekeep_values v;
    plan(d);
    turn(d, &d->monotonic);
    turn(d, &d->raw);
    fc_timekeep_page_note(&page->next_ns, d->next_ns);
    memset(&v, 0, sizeof v);
    v.last = d->monotonic.last;
    v.valid_ns = (uint64_t)valid_ns;
    v.valid_cycles = d->valid_cycles = clamp32(valid_ns / d->monotonic.rate);
    v.max_cycles = v.valid_cycles;
    if (by_readers && (double)d->next_ns < valid_ns)
        v.max_cycles = clamp32((double)d->next_ns / d->monotonic.rate);
    v.mask = FC_COUNTER_MASKED_ ? ((uint64_t)1 << 56) - 1 : UINT64_MAX;
    v.mode = !d->enabled  ? FC_TIMEKEEP_MODE_OFF
             : page->cpus ? FC_TIMEKEEP_MODE_SKEWED
                          : FC_TIMEKEEP_MODE_COUNTER;
    v.shift = d->shift;
    v.mult = d->monotonic.mult;
    v.raw_mult = d->raw.mult;
    v.steps = d->steps;
    v.error_ns = (int64_t)d->monotonic.error_ns;
    put_base(d, &v.base[FC_MONOTONIC], &d->monotonic, 0);
    put_base(d, &v.base[FC_REALTIME], &d->monotonic, d->realtime.value_ns);
    put_base(d, &v.base[FC_BOOTTIME], &d->monotonic, d->boottime.value_ns);
    put_base(d, &v.base[FC_TAI], &d->monotonic, d->tai.value_ns);
    put_base(d, &v.raw, &d->raw, 0);
    v.base[FC_REALTIME_COARSE] = v.base[FC_REALTIME];
    v.base[FC_REALTIME_COARSE].nsec >>= d->shift;
    v.base[FC_MONOTONIC_COARSE] = v.base[FC_MONOTONIC];
    v.base[FC_MONOTONIC_COARSE].nsec >>= d->shift;
    fc_timekeep_page_write(page, &v);
}

/* How a publication ended. */
enum published {
    PUBLISHED,
    TOO_LATE,     /* the timehands in force had ended before, or ended before readers could know, or
                     the sample is too old */
    TOO_FAR_AHEAD /* readers were told what the kernel has still far to go to */
};

/* Goes on from the timehands in force. */
static enum published publish_next(struct fc_timekeep_discipline *d, struct fc_timekeep *page,
                                   const struct fc_timekeep_ports *ports, bool by_readers) {
    const uint64_t ahead = (uint64_t)(FC_TIMEKEEP_SWITCH_NS / d->monotonic.rate);
    const struct fc_timekeep_hands *hands = &page->hands[page->current % FC_TIMEKEEP_HANDS];
    const uint64_t now = ports->counter(ports->context), at = now + ahead;
    if (hands->fine.last != d->monotonic.last || (int64_t)(now - hands->fine.last) < 0 ||
        at - hands->fine.last >= hands->valid_cycles || vouched_ns(d, at) < FC_TIMEKEEP_SWITCH_NS)
        return TOO_LATE;
    fc_timekeep_page_end(page, at);
    /* Held up in between, readers may have gone on until now. */
    if ((int64_t)(ports->counter(ports->context) - at) >= 0)
        return TOO_LATE;
    fc_timekeep_page_settle(page, at);
    advance(d, &d->monotonic, at);
    advance(d, &d->raw, at);
    publish(d, page, by_readers);
    if ((int64_t)(ports->counter(ports->context) - at) >= 0)
        return TOO_LATE;
    fc_timekeep_page_turn(page);
    return PUBLISHED;
}

/* Begins both lines anew, not before the last time that the page has told. Not where that is too
 * far ahead of the kernel, nor by a sample that is too old by now. */
static enum published publish_beginning(struct fc_timekeep_discipline *d, struct fc_timekeep *page,
                                        const struct fc_timekeep_ports *ports, bool by_readers) {
    struct fc_reading monotonic, raw;
    bool floored, raw_floored;
    uint64_t now;
    /* Closed before the counter is read: where this is held up, nobody goes on beyond the end. */
    fc_timekeep_page_close(page);
    now = ports->counter(ports->context);
    fc_timekeep_page_end(page, now);
    fc_timekeep_page_settle(page, now);
    fc_timekeep_page_keep(page);
    floored = fc_timekeep_page_floor(page, FC_MONOTONIC, now, &monotonic);
    raw_floored = fc_timekeep_page_floor(page, FC_RAW, now, &raw);
    now = ports->counter(ports->context);
    d->begun = false;
    if (vouched_ns(d, now) < FC_TIMEKEEP_SWITCH_NS)
        return TOO_LATE;
    if (!begin(d, &d->monotonic, now, floored ? &monotonic : NULL) ||
        !begin(d, &d->raw, now, raw_floored ? &raw : NULL))
        return TOO_FAR_AHEAD;
    d->begun = true;
    publish(d, page, by_readers);
    fc_timekeep_page_turn(page);
    return PUBLISHED;
}

void fc_timekeep_outage(struct fc_timekeep_discipline *d, struct fc_timekeep *page,
                        const struct fc_timekeep_ports *ports, const char *why) {
    const double rate = d->monotonic.rate;
    const uint64_t ahead = rate > 0 ? (uint64_t)(FC_TIMEKEEP_SWITCH_NS / rate) : 0;
    uint64_t end;
    /* What the page has told until now, right or wrong, is the floor of what comes. Closed first:
     * where this is held up, no reading goes on beyond the end. */
    fc_timekeep_page_close(page);
    if (page->in_service) {
        d->outages++;
        fc_timekeep_page_note(&page->outages, d->outages);
        fc_timekeep_page_note32(&page->in_service, 0);
    }
    end = ports->counter(ports->context) + ahead;
    fc_timekeep_page_end(page, end);
    fc_timekeep_page_settle(page, end);
    d->outage = why;
    d->proved = d->begun = false;
    d->agreed = d->bad = 0;
    d->last_count = 0;
    d->worst_error_ns = 0;
    d->realtime.known = d->boottime.known = d->tai.known = false;
    d->monotonic.seen_count = d->raw.seen_count = 0;
    d->monotonic.past = d->raw.past = 0;
    d->monotonic.narrowest = d->raw.narrowest = 0;
}

/* A sample while the counter is not yet trusted. Returns whether it is now. */
static bool prove(struct fc_timekeep_discipline *d, const struct found *found) {
    const struct sample *m = &found->monotonic;
    const double most = 1.01; /* room above the larger rate for slewing */
    double rate;
    bool both;
    if (!is_usable(m, &d->monotonic) || !is_usable(&found->raw, &d->raw))
        return false;
    if (d->monotonic.seen_count && m->ns - d->monotonic.seen_ns < SPACE_MIN_NS)
        return false;
    both = agrees(&d->monotonic, m, d->agreed);
    both = agrees(&d->raw, &found->raw, d->agreed) && both;
    d->agreed = both ? d->agreed + 1 : 0;
    if (d->agreed < AGREED_MIN || !d->realtime.known || !d->boottime.known || !d->tai.known)
        return false;
    rate = d->monotonic.rate > d->raw.rate ? d->monotonic.rate : d->raw.rate;
    for (d->shift = SHIFT_MAX; d->shift > 0; d->shift--)
        if (rate * most * scale(d->shift) < 4294967295.0)
            break;
    d->proved = true;
    d->begun = false;
    d->bad = 0;
    return true;
}

/* Takes in what was found while the counter is trusted. Returns why it is not any more, or NULL. */
static const char *follow_both(struct fc_timekeep_discipline *d, struct found *found) {
    const uint64_t patience_ns = d->interval_ns * 100;
    const enum verdict monotonic = follow(d, &d->monotonic, &found->monotonic);
    const enum verdict raw = follow(d, &d->raw, &found->raw);
    found->fresh = monotonic == FOLLOWED;
    if (monotonic == JUMPED || raw == JUMPED)
        return "counter and kernel went apart";
    if (found->monotonic.ns - d->monotonic.seen_ns > patience_ns ||
        found->raw.ns - d->raw.seen_ns > patience_ns)
        return "no sample was good enough for too long";
    if (monotonic == FOLLOWED && raw == FOLLOWED) {
        d->bad = 0;
        return NULL;
    }
    d->dropped++;
    if ((monotonic == OUT_OF_BOUNDS || raw == OUT_OF_BOUNDS) && ++d->bad >= BAD_MAX)
        return "counter and kernel disagree about the rate";
    return NULL;
}

static void account(struct fc_timekeep_discipline *d, struct fc_timekeep *page,
                    const struct found *found) {
    if (found->stepped)
        d->steps++;
    if (magnitude(d->monotonic.error_ns) > d->worst_error_ns)
        d->worst_error_ns = magnitude(d->monotonic.error_ns);
    fc_timekeep_page_note(&page->worst_error_ns, (uint64_t)d->worst_error_ns);
    fc_timekeep_page_note(&page->steps, d->steps);
    fc_timekeep_page_note(&page->dropped, d->dropped);
}

enum fc_timekeep_end fc_timekeep_update(struct fc_timekeep_discipline *d, struct fc_timekeep *page,
                                        const struct fc_timekeep_ports *ports, bool by_readers) {
    struct found found;
    enum published published;
    bool enabled;
    const char *fault = sample_clocks(d, ports, &found);
    d->next_ns = d->interval_ns;
    fc_timekeep_page_note(&page->heartbeat, page->heartbeat + 1);
    if (fault) {
        fc_timekeep_outage(d, page, ports, fault);
        return fault == refused ? FC_TIMEKEEP_FAILS : FC_TIMEKEEP_PROVES;
    }
    fc_timekeep_page_note(&page->heartbeat_ns, found.monotonic.ns + (uint64_t)d->boottime.value_ns);
    if (found.suspended && d->proved) {
        fc_timekeep_outage(d, page, ports, "the machine was suspended");
        return FC_TIMEKEEP_PROVES;
    }
    if (!d->proved) {
        if (!prove(d, &found))
            return FC_TIMEKEEP_PROVES;
        d->worst_error_ns = d->monotonic.error_ns = 0;
        found.fresh = true;
    } else if ((fault = follow_both(d, &found))) {
        fc_timekeep_outage(d, page, ports, fault);
        return FC_TIMEKEEP_PROVES;
    }
    account(d, page, &found);
    enabled = __atomic_load_n(&page->wanted, __ATOMIC_RELAXED) != 0;
    if (enabled != (page->enabled != 0))
        fc_timekeep_page_enable(page, enabled);
    /* While it was off, readers had the kernel's answers: the chain is broken. */
    if (enabled && !d->enabled)
        d->begun = false;
    d->enabled = enabled;
    published = d->begun ? publish_next(d, page, ports, by_readers) : TOO_LATE;
    /* How late the kernel's clock may be by now needs a sample of now. */
    if (published != PUBLISHED)
        published = found.fresh ? publish_beginning(d, page, ports, by_readers) : TOO_LATE;
    if (published == TOO_FAR_AHEAD && page->in_service) {
        d->outage = "the kernel has to catch up with what readers were told";
        fc_timekeep_page_note32(&page->in_service, 0);
    }
    if (published != PUBLISHED) {
        d->begun = false;
        return FC_TIMEKEEP_PROVES;
    }
    fc_timekeep_page_note32(&page->in_service, 1);
    return FC_TIMEKEEP_SERVES;
}

#endif /* FC_MODE_COUNTER_ */
