#!/bin/sh
# Searches the model of the timekeep page's protocol, and then models that are broken on purpose, in
# which SPIN has to find something: a search that finds nothing there would prove nothing here.
#
# The search hashes states into a fixed table (SPIN's bitstate mode), which bounds its time and
# memory, and goes about them in a random order, from several seeds: millions of states are visited,
# not all there are.
#
# usage: check_model.sh protocol.pml FOLDER-TO-WORK-IN [BITS-OF-THE-TABLE]
set -eu
model=$(realpath "$1")
work=$2
bits=${3:-22}
seeds="1 2 3 4 5 6 7 8"
rm -rf "$work"
mkdir -p "$work"
cd "$work"

# prepare NAME OPTION... < MODEL: builds the search.
prepare() {
    name=$1
    shift
    mkdir "$name"
    cat > "$name/model.pml"
    (
        cd "$name"
        spin -a "$@" model.pml > spin.log
        cc -O2 -w -DSAFETY -DBITSTATE -DP_RAND -DT_RAND -o pan pan.c
    )
}

# search NAME SEEDS: from one seed after another, until an error is found; prints pan's count.
search() {
    for seed in $2; do
        (cd "$1" && ./pan -m20000 -w"$bits" -k2 -RS"$seed" > pan.log 2>&1) || true
        found=$(grep -o 'errors: [0-9]*' "$1/pan.log")
        if [ "$found" != "errors: 0" ]; then
            break
        fi
    done
    echo "$found"
}

expect() {
    if [ "$2" != "$3" ]; then
        echo "FAILED  $1: $2, expected $3"
        exit 1
    fi
    echo "ok      $1"
}

for size in "-DREADERS=1 -DREADS=2 -DCOUNTER_MAX=5" "-DREADERS=2 -DREADS=1 -DCOUNTER_MAX=4"; do
    name=right$(echo "$size" | tr -d ' =-')
    # shellcheck disable=SC2086
    prepare "$name" $size < "$model"
    expect "no reading goes back, is torn or waits ($size)" "$(search "$name" "1 2")" "errors: 0"
done

# broken NAME SENTENCE SED-EXPRESSION
broken() {
    sed "$3" "$model" > "$1.pml"
    if cmp -s "$1.pml" "$model"; then
        echo "FAILED  $1: the model has changed, and the breakage does not fit"
        exit 1
    fi
    prepare "$1" -DREADERS=1 -DREADS=2 -DCOUNTER_MAX=5 < "$1.pml"
    expect "$2" "$(search "$1" "$seeds")" "errors: 1"
}
broken told "a model that forgets what the kernel told is caught" \
    's/told = MAX(told, value)$/skip/'
broken lost "a model that lifts to the timehands alone is caught" \
    's/floor = told;/floor = 0;/'
broken limit "a model that switches without an announcement is caught" \
    's/^        lower_all(at);$/        skip;/'
broken floor "a model that begins anew without a floor is caught" \
    's/value = MAX(KERNEL(now) + 1, floor);/value = KERNEL(now);/'
broken odd "a model that writes under an even sequence is caught" \
    's/hands\[next\].sequence = hands\[next\].sequence | 1;/skip;/'
