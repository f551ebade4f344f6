#!/bin/sh
# Builds the reader for each release. All of them go where packages would put them in each chroot,
# and for each chroot there is a folder bin/ with the daemon of this machine and, under the readers'
# names, scripts that enter the chroot: the daemon finds a reader for every release, of which one
# loads. readers/ has the same without any chroot. What roots.sh has not made is left out. PROGRAMS
# names a folder of programs to take instead: bin/ of the tarball.
set -eu
. "$(dirname "$0")/common.sh"

# Lines of suite, release and soname number of those chroots that are there.
made() {
    suites | while read -r suite of_it; do
        [ ! -e "$releases/$suite/root.done" ] || echo "$suite $of_it"
    done
}

host=$(host)
linker=CARGO_TARGET_$(echo "$host" | tr 'a-z-' 'A-Z_')_LINKER
profile=${PROGRAMS:-$target/debug}
libexec=usr/libexec/slurm-graphite
built=$releases/readers
rm -rf "$built"
mkdir -p "$built"

[ -z "${PROGRAMS:-}" ] || cp "$PROGRAMS"/slurm-graphite-reader-* "$built"
[ -n "${PROGRAMS:-}" ] || made | while read -r suite release soname; do
    root=$releases/$suite/root
    say "Slurm $release: its reader"
    lib=$(dirname "$root"/usr/lib/*/libslurm.so)
    # One folder for all: only what sees libslurm is built again.
    env "$linker=$here/sysroot-gcc.sh" SYSROOT="$root" SLURM_INCLUDE_DIR="$root/usr/include" SLURM_LIB_DIR="$lib" \
        cargo build --quiet --locked -p slurm-reader --target "$host" --target-dir "$releases/build"
    cp "$releases/build/$host/debug/slurm-graphite-reader" "$built/slurm-graphite-reader-$soname"
done

cp "$profile/slurm-graphite" "$built"
made | while read -r suite _; do
    root=$releases/$suite/root
    bin=$releases/$suite/bin
    rm -rf "$bin"
    mkdir -p "$root/$libexec" "$bin"
    cp "$built"/slurm-graphite-reader-* "$root/$libexec"
    cp "$profile/slurm-graphite" "$profile/slurm-graphite-rest-reader" "$bin"
    made | while read -r _ _ soname; do
        reader=slurm-graphite-reader-$soname
        cat >"$bin/$reader" <<END
#!/bin/sh
exec sh "$here/enter.sh" "$root" "\$SLURM_GRAPHITE_SANDBOX" -- "/$libexec/$reader" "\$@"
END
        chmod 755 "$bin/$reader"
    done
done
