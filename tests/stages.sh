#!/bin/sh
# `make test`: everything that CI runs, in stages. Each says how long it took, a failure hides none
# of the others, and the end of a stage's output is shown where it failed; the whole is in
# target/test either way.
#
# The live tests wait most of the time, so many run at once (AT_ONCE=, and three of LONG), and what
# computes runs next to them at the lowest priority; the unit tests, some of which have time-outs, at
# a higher one. LONG are those that would begin late by their names and that everything would wait
# for at the end; they begin with the first. ALONE are those that keep the cores busy themselves, or
# measure what others would spoil; they come last. Before them come the PAIRED, which many others
# would spoil, but which do not spoil each other.
set -u
cd "$(dirname "$0")/.."

ALONE='faults_reader::a_line_without_end
figures::clock::
loss::flow::a_full_cache
rest::imitated::whatever_a_server'

PAIRED='loss::caps::
loss::hangs::a_hang_with_10_000'

LONG='finished::unproved::
loss::network::
node_events::a_script
one_thread::trace
rest::figures::
rest::inventive::
status::ticks_that_carbon'

# Clippy's driver is the compiler with lints: a run of its own for them takes two minutes of a core.
compiler=
if [ -n "${CI-}" ] || command -v clippy-driver >/dev/null; then
    compiler='env RUSTC_WORKSPACE_WRAPPER=clippy-driver'
fi

AT_ONCE=${AT_ONCE:-8}
logs=${CARGO_TARGET_DIR:-target}/test
# CI builds once: without the means to build a part again it takes less time.
[ -z "${CI-}" ] || export CARGO_INCREMENTAL=0
mkdir -p "$logs"
rm -f "$logs"/*
begin=$(date +%s)

# stage NAME COMMAND...: runs it, and writes what became of it into the table.
stage() {
    name=$1 start=$(date +%s)
    shift
    if "$@" >"$logs/$name.log" 2>&1; then result=ok; else result=FAILED; fi
    # In one piece: stages run side by side.
    line=$(printf '%-24s %-6s %4s s' "$name" $result $(($(date +%s) - start)))
    echo "$line" >>"$logs/table"
    if [ $result = ok ]; then
        echo "$line"
    else
        # A reader of only its beginning sees the error too.
        printf '%s\n%s\n%s\n' "$line" "$(grep -v '^ *Compiling ' "$logs/$name.log" | tail -n 300)" "$line"
    fi
}

# The program of all live tests.
live() {
    program=$(sed -n 's/.*(\(.*live_tests-[0-9a-f]*\))$/\1/p' "$logs/build.log")
    "$program" --format=pretty "$@"
}

waiting() {
    set -f
    # shellcheck disable=SC2046,SC2086
    live --test-threads="$AT_ONCE" $(printf -- '--skip %s ' $ALONE $PAIRED $LONG)
}

# these LOG THREADS NAME...
these() (
    set -f
    log=$1 threads=$2
    shift 2
    live --test-threads="$threads" "$@" || exit 1
    # A name that fits no test is no success.
    for test in "$@"; do
        grep -q "^test $test.* ok" "$logs/$log.log" || { echo "no test passed of those named $test"; exit 1; }
    done
)

# Generated files, regular expressions of Carbon's and macros of RPM are as wide as they are.
format() {
    cargo fmt --all --check && ! git ls-files '*.rs' '*.sh' '*.py' '*.c' '*.mjs' '*.jsx' '*.toml' \
        Makefile Dockerfile systemd config/carbon packaging/debian |
        xargs grep -nE '^.{121,}' | grep -v ':pattern = '
}

# shellcheck disable=SC2086
build() {
    # Cargo builds no programs of other packages for a test.
    $compiler cargo build --locked --workspace --all-targets &&
        $compiler cargo test --locked --workspace --no-run
}

lints() {
    ! grep -A 20 '^warning' "$logs/build.log"
}

# What runs in the background does not hear of Ctrl-C by itself.
trap 'trap - INT TERM; kill 0' INT TERM

stage format format
stage build build
! grep -q 'build *FAILED' "$logs/table" || exit 1
if [ -n "$compiler" ]; then
    stage clippy lints
else
    echo 'clippy is left out: this Rust has none; that of rustup has' | tee -a "$logs/table"
fi
{
    # shellcheck disable=SC2086
    stage unit nice -n 5 $compiler cargo test --locked --workspace --exclude live-tests --no-fail-fast
    stage headers nice -n 19 sh tests/releases/headers.sh
} &
# shellcheck disable=SC2086
stage long these long 3 $LONG &
stage live waiting
wait
# shellcheck disable=SC2086
stage paired these paired 2 $PAIRED
# shellcheck disable=SC2086
stage alone these alone 1 $ALONE

printf '\n%s\n%-24s %-6s %4s s\n' "$(cat "$logs/table")" all '' $(($(date +%s) - begin))
! grep -q FAILED "$logs/table"
