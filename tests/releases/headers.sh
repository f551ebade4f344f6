#!/bin/sh
# `make headers`: slurm-sys and the reader, with their tests, compiled and linted against the headers of every release.
#
# The headers are those of the folder that SLURM_HEADERS names, with one folder a release (25.11/slurm/slurm.h), which
# headers-from-git.sh makes; or else those of the suite's libslurm-dev, fetched once and unpacked below target/releases: no
# root, nothing is installed. A release that has neither is skipped, loudly: a machine without a network is no failure.
set -eu
. "$(dirname "$0")/common.sh"

skip() { say "SKIPPED, NOT CHECKED: $*"; }

# fetch SUITE: its libslurm-dev, with apt lists of our own beside it.
fetch() {
    headers=$releases/$1/headers
    apt=$headers.apt
    rm -rf "$headers" "$apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$headers"
    # The machine's own configuration says how its mirror is reached and what is trusted.
    echo "deb [signed-by=$keyring] $mirror $1 main" >"$apt/sources.list"
    set -- "-oDir::Etc::SourceList=$apt/sources.list" -oDir::Etc::SourceParts=- "-oDir::State::Lists=$apt/lists" \
        -oDir::State::Status=/dev/null "-oDir::Cache=$apt/cache" -oAcquire::Retries=0 -oAcquire::http::Timeout=20 \
        -oAPT::Sandbox::User= -qq
    (
        cd "$apt"
        apt-get "$@" update --error-on=any && apt-get "$@" download libslurm-dev && dpkg -x libslurm-dev_*.deb "$headers"
    ) </dev/null || return 1
    rm -rf "$apt"
}

# check INCLUDE
check() {
    SLURM_INCLUDE_DIR=$1 \
        cargo clippy --quiet --locked -p slurm-sys -p slurm-reader --all-targets --target-dir "$releases/check" \
        -- -D warnings
}

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=$(mirror)
all | (
    checked=0 failed=0 skipped=
    while read -r suite release _; do
        include=${SLURM_HEADERS:-}/$release
        if [ -n "${SLURM_HEADERS:-}" ] && [ -e "$include/slurm/slurm.h" ]; then
            :
        elif branches | grep -q "^$suite "; then
            skipped="$skipped $release"
            continue
        elif [ ! -e "$releases/$suite/headers.done" ]; then
            if [ -z "$mirror" ]; then
                skip "Slurm $release: no Debian mirror in the apt sources here, or DEBIAN_MIRROR, to fetch libslurm-dev from"
                continue
            fi
            if ! reason=$(fetch "$suite" 2>&1); then
                skip "Slurm $release: libslurm-dev of $suite cannot be fetched: $(echo "$reason" | grep -m 1 '^[EW]:')"
                continue
            fi
            : >"$releases/$suite/headers.done"
        fi
        [ -e "$include/slurm/slurm.h" ] || include=$releases/$suite/headers/usr/include
        if check "$include"; then
            checked=$((checked + 1))
        else
            say "Slurm $release: does not compile against its headers"
            failed=$((failed + 1))
        fi
    done
    [ -z "$skipped" ] ||
        skip "Slurm$skipped: in no Debian; SLURM_HEADERS names a folder of headers, which headers-from-git.sh makes"
    say "$checked of $(all | wc -l) releases compiled against their headers, $failed failed"
    [ "$failed" -eq 0 ]
)
