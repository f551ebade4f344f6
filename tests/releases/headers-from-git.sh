#!/bin/sh
# headers-from-git.sh CLONE DIR: the headers of every release in the table, from the release
# branches of a git clone of Slurm, as `make headers SLURM_HEADERS=DIR` takes them:
# DIR/25.11/slurm/slurm.h and so on. Nothing is built.
set -eu
. "$(dirname "$0")/common.sh"

[ $# -eq 2 ] || { say 'usage: headers-from-git.sh CLONE DIR'; exit 64; }
clone=$1 folder=$2
all | (
    missing=0
    while read -r _ release _; do
        if ! commit=$(revision "$clone" "slurm-$release"); then
            say "Slurm $release: no branch slurm-$release in $clone"
            missing=1
            continue
        fi
        rm -rf "${folder:?}/$release"
        mkdir -p "$folder/$release"
        git -C "$clone" archive "$commit" slurm | tar -x -C "$folder/$release"
        # configure writes the number, from META: into slurm_version.h, up to 20.11 into slurm.h.
        number=$(version "$clone" "$commit" %02x)
        # Before the release structs may change under the same number of libslurm: `make dist`
        # leaves it out.
        ! git -C "$clone" show "$commit:META" | grep -q '^ *Release:.*rc' || : >"$folder/$release/prerelease"
        for template in "$folder/$release"/slurm/*.h.in; do
            sed "s/^#undef *SLURM_VERSION_NUMBER.*/#define SLURM_VERSION_NUMBER 0x$number/" \
                "$template" >"${template%.in}"
            rm "$template"
        done
    done
    exit "$missing"
)
