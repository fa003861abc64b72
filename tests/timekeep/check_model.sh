#!/bin/sh
# Searches the model of the timekeep page's protocol, and then models that are broken on purpose, in
# which SPIN has to find something: a search that finds nothing there would prove nothing here.
#
# Small configurations are searched exhaustively: every state that there is; pan's own word that it
# did so is looked for. Larger ones are too large for that: there states are hashed into a fixed
# table (SPIN's bitstate mode), which bounds time and memory, in a random order, from several seeds.
#
# usage: check_model.sh protocol.pml FOLDER-TO-WORK-IN [BITS-OF-THE-TABLE]
set -eu
model=$(realpath "$1")
work=$2
bits=${3:-22}
seeds="1 2 3"
rm -rf "$work"
mkdir -p "$work"
cd "$work"

fail() {
    echo "FAILED  $*"
    exit 1
}

# prepare MODEL "SPIN-OPTIONS" "COMPILER-OPTIONS": builds the search, in a folder of its own.
prepare() {
    rm -rf search
    mkdir search
    cp "$1" search/model.pml
    (
        cd search
        # shellcheck disable=SC2086
        spin -a $2 model.pml > spin.log
        # shellcheck disable=SC2086
        cc -O2 -w -DSAFETY $3 -o pan pan.c
    )
}

# run PAN-OPTION...: searches. pan says what came of it, and its exit code nothing.
run() {
    (cd search && ./pan -m20000 "$@" > pan.log 2>&1) || true
    errors=$(grep -o 'errors: [0-9]*' search/pan.log) || fail "$(cat search/pan.log)"
    states=$(awk '/states, stored/ { print $1; exit }' search/pan.log)
    seconds=$(awk '/elapsed time/ { print $4 }' search/pan.log)
}

# exhaustive SENTENCE OPTION...
exhaustive() {
    sentence=$1
    shift
    prepare "$model" "$*" "-DCOLLAPSE -DMEMLIM=2000"
    run -w22
    [ "$errors" = "errors: 0" ] || fail "$sentence ($*): $errors"
    if ! grep -q '^Full statespace search' search/pan.log ||
        grep -qE 'not completed|max search depth|MEMLIM' search/pan.log; then
        fail "$sentence ($*): the search is not exhaustive: $(cat search/pan.log)"
    fi
    echo "ok      $sentence: exhaustive, $states states in $seconds s ($*)"
}

# sampled SENTENCE OPTION...
sampled() {
    sentence=$1
    shift
    prepare "$model" "$*" "-DBITSTATE -DP_RAND -DT_RAND"
    for seed in $seeds; do
        run -w"$bits" -k2 -RS"$seed"
        [ "$errors" = "errors: 0" ] || fail "$sentence ($*, seed $seed): $errors"
        echo "ok      $sentence: seed $seed, $states states in $seconds s, not all there are ($*)"
    done
}

# broken SENTENCE SED-EXPRESSION OPTION...
broken() {
    sentence=$1
    sed "$2" "$model" > broken.pml
    if cmp -s broken.pml "$model"; then
        fail "$sentence: the model has changed, and the breakage does not fit"
    fi
    shift 2
    prepare broken.pml "$*" "-DCOLLAPSE -DMEMLIM=2000"
    run -w22
    [ "$errors" = "errors: 1" ] || fail "$sentence is not caught ($*): $errors, $states states"
    grep -q 'assertion violated' search/pan.log || fail "$sentence: $(cat search/pan.log)"
    echo "ok      $sentence is caught, after $states states"
}

claim="no reading goes back, is torn or waits"
exhaustive "$claim" -DUPDATES=2 -DCOUNTER_MAX=3
exhaustive "$claim, with a publisher that is killed" -DCRASH -DUPDATES=1 -DCOUNTER_MAX=3
exhaustive "$claim, with outages and changes of the skews" -DOUTAGE -DSKEWS -DUPDATES=1
exhaustive "$claim, with outages" -DOUTAGE -DUPDATES=1
exhaustive "$claim, with the switch" -DSWITCH -DUPDATES=2 -DCOUNTER_MAX=2
exhaustive "$claim, with two readers" -DREADERS=2 -DREADS=1 -DUPDATES=1 -DCOUNTER_MAX=1
exhaustive "$claim, with lines in two parts" -DTORN -DUPDATES=2 -DREADS=1 -DCOUNTER_MAX=2

sampled "$claim, with all of it" -DCRASH -DOUTAGE -DSWITCH -DUPDATES=3 -DCOUNTER_MAX=5
sampled "$claim, with two readers" -DREADERS=2 -DCRASH -DOUTAGE -DUPDATES=2
sampled "$claim, with skews and a publisher that is killed" -DCRASH -DOUTAGE -DSKEWS -DUPDATES=3

small="-DUPDATES=1 -DCOUNTER_MAX=3"
# shellcheck disable=SC2086
{
    broken "a process that forgets what the kernel told" \
        's/told = MAX(told, value)$/skip/' $small
    broken "a switch without an announcement" \
        's/^        lower(current, now);$/        skip;/' $small
    broken "an end that is taken for granted before it was seen in time" \
        's/hands\[i\].limit = LEFT(i, end); STEP/hands[i].limit = LEFT(i, end); hands[i].told = MIN(hands[i].told, LEFT(i, end)); STEP/' \
        $small
    broken "a beginning without a floor" \
        's/base = MAX(KERNEL(now) + 1, base);/base = KERNEL(now) + 1;/' $small
    broken "a beginning that does not close what is in force" \
        's/^        close_all(0);$/        now = counter; end_closed(current, now); now = 0;/' $small
    broken "a beginning in the place of one that was not turned to" \
        's/^        :: pending -> turn()$/        :: pending -> skip/' $small
    broken "inlined reads that stay turned to what is over" \
        's/^            shown = NONE$/            skip/' $small
    broken "a line written under an even sequence" \
        's/^    move(next, true);$/    skip;/' -DTORN -DUPDATES=2 -DREADS=1 -DCOUNTER_MAX=2
    broken "an outage that does not withdraw" \
        's/^    withdraw_all();$/    skip;/' -DOUTAGE $small
    broken "an outage that leaves the mode" \
        's/^    turn_all_off();$/    skip;/' -DOUTAGE $small
    broken "a return from an outage without a floor" \
        's/^            base = FLOOR;$/            base = 0;/' -DOUTAGE $small
    broken "a floor that leaves out what is switched off" \
        's/(hands\[i\].slope != 0 \&\& !hands\[i\].odd/(hands[i].slope != 0 \&\& !hands[i].off \&\& !hands[i].odd/' \
        -DSWITCH $small
    broken "a table of skews that is changed in service" \
        's/^            close_all(AHEAD);$/            skip;/' -DOUTAGE -DSKEWS $small
}
