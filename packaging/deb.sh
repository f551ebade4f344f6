#!/bin/sh
# Makes Debian packages: deb.sh BUILT OUT, both folders. Of what `make build` built: the daemon, the
# reader of this host's libslurm and that of slurmrestd, each in a package of its own. Of what `make
# dist` built: one package with all readers.
#
# debhelper does what Debian's policy asks of a package (units, conffiles, checksums, dependencies
# on libraries); this only fills in what the build knows, and starts it.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
built=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)

# A release candidate is older than its release.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$top/Cargo.toml" | head -n 1 | tr - '~')-${REVISION:-1}
maintainer="${DEBFULLNAME:-slurm-graphite} <${DEBEMAIL:-slurm-graphite@localhost.localdomain}>"
repository=$(sed -n 's/^repository = "\(.*\)"$/\1/p' "$top/Cargo.toml")
date=$(git -C "$top" log -1 --format=%cD 2>/dev/null || date -R)

work=$out/slurm-graphite
rm -rf "$work" "$out"/*.deb
mkdir "$work"
cp -R "$top/packaging/debian" "$work/debian"
cd "$work"

# What debian/control has as ${readers:...}.
substvars=$work/readers.substvars
LIBSLURM=
if [ -e "$built/slurm-graphite-reader" ]; then
    LIBSLURM=$(objdump -p "$built/slurm-graphite-reader" | sed -n 's/^ *NEEDED *libslurm\.so\.\([0-9]*\)$/\1/p')
    [ -n "$LIBSLURM" ] || {
        echo "deb: $built/slurm-graphite-reader is not linked against a libslurm.so.N" >&2
        exit 1
    }
    cat debian/control.readers >>debian/control
    for package in "reader-$LIBSLURM" rest-reader; do
        cp debian/slurm-graphite.lintian-overrides "debian/slurm-graphite-$package.lintian-overrides"
    done
    cat >"$substvars" <<END
readers:Recommends=ca-certificates, slurm-graphite-reader (= $version)
readers:Description=It reads the statistics without libslurm. What reads jobs and nodes\${Newline}is another package.
END
else
    readers=slurm-graphite-rest-reader
    provides="slurm-graphite-reader (= $version), slurm-graphite-rest-reader (= $version)"
    numbers= libraries=
    for reader in "$built"/slurm-graphite-reader-*; do
        readers="$readers, ${reader##*/}"
        provides="$provides, ${reader##*/} (= $version)"
        numbers="$numbers ${reader##*-}"
        libraries="libslurm${reader##*-} | $libraries"
    done
    text="It has a reader for each of these: libslurm.so.N with N =$numbers, and one for slurmrestd."
    text="$text The one that fits the host is started."
    cat >"$substvars" <<END
shlibs:Depends=libc6 (>= ${GLIBC:?the oldest that its programs run with})
readers:Recommends=ca-certificates, munge
readers:Suggests=${libraries}slurm-smd, slurm-wlm-basic-plugins | slurm-smd
readers:Provides=$provides
readers:Conflicts=$readers
readers:Description=$(echo "$text" | fold -s -w 78 | sed 's/ *$//; $!s/$/${Newline}/' | tr -d '\n')
END
fi
rm debian/control.readers
sed -i -e "s/@LIBSLURM@/$LIBSLURM/g" -e "s/@MAINTAINER@/$maintainer/" -e "s|@REPOSITORY@|$repository|" debian/control
cat >debian/changelog <<END
slurm-graphite ($version) unstable; urgency=medium

  * Built from its own sources; changelog.gz says what is new.

 -- $maintainer  $date
END

export TOP="$top" BUILT="$built" LIBSLURM SUBSTVARS="$substvars" DEB_BUILD_OPTIONS=noautodbgsym
# It tells every command that it starts: of use only where one of them fails.
if ! dpkg-buildpackage --build=binary --no-sign --no-check-builddeps > "$out/deb.log" 2>&1; then
    cat "$out/deb.log" >&2
    exit 1
fi
rm -rf "$work" "$out"/*.buildinfo "$out"/*.changes
ls "$out"/*.deb
