#!/bin/sh
# `make scale-out`: 100,000 points a tick through relays and vmagent over three stores each; see
# tests/tools/scale_out.
#
# All programs are Debian's. VictoriaMetrics is that of the suite in VICTORIA_SUITE, unpacked below
# target/scale-out, because bookworm's does not answer Graphite's /render.
set -eu
. "$(dirname "$0")/../releases/common.sh"

victoria=$target/scale-out/victoria
if [ ! -e "$victoria.done" ]; then
    mkdir -p "$target/scale-out"
    fetch "${VICTORIA_SUITE:-forky}" victoria-metrics "$victoria"
    : >"$victoria.done"
fi
cargo build --release --locked --workspace
export VICTORIA="$victoria/usr/bin" TMPDIR="${TMPDIR:-/dev/shm}"
exec cargo run --quiet --release --locked -p tools --features release --bin scale_out -- "$@"
