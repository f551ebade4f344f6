#!/bin/sh
# `make dist`: what is downloaded, in target/dist: a tarball, a .deb and an .rpm for every
# distribution, each with a reader for every Slurm release whose headers are at hand, their
# checksums, and what the programs are made of (CycloneDX). The programs run from glibc 2.28 on: EL
# 8, Debian 11, Ubuntu 20.04. A second tarball, for aarch64, has the programs that need no libslurm.
#
# zig's compiler driver, from PyPI, links against that old a glibc on any host. Nothing of Slurm is
# linked: a library without code stands in for each release's libslurm, and the host's own one is
# loaded at run time.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
glibc=2.28
machine=$(uname -m)
triple=$machine-unknown-linux-gnu
dist=$target/dist
tools=$dist/tools
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
name=slurm-graphite-$version-linux-$machine
tree=$dist/$name

say() { echo "dist: $*" >&2; }

# Once; they are not of the programs.
[ -x "$tools/bin/cargo-zigbuild" ] || {
    say "cargo-zigbuild and zig, into $tools"
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet cargo-zigbuild==0.24.0 ziglang==0.17.1
}
[ -x "$tools/bin/cargo-cyclonedx" ] || {
    say "cargo-cyclonedx, into $tools"
    cargo install --quiet --debug --locked --root "$tools" cargo-cyclonedx@0.5.9
}
# compiler MACHINE: what links programs for it.
compiler() {
    cat >"$dist/cc-$1" <<END
#!/bin/sh
PATH=$tools/bin:\$PATH exec cargo-zigbuild zig cc -- -target $1-linux-gnu.$glibc "\$@"
END
    chmod 755 "$dist/cc-$1"
    export "CC_$1_unknown_linux_gnu=$dist/cc-$1"
    export "CARGO_TARGET_$(echo "$1" | tr 'a-z' 'A-Z')_UNKNOWN_LINUX_GNU_LINKER=$dist/cc-$1"
}
compiler "$machine"

# The same programs from the same sources: no path of this machine, and the time of the last commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH
remap=--remap-path-prefix
export RUSTFLAGS="$remap=$top=. $remap=$target=target $remap=${CARGO_HOME:-$HOME/.cargo}=cargo"
build() { cargo build --quiet --release --locked --target "$triple" --target-dir "$dist/build" "$@"; }
out=$dist/build/$triple/release

rm -rf "$dist"/slurm-graphite* "$dist"/SHA256SUMS*
mkdir -p "$tree/bin" "$tree/sbom"
say "the daemon and the reader of slurmrestd"
build -p slurm-graphite -p rest-reader -p manual-pages
cp "$out/slurm-graphite" "$out/slurm-graphite-rest-reader" "$tree/bin"

releases=
# stub SONAME: every function that the reader may call, empty; and everything else that is named
# like one.
stub() {
    mkdir -p "$dist/stub-$1"
    grep -oh 'slurm[a-z]*_[a-z_]*' crates/slurm-reader/src/*.rs | sort -u |
        sed 's/.*/void &(void) {}/' >"$dist/stub-$1/stub.c"
    "$dist/cc-$machine" -shared -Wl,-soname,libslurm.so."$1" -o "$dist/stub-$1/libslurm.so" "$dist/stub-$1/stub.c"
}
sh tests/releases/include.sh >"$dist/headers"
while read -r release soname include; do
    if [ -e "$include/prerelease" ]; then
        say "LEFT OUT: Slurm $release is not released, and its headers may change"
        continue
    fi
    say "the reader of Slurm $release"
    stub "$soname"
    SLURM_INCLUDE_DIR=$include SLURM_LIB_DIR=$dist/stub-$soname build -p slurm-reader </dev/null
    cp "$out/slurm-graphite-reader" "$tree/bin/slurm-graphite-reader-$soname"
    releases="$releases $release"
done <"$dist/headers"
[ -n "$releases" ] || { say "no headers of any Slurm release are at hand"; exit 1; }

# old_enough PROGRAM...: none needs a newer glibc.
old_enough() {
    for program in "$@"; do
        newest=$(readelf -V "$program" | sed -n 's/.*Name: GLIBC_\([0-9.]*\) .*/\1/p' | sort -Vu | tail -n 1)
        [ "$(printf '%s\n' "$newest" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] ||
            { say "$program needs glibc $newest"; exit 1; }
    done
}
old_enough "$tree"/bin/slurm-graphite*

# cargo-cyclonedx writes beside each Cargo.toml.
rm -rf "$dist/source"
mkdir "$dist/source"
cp -R Cargo.toml Cargo.lock crates packaging tests "$dist/source"
(cd "$dist/source" && "$tools/bin/cargo-cyclonedx" cyclonedx -qq --format json --spec-version 1.5 --describe binaries \
    --target "$triple" --no-build-deps)
for program in slurm-graphite slurm-graphite-reader slurm-graphite-rest-reader; do
    sed "s|path+file://$dist/source/|path+file:///|g" "$dist/source"/crates/*/"${program}_bin.cdx.json" \
        >"$tree/sbom/$program.cdx.json"
done
rm -rf "$dist/source"

# tarball NAME: of the folder with this name, in which the programs are.
tarball() {
    "$out/manual-pages" "$dist/$1/bin/manual"
    cp -R config docs systemd README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE THIRD-PARTY-NOTICES \
        packaging/install.sh "$dist/$1"
    tar --create --use-compress-program='gzip -9n' --file "$dist/$1.tar.gz" --directory "$dist" --sort=name --owner=0 \
        --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" --mode=u+w,go-w "$1"
}
tarball "$name"
cp "$tree"/sbom/* "$dist"

# Of the same parts, whose lists are in the other one.
other=aarch64
if [ "$machine" = "$other" ]; then
    :
elif rustc --print target-libdir --target "$other-unknown-linux-gnu" 2>/dev/null | xargs test -d; then
    say "the daemon and the reader of slurmrestd, for $other"
    compiler "$other"
    cargo build --quiet --release --locked --target "$other-unknown-linux-gnu" --target-dir "$dist/build" \
        -p slurm-graphite -p rest-reader
    folder=slurm-graphite-$version-linux-$other
    mkdir -p "$dist/$folder/bin"
    for program in slurm-graphite slurm-graphite-rest-reader; do
        cp "$dist/build/$other-unknown-linux-gnu/release/$program" "$dist/$folder/bin"
    done
    old_enough "$dist/$folder"/bin/slurm-graphite*
    tarball "$folder"
else
    say "NOTHING for $other: \`rustup target add $other-unknown-linux-gnu\` first"
fi

# Where neither is at hand, there is the tarball.
if command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null; then
    GLIBC=$glibc sh packaging/deb.sh "$tree/bin" "$dist"
else
    say "NO .deb: debhelper is missing"
fi
if command -v rpmbuild >/dev/null; then
    sh packaging/rpm.sh "$tree/bin" "$dist"
else
    say "NO .rpm: rpmbuild is missing"
fi
(cd "$dist" && find . -maxdepth 1 -type f -name 'slurm-graphite*' -printf '%f\n' | sort | xargs sha256sum >SHA256SUMS)
say "Slurm$releases, $(du -h "$dist/$name.tar.gz" | cut -f 1): $dist/$name.tar.gz"
