#!/bin/sh
# include.sh: a line for each Slurm release whose headers are at hand: the release, the number in
# its libslurm's name, and the folder that has slurm/slurm.h.
#
# The headers are those of the folder that SLURM_HEADERS names, with one folder a release
# (25.11/slurm/slurm.h), which headers-from-git.sh makes; or else those of the suite's libslurm-dev,
# fetched once and unpacked below target/releases: no root, nothing is installed. A release that has
# neither is skipped, loudly: a machine without a network is no failure.
set -eu
. "$(dirname "$0")/common.sh"

skip() { say "SKIPPED, NOT CHECKED: $*"; }

mirror=$(mirror)
all | (
    skipped=
    while read -r suite release soname; do
        include=${SLURM_HEADERS:-}/$release
        if [ -n "${SLURM_HEADERS:-}" ] && [ -e "$include/slurm/slurm.h" ]; then
            :
        elif branches | grep -q "^$suite "; then
            skipped="$skipped $release"
            continue
        else
            include=$releases/$suite/headers/usr/include
            if [ ! -e "$releases/$suite/headers.done" ]; then
                if [ -z "$mirror" ]; then
                    skip "Slurm $release: no Debian mirror in the apt sources here, or DEBIAN_MIRROR," \
                        "to fetch libslurm-dev from"
                    continue
                fi
                if ! reason=$(fetch "$suite" libslurm-dev "$releases/$suite/headers" 2>&1); then
                    skip "Slurm $release: libslurm-dev of $suite cannot be fetched:" \
                        "$(echo "$reason" | grep -m 1 '^[EW]:')"
                    continue
                fi
                : >"$releases/$suite/headers.done"
            fi
        fi
        echo "$release $soname $include"
    done
    [ -z "$skipped" ] ||
        skip "Slurm$skipped: in no Debian; SLURM_HEADERS names a folder of headers, which headers-from-git.sh makes"
)
