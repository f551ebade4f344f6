#!/bin/sh
# Installs the packages that building and the live tests need, as root on Debian; otherwise says
# what to install. `packages.sh build` is for building only, `packages.sh demo` for `make demo`,
# `packages.sh debian`, `packages.sh rpm` and `packages.sh dist` for making packages, `packages.sh
# chroot` for testing them. `packages.sh releases` adds what other releases of Slurm need,
# `packages.sh grafana` what draws panels.
set -eu

build='gcc libc6-dev libclang-dev libslurm-dev'
tests='slurmctld slurmd slurm-client slurm-wlm-basic-plugins slurmrestd slurm-wlm-jwt-plugin slurmdbd
    mariadb-server-core mariadb-client-core stunnel4 openssl faketime munge graphite-carbon
    graphite-web victoria-metrics influxdb carbon-c-relay haproxy nginx-light libnginx-mod-stream
    iproute2 python3-whisper python3-setuptools python3-yaml supervisor systemd e2fsprogs valgrind
    man-db curl strace bindfs'
programs='gcc sdiag slurmctld slurmd slurmdbd mariadbd munged carbon-cache supervisord'

# Whether one of these packages is installed.
has() {
    # shellcheck disable=SC2016
    case $(dpkg-query -W -f '[${db:Status-Status}]' "$@" 2>/dev/null) in
    *'[installed]'*) ;;
    *) return 1 ;;
    esac
}

# A Slurm that slurm-sys finds without Debian's package.
has_slurm() {
    [ -z "${SLURM_INCLUDE_DIR-}${SLURM_LIB_DIR-}" ] || return 0
    for prefix in /usr/local /usr/local/slurm /opt/slurm /opt/slurm/current; do
        [ ! -e $prefix/include/slurm/slurm.h ] || return 0
    done
    has slurm-smd-dev || pkg-config --exists slurm 2>/dev/null
}

# What building needs, but what is there from elsewhere; and a Slurm's headers.
compilers() {
    command -v cc >/dev/null || echo gcc libc6-dev
    [ -n "${LIBCLANG_PATH-}" ] || has 'libclang-[0-9]*-dev' || echo libclang-dev
}
wanted() {
    compilers
    has_slurm || echo libslurm-dev
}

case ${1-} in
build) build=$(wanted) tests= programs=gcc ;;
demo) build="$(wanted)"
    tests='slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge graphite-carbon graphite-web'
    programs='gcc sdiag slurmctld slurmd munged carbon-cache' ;;
debian) build="$(wanted) debhelper pkgconf systemd" tests= ;;
dist)
    build="$(compilers) debhelper pkgconf systemd rpm" tests= programs='gcc python3'
    python3 -c 'import ensurepip' 2>/dev/null || build="$build python3-venv"
    ;;
rpm) build="$(wanted) rpm" tests= programs='gcc rpmbuild' ;;
chroot) build='debootstrap lintian rpm rpmlint zsh fish' tests= ;;
grafana) tests="$tests chromium" ;;
# Without the last three a Slurm that is built has no slurmrestd.
releases) tests="$tests debootstrap make liblua5.3-dev libmariadb-dev libmunge-dev pkgconf"
    tests="$tests libhttp-parser-dev libjson-c-dev libjwt-dev" ;;
esac

# Also before anything is installed: cargo, and the demo's picture, would fail in the middle.
target=${CARGO_TARGET_DIR:-target}
for folder in "$target" "$target/debug" "$target/release"; do
    while [ ! -e "$folder" ]; do
        case $folder in
        */*) folder=${folder%/*} && folder=${folder:-/} ;;
        *) folder=. ;;
        esac
    done
    [ -w "$folder" ] || {
        echo "packages: $(id -un) cannot write to $folder: give it to that user," \
            'or set CARGO_TARGET_DIR to another folder' >&2
        exit 1
    }
done

# Before anything is installed: cargo says it for each crate, and not what to do. Debian 12 and 13
# keep a Rust new for their browsers, without clippy; it conflicts with rustc, cargo and rustup.
rust=$(rustc --version 2>/dev/null) || rust=missing
minor=${rust#rustc 1.}
# shellcheck disable=SC1091
keeps=$(. /etc/os-release && case "$ID $VERSION_ID" in 'debian 12' | 'debian 13') echo yes ;; esac) || :
if [ "${minor%%.*}" -ge 89 ] 2>/dev/null; then
    :
elif [ "$keeps" ] && ! command -v rustc >/dev/null && ! has rustc cargo rustup; then
    build="$build cargo-web rustc-web ca-certificates"
else
    echo "packages: Rust is $rust. Install Rust 1.89 or later: on Debian 12 and 13 with" \
        '`apt-get install cargo-web rustc-web`, in place of rustc, cargo and rustup; elsewhere with rustup.' >&2
    exit 1
fi
# For the first stage of `make test`.
[ $# -gt 0 ] || [ -z "$keeps" ] || command -v rustfmt >/dev/null || build="$build rustfmt-web"

# Where there is no dpkg the programs themselves are looked for.
if ! command -v dpkg-query >/dev/null; then
    missing=
    PATH=$PATH:/usr/sbin:/sbin
    for program in $programs; do
        command -v "$program" >/dev/null || missing="$missing $program"
    done
    [ -n "$missing" ] || exit 0
    cat >&2 <<END
packages: missing here:$missing. On RHEL, Rocky and Alma, with EPEL and CRB enabled, as root:
    dnf install gcc make rpm-build clang-devel slurm-devel slurm slurm-slurmctld slurm-slurmd \\
        slurm-slurmdbd mariadb-server munge python3-carbon python3-whisper supervisor strace
Where EPEL has no python3-carbon, install carbon and whisper with pip, and graphite-web for the tests of the dashboards.
END
    exit 1
fi

missing=
for package in $build $tests; do
    has "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    cat >&2 <<END
packages: missing here:$missing. As root (Debian, Ubuntu):
    apt-get install --no-install-recommends$missing
Or let root run \`sh tests/packages.sh${1:+ $1}\`. Building and the tests need no root.
END
    exit 1
fi

echo "packages: apt-get install --no-install-recommends$missing"
if [ -d /run/systemd/system ]; then
    echo 'packages: their services are not needed: the tests start programs of their own in a temporary folder'
fi
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
# shellcheck disable=SC2086
apt-get -qq -y install --no-install-recommends $missing
