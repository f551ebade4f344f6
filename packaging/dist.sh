#!/bin/sh
# `make dist`: one tarball for every distribution, with a reader for every Slurm release whose headers are at hand, in
# target/dist. Its programs run from glibc 2.28 on: EL 8, Debian 11, Ubuntu 20.04.
#
# zig's compiler driver, from PyPI, links against that old a glibc on any host. Nothing of Slurm is linked: a library
# without code stands in for each release's libslurm, and the host's own one is loaded at run time.
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

[ -x "$tools/bin/cargo-zigbuild" ] || {
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet cargo-zigbuild==0.24.0 ziglang==0.17.1
}
cat >"$dist/cc" <<END
#!/bin/sh
PATH=$tools/bin:\$PATH exec cargo-zigbuild zig cc -- -target $machine-linux-gnu.$glibc "\$@"
END
chmod 755 "$dist/cc"

# The same programs from the same sources: no path of this machine, and the time of the last commit.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)
export SOURCE_DATE_EPOCH
export RUSTFLAGS="--remap-path-prefix=$top=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
export "CC_$(echo "$triple" | tr - _)=$dist/cc"
export "CARGO_TARGET_$(echo "$triple" | tr 'a-z-' 'A-Z_')_LINKER=$dist/cc"
build() { cargo build --quiet --release --locked --target "$triple" --target-dir "$dist/build" "$@"; }
out=$dist/build/$triple/release

rm -rf "$dist"/slurm-graphite-* "$dist"/SHA256SUMS
mkdir -p "$tree/bin"
echo "dist: the daemon and the reader of slurmrestd" >&2
build -p slurm-graphite -p rest-reader
cp "$out/slurm-graphite" "$out/slurm-graphite-rest-reader" "$tree/bin"

releases=
# stub SONAME: every function that the reader may call, empty.
stub() {
    mkdir -p "$dist/stub-$1"
    sed -n 's/^    "\(slurm_[a-z_]*\)",$/void \1(void) {}/p' crates/slurm-sys/build/bindings.rs >"$dist/stub-$1/stub.c"
    "$dist/cc" -shared -Wl,-soname,libslurm.so."$1" -o "$dist/stub-$1/libslurm.so" "$dist/stub-$1/stub.c"
}
sh tests/releases/include.sh >"$dist/headers"
while read -r release soname include; do
    echo "dist: the reader of Slurm $release" >&2
    stub "$soname"
    SLURM_INCLUDE_DIR=$include SLURM_LIB_DIR=$dist/stub-$soname build -p slurm-reader </dev/null
    cp "$out/slurm-graphite-reader" "$tree/bin/slurm-graphite-reader-$soname"
    releases="$releases $release"
done <"$dist/headers"
[ -n "$releases" ] || { echo "dist: no headers of any Slurm release are at hand" >&2; exit 1; }

"$tree/bin/slurm-graphite" manual "$tree/bin/manual"
cp -R config systemd README.md CHANGELOG.md LICENSE packaging/install.sh "$tree"
mkdir "$tree/docs"
cp docs/*.md "$tree/docs"
for program in "$tree"/bin/slurm-graphite*; do
    newest=$(objdump -T "$program" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\).*/\1/p' | sort -Vu | tail -n 1)
    [ "$(printf '%s\n' "$newest" "$glibc" | sort -V | tail -n 1)" = "$glibc" ] ||
        { echo "dist: $program needs glibc $newest" >&2; exit 1; }
done
tar --create --gzip --file "$dist/$name.tar.gz" --directory "$dist" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$SOURCE_DATE_EPOCH" --mode=u+w,go-w "$name"
(cd "$dist" && sha256sum "$name.tar.gz" >SHA256SUMS)
echo "dist: Slurm$releases, $(du -h "$dist/$name.tar.gz" | cut -f 1): $dist/$name.tar.gz"
