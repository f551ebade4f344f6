#!/bin/sh
# `make releases`: the reader of every release against a slurmctld of that release, and of the next,
# below target/releases: Debian's in chroots, the others built from the git clone of Slurm that
# SLURM_GIT names. Arguments are the suites or branches to run instead of all. RECORD=1 keeps what
# was read as the recordings of crates/daemon/tests. PROGRAMS=DIR takes the programs in DIR, such as
# bin/ of the tarball, for Debian's releases.
set -eu
. "$(dirname "$0")/common.sh"

wanted=${*:-$(all | cut -d ' ' -f 1)}
sources= roots=
for suite in $wanted; do
    case $suite in
    slurm-*) sources="$sources $suite" ;;
    *) roots="$roots $suite" ;;
    esac
done
if [ -n "$sources" ] && [ -z "${SLURM_GIT:-}" ]; then
    say "SKIPPED, NOT RUN:$sources: in no Debian; SLURM_GIT names a git clone of Slurm, from which they are built"
    wanted=$roots sources=
fi
# shellcheck disable=SC2086
[ -z "$roots" ] || sh "$here/roots.sh" $roots
cargo build --quiet --locked --workspace
cargo test --quiet --locked -p live-tests --no-run
[ -z "$roots" ] || sh "$here/readers.sh"
# shellcheck disable=SC2086
[ -z "$sources" ] || sh "$here/source.sh" $sources
export RUST_BACKTRACE=0
outcome=$releases/outcome
mkdir -p "$releases"
: >"$outcome"

# attempt WHAT LOG COMMAND...
attempt() {
    what=$1 log=$2
    shift 2
    say "$what"
    begin=$(date +%s)
    result=FAILED
    if "$@" >"$log" 2>&1; then
        result=passed
    else
        grep -v -e '^    ' "$log" | tail -n 40 >&2
    fi
    tests=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed.*/\1 \2/p' "$log" |
        awk '{ passed += $1; all += $1 + $2 } END { print passed + 0 " of " all + 0 }')
    # A filter that fits no test is no success.
    [ "${tests#0 }" = "$tests" ] || result=FAILED
    printf '%-62s %s, %s tests, %s s\n' "$what" "$result" "$tests" $(($(date +%s) - begin)) >>"$outcome"
}

# live CONTROLLER READER ARGUMENT...: the tests with these names on the Slurm of one suite, read by
# the reader of another.
live() (
    root=$releases/$1/root bin=$releases/$2/bin
    reader=slurm-graphite-reader-$(all | awk -v suite="$2" '$1 == suite { print $3 }')
    case $1 in
    slurm-*) export SANDBOX_PREFIX="$root" ;;
    *) export SANDBOX_ROOT="$root" ;;
    esac
    case $2 in
    slurm-*) reader=$bin/$reader ;;
    *) reader=$releases/readers/$reader ;;
    esac
    [ -z "${RECORD:-}" ] || [ "$1" != "$2" ] || export RECORDINGS="$top/crates/daemon/tests/recordings"
    shift 2
    SLURM_GRAPHITE_BIN=$bin/slurm-graphite SLURM_GRAPHITE_READER=$reader \
        cargo test --quiet --locked -p live-tests -- "$@"
)

# The reader's own tests, in the chroot.
unit() (
    root=$releases/$1/root
    name=CARGO_TARGET_$(host | tr 'a-z-' 'A-Z_')
    export "${name}_LINKER=$here/sysroot-gcc.sh"
    case $1 in
    slurm-*) export RPATH="$root/lib" SLURM_LIB_DIR="$root/lib" SLURM_INCLUDE_DIR="$root/include" ;;
    *)
        SLURM_LIB_DIR=$(dirname "$root"/usr/lib/*/libslurm.so)
        export SYSROOT="$root" SLURM_LIB_DIR SLURM_INCLUDE_DIR="$root/usr/include" \
            "${name}_RUNNER=sh $here/enter.sh $root $target --"
        ;;
    esac
    cargo test --quiet --locked -p slurm-reader --target "$(host)" --target-dir "$releases/build"
)

for suite in $wanted; do
    release=$(all | awk -v suite="$suite" '$1 == suite { print $2 }')
    logs=$releases/$suite
    [ -n "${PROGRAMS:-}" ] || attempt "Slurm $release: the reader's own tests" "$logs/unit.log" unit "$suite"
    # Nothing in the daemon's clock depends on the release.
    attempt "Slurm $release: every figure, live" "$logs/figures.log" \
        live "$suite" "$suite" figures:: --test-threads=2 --skip rest:: --skip ticks_fill_as_many_slots
    # libfaketime and the place of a reader are this machine's, and auth_jwt of Debian 11 loads in
    # slurmrestd only.
    [ "$release" = 20.11 ] && skip='--skip what_takes_the_place_of_munge' || skip=
    # shellcheck disable=SC2086
    attempt "Slurm $release: the statistics without libslurm" "$logs/native.log" \
        live "$suite" "$suite" native:: --test-threads=2 --skip a_clock_beyond_munges_limit \
        --skip without_libslurm_the_statistics $skip
    attempt "Slurm $release: node events and expected starts, live" "$logs/events.log" \
        live "$suite" "$suite" node_events:: expected_start:: --test-threads=2
    # What needs a slurmdbd: of these only that of 23.02 needs to have a database, which takes
    # libmariadb-dev to build.
    case $suite in slurm-*) skip='--skip associations::shares' ;; *) skip= ;; esac
    # shellcheck disable=SC2086
    attempt "Slurm $release: jobs, nodes, all of the cluster, live" "$logs/cluster.log" \
        live "$suite" "$suite" cluster:: --test-threads=2 $skip
    [ -n "$skip" ] || attempt "Slurm $release: finished jobs, each counted once" "$logs/finished.log" \
        live "$suite" "$suite" finished:: --test-threads=2
    # slurmrestd of 20.11 and 21.08 is not supported; that of 23.02 answers only while slurmdbd
    # does, so that its clusters have one. Imitated ones are the same for all.
    case $release in
    20.11 | 21.08) ;;
    *) attempt "Slurm $release: the same figures over REST" "$logs/rest.log" \
        live "$suite" "$suite" rest:: --test-threads=2 --skip imitated:: --skip hostile:: ;;
    esac
    attempt "Slurm $release: two controllers" "$logs/failover.log" live "$suite" "$suite" failover::
    attempt "Slurm $release: nothing of a sandbox is left" "$logs/left.log" \
        live "$suite" "$suite" sandbox_itself::nothing_is_left_after_a_panic
    case $suite in
    slurm-*) ;;
    *) attempt "Slurm $release: readers of all releases side by side" "$logs/side.log" \
        live "$suite" "$suite" --ignored releases::of_readers_side_by_side ;;
    esac
done
[ $# -eq 0 ] || { cat "$outcome"; ! grep -q FAILED "$outcome"; exit; }

# A rolling upgrade begins with the controller. Slurm lets the older side lag by two releases, from
# 24.11 on by three.
attempt 'reader of 20.11, slurmctld of 22.05: every figure' "$releases/bullseye/rolling.log" \
    live bookworm bullseye figures::after_work::every_figure_of_sdiag_after_work
attempt 'reader of 24.11, slurmctld of 26.05: every figure' "$releases/trixie/rolling.log" \
    live forky trixie figures::after_work::every_figure_of_sdiag_after_work
[ -z "$sources" ] || attempt 'reader of 26.05, slurmctld of 26.11: every figure' "$releases/forky/rolling.log" \
    live slurm-26.11 forky figures::after_work::every_figure_of_sdiag_after_work
attempt 'reader of 22.05, slurmctld of 24.11: too old, and said so' "$releases/bookworm/rolling.log" \
    live trixie bookworm --ignored too_old_for_its_controller
older() (
    export SANDBOX_OLDER_ROOT="$releases/trixie/root"
    live forky forky --ignored "$1"
)
attempt 'slurmrestd of 24.11 replaced by that of 26.05 under a running reader' "$releases/forky/upgrade.log" \
    older replaced_by_that_of_26_05
attempt 'without libslurm: slurmctld of 24.11 and of 26.05 by turns, and a pair' "$releases/forky/turns.log" \
    older native::turns
attempt 'without libslurm: AuthType=auth/slurm of 24.11' \
    "$releases/trixie/sack.log" live trixie trixie --ignored auth_slurm
attempt 'without libslurm: AuthType=auth/slurm of 26.05' \
    "$releases/forky/sack.log" live forky forky --ignored auth_slurm
attempt 'on this machine: readers side by side, wrong libraries' "$releases/here.log" \
    env SLURM_GRAPHITE_BIN="$releases/readers/slurm-graphite" \
    cargo test --quiet --locked -p live-tests -- releases:: --ignored --skip too_old_for_its_controller
cat "$outcome"
! grep -q FAILED "$outcome"
