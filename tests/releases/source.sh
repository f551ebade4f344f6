#!/bin/sh
# source.sh BRANCH...: builds Slurm of these branches (slurm-25.11) from the git clone that SLURM_GIT names, each below
# target/releases. One that is there stays while its branch is where it was. MAKEFLAGS=-j2 builds with two cores.
set -eu
. "$(dirname "$0")/common.sh"

for branch; do
    root=$releases/$branch/root
    commit=$(git -C "$SLURM_GIT" rev-parse --verify --quiet "$(revision "$SLURM_GIT" "$branch")^{commit}") ||
        { say "no branch $branch in $SLURM_GIT"; exit 1; }
    [ "$(cat "$root.done" 2>/dev/null)" != "$commit" ] || continue
    say "Slurm of branch $branch: building it"
    source=$releases/$branch/source
    rm -rf "$root" "$source" "$root.done"
    mkdir -p "$source"
    git -C "$SLURM_GIT" archive "$commit" | tar -x -m -C "$source"
    (
        cd "$source"
        # Several slurmd on one host, as Debian's packages have them.
        CFLAGS='-O0 -w' ./configure --quiet --prefix="$root" --sysconfdir="$root/etc" --enable-multiple-slurmd \
            --disable-static --disable-x11
        make --quiet
        make --quiet install
    ) >"$root.log" 2>&1 </dev/null || { tail -n 5 "$root.log" >&2; exit 1; }
    rm -rf "$source"
    echo "$commit" >"$root.done"
done
