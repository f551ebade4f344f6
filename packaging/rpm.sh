#!/bin/sh
# Makes the RPMs of what `make build` built: rpm.sh BUILT OUT, both folders. Its own sources go with them, so that the
# source package can be built anywhere.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
built=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)

source=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$top/Cargo.toml" | head -n 1)
# A release candidate is older than its release.
version=$(echo "$source" | tr - '~')
maintainer="${DEBFULLNAME:-slurm-graphite} <${DEBEMAIL:-slurm-graphite@localhost.localdomain}>"
libslurm=$(objdump -p "$built/slurm-graphite-reader" | sed -n 's/^ *NEEDED *libslurm\.so\.\([0-9]*\)$/\1/p')
[ -n "$libslurm" ] || { echo "rpm: $built/slurm-graphite-reader is not linked against a libslurm.so.N" >&2; exit 1; }

rm -rf "$out/build" "$out"/*.rpm
mkdir -p "$out/build"
spec=$out/build/slurm-graphite.spec
sed -e "s/@VERSION@/$version/g" -e "s/@SOURCE@/$source/g" -e "s/@MAINTAINER@/$maintainer/" \
    -e "s/@DATE@/$(LC_ALL=C date -u '+%a %b %d %Y')/" "$top/packaging/slurm-graphite.spec" > "$spec"
cd "$top"
{ git ls-files --cached --others --exclude-standard 2>/dev/null || find . -type f ! -path './target/*'; } |
    tar -czf "$out/build/slurm-graphite-$source.tar.gz" --transform "s|^|slurm-graphite-$source/|" -T -

# --nodeps: where Debian's rpm runs, what the spec requires of EL is not in its database.
if ! rpmbuild -ba --nodeps --define "_topdir $out/build" --define "_sourcedir $out/build" --define "_rpmdir $out" \
    --define "_srcrpmdir $out" --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
    --define "built $built" --define "libslurm $libslurm" "$spec" > "$out/log" 2>&1; then
    cat "$out/log" >&2
    exit 1
fi
rm -rf "$out/build"
ls "$out"/*.rpm
