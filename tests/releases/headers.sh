#!/bin/sh
# `make headers`: slurm-sys and the reader, with their tests, compiled and linted against the
# headers of every release that include.sh finds.
set -eu
. "$(dirname "$0")/common.sh"

sh "$here/include.sh" | (
    checked=0 failed=0
    while read -r release _ include; do
        if SLURM_INCLUDE_DIR=$include cargo clippy --quiet --locked -p slurm-sys -p slurm-reader --all-targets \
            --target-dir "$releases/check" -- -D warnings; then
            checked=$((checked + 1))
        else
            say "Slurm $release: does not compile against its headers"
            failed=$((failed + 1))
        fi
    done
    say "$checked of $(all | wc -l) releases compiled against their headers, $failed failed"
    [ "$failed" -eq 0 ]
)
