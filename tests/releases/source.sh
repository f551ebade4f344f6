#!/bin/sh
# source.sh BRANCH...: Slurm of these branches (slurm-25.11), built from the git clone that
# SLURM_GIT names and installed below target/releases, and the reader for each, which knows where
# its libslurm is: alone with this machine's daemon and its reader of slurmrestd in the branch's
# bin/. A Slurm that is there stays while its branch is where it was. MAKEFLAGS=-j8 builds it with
# eight cores.
set -eu
. "$(dirname "$0")/common.sh"

linker=CARGO_TARGET_$(host | tr 'a-z-' 'A-Z_')_LINKER

# slurm BRANCH COMMIT
slurm() {
    root=$releases/$1/root source=$releases/$1/source
    say "branch $1: building it"
    rm -rf "$root" "$root.done" "$source"
    mkdir -p "$source"
    git -C "$SLURM_GIT" archive "$2" | tar -x -m -C "$source"
    (
        # Behind `||` a shell does not stop at an error. Several slurmd on one host, as Debian's
        # packages have them.
        cd "$source" &&
            CFLAGS='-O0 -w' ./configure --quiet --prefix="$root" --sysconfdir="$root/etc" \
                --enable-multiple-slurmd --disable-static --disable-x11 &&
            make --quiet &&
            make --quiet install
    ) >"$root.log" 2>&1 </dev/null || { tail -n 5 "$root.log" >&2; exit 1; }
    rm -rf "$source"
    echo "$2" >"$root.done"
}

# reader BRANCH
reader() {
    root=$releases/$1/root bin=$releases/$1/bin
    say "branch $1: its reader"
    env "$linker=$here/sysroot-gcc.sh" RPATH="$root/lib" SLURM_INCLUDE_DIR="$root/include" SLURM_LIB_DIR="$root/lib" \
        cargo build --quiet --locked -p slurm-reader --target "$(host)" --target-dir "$releases/build"
    rm -rf "$bin"
    mkdir -p "$bin"
    cp "$target/debug/slurm-graphite" "$target/debug/slurm-graphite-rest-reader" "$bin"
    soname=$(all | awk -v branch="$1" '$1 == branch { print $3 }')
    cp "$releases/build/$(host)/debug/slurm-graphite-reader" "$bin/slurm-graphite-reader-$soname"
}

for branch; do
    commit=$(revision "$SLURM_GIT" "$branch") || { say "no branch $branch in $SLURM_GIT"; exit 1; }
    [ "$(cat "$releases/$branch/root.done" 2>/dev/null)" = "$commit" ] || slurm "$branch" "$commit"
    reader "$branch"
done
