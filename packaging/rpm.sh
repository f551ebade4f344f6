#!/bin/sh
# Makes RPMs: rpm.sh BUILT OUT, both folders. Of what `make build` built: a package for the daemon
# and for each reader, and a source package that can be built anywhere. Of what `make dist` built:
# one package with all readers.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
built=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)

source=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$top/Cargo.toml" | head -n 1)
# A release candidate is older than its release.
version=$(echo "$source" | tr - '~')
maintainer="${DEBFULLNAME:-slurm-graphite} <${DEBEMAIL:-slurm-graphite@localhost.localdomain}>"
repository=$(sed -n 's/^repository = "\(.*\)"$/\1/p' "$top/Cargo.toml")
if [ -e "$built/slurm-graphite-reader" ]; then
    libslurm=$(objdump -p "$built/slurm-graphite-reader" | sed -n 's/^ *NEEDED *libslurm\.so\.\([0-9]*\)$/\1/p')
    [ -n "$libslurm" ] || {
        echo "rpm: $built/slurm-graphite-reader is not linked against a libslurm.so.N" >&2
        exit 1
    }
    set -- -ba --define "libslurm $libslurm"
else
    readers=slurm-graphite-rest-reader
    for reader in "$built"/slurm-graphite-reader-*; do readers="$readers ${reader##*/}"; done
    set -- -bb --define "readers $readers"
fi
: "${SOURCE_DATE_EPOCH:=$(date +%s)}"
export SOURCE_DATE_EPOCH

rm -rf "$out/rpmbuild" "$out"/*.rpm
mkdir -p "$out/rpmbuild"
spec=$out/rpmbuild/slurm-graphite.spec
sed -e "s/@VERSION@/$version/g" -e "s/@SOURCE@/$source/g" -e "s/@MAINTAINER@/$maintainer/" \
    -e "s|@REPOSITORY@|$repository|" -e "s/@DATE@/$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')/" \
    "$top/packaging/slurm-graphite.spec" > "$spec"
cd "$top"
{ git ls-files --cached 2>/dev/null || find . -type f ! -path './target/*'; } |
    tar -czf "$out/rpmbuild/slurm-graphite-$source.tar.gz" --mtime="@$SOURCE_DATE_EPOCH" \
        --transform "s|^|slurm-graphite-$source/|" -T -

# --nodeps: where Debian's rpm runs, what the spec requires of EL is not in its database. The same
# bytes from the same sources, wherever they are built.
if ! rpmbuild "$@" --nodeps --define "_topdir $out/rpmbuild" \
    --define "_sourcedir $out/rpmbuild" --define "_rpmdir $out" \
    --define "_srcrpmdir $out" --define "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm" \
    --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
    --define 'clamp_mtime_to_source_date_epoch 1' --define "built $built" "$spec" > "$out/rpm.log" 2>&1; then
    cat "$out/rpm.log" >&2
    exit 1
fi
rm -rf "$out/rpmbuild"
ls "$out"/*.rpm
