#!/bin/sh
# Makes the Debian packages of what `make build` built: deb.sh BUILT OUT, both folders.
#
# debhelper does what Debian's policy asks of a package (users, units, conffiles, checksums, dependencies on
# libraries); this only fills in what the build knows, and starts it.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
built=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)

libslurm=$(objdump -p "$built/slurm-graphite-reader" | sed -n 's/^ *NEEDED *libslurm\.so\.\([0-9]*\)$/\1/p')
[ -n "$libslurm" ] || { echo "deb: $built/slurm-graphite-reader is not linked against a libslurm.so.N" >&2; exit 1; }
# A release candidate is older than its release.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$top/Cargo.toml" | head -n 1 | tr - '~')-${REVISION:-1}
maintainer="${DEBFULLNAME:-slurm-graphite} <${DEBEMAIL:-slurm-graphite@localhost.localdomain}>"
date=$(git -C "$top" log -1 --format=%cD 2>/dev/null || date -R)

work=$out/slurm-graphite
rm -rf "$work" "$out"/*.deb
mkdir "$work"
cp -R "$top/packaging/debian" "$work/debian"
sed -i -e "s/@LIBSLURM@/$libslurm/g" -e "s/@MAINTAINER@/$maintainer/" "$work/debian/control"
cp "$work/debian/slurm-graphite.lintian-overrides" "$work/debian/slurm-graphite-reader-$libslurm.lintian-overrides"
cp "$work/debian/slurm-graphite.lintian-overrides" "$work/debian/slurm-graphite-rest-reader.lintian-overrides"
cat > "$work/debian/changelog" <<END
slurm-graphite ($version) unstable; urgency=medium

  * Built from its own sources; changelog.gz says what is new.

 -- $maintainer  $date
END

cd "$work"
export TOP="$top" BUILT="$built" LIBSLURM="$libslurm" DEB_BUILD_OPTIONS=noautodbgsym
# It tells every command that it starts: of use only where one of them fails.
if ! dpkg-buildpackage --build=binary --no-sign --no-check-builddeps > "$out/log" 2>&1; then
    cat "$out/log" >&2
    exit 1
fi
rm -rf "$work" "$out"/*.buildinfo "$out"/*.changes
ls "$out"/*.deb
