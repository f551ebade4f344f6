#!/bin/sh
# install.sh: puts slurm-graphite where it belongs; the same script serves `make install`, the
# packages and the tarball.
#
# Running it again replaces the programs and leaves an edited configuration as it is.
set -eu

usage() {
    cat <<'END'
usage: install.sh [--prefix DIR] [--dry-run | --uninstall]

  --prefix DIR   install below DIR; default: /usr/local. With /usr the configuration is in /etc
  --dry-run      say which files would be written, and write none
  --uninstall    remove what was installed; an edited configuration, the queue and the user stay

Without DESTDIR, root gets the user slurm-graphite and its folders too.

Environment: DESTDIR is put before every path. BUILT names the folder of the programs, UNITS that of systemd's units,
ZSH that of zsh's completions, SYSCONFDIR that of slurm-graphite/slurm-graphite.toml.
END
}

top=$(cd "$(dirname "$0")" && pwd)
# In a source tree it is in a folder of its own.
[ -e "$top/config" ] || top=$(dirname "$top")
prefix=/usr/local
action=copy
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=${2:?--prefix takes a folder}; shift ;;
        --prefix=*) prefix=${1#*=} ;;
        --dry-run | --uninstall)
            [ $action = copy ] || { echo 'install.sh: --dry-run and --uninstall do not go together' >&2; exit 64; }
            [ "$1" = --dry-run ] && action=name || action=remove
            ;;
        --help | -h) usage; exit 0 ;;
        *) echo "install.sh: $1 is no option of it" >&2; usage >&2; exit 64 ;;
    esac
    shift
done

built=${BUILT:-$top/bin}
root=${DESTDIR:-}
bin=$prefix/bin
libexec=$prefix/libexec/slurm-graphite
share=$prefix/share
sysconf=${SYSCONFDIR:-$prefix/etc}
[ "$prefix" != /usr ] || sysconf=${SYSCONFDIR:-/etc}
configuration=$sysconf/slurm-graphite/slurm-graphite.toml
case $prefix:$sysconf in
    /*:/*) ;;
    *) echo "install.sh: --prefix and SYSCONFDIR must begin with /" >&2; exit 64 ;;
esac
# They go into sed's expressions and into the unit.
case $prefix$sysconf in
    *[!A-Za-z0-9/._+~@-]*)
        echo "install.sh: --prefix and SYSCONFDIR may have letters, digits and / . _ + ~ @ - only" >&2
        exit 64
        ;;
esac
[ -x "$built/slurm-graphite" ] || {
    echo "install.sh: no programs in $built; in a source tree, run \`make build\` first" >&2
    exit 1
}

copy() {
    install -D -m "$1" "$2" "$root$3"
    [ "$1" = 755 ] || adapt "$root$3"
    case $3 in *.md) links "$root$3" ;; esac
}
name() { echo "$root$3"; }
remove() { rm -f "$root$3"; }

# What is written for a package under /usr and /etc, for another prefix; manual pages have a
# backslash before a hyphen.
adapt() {
    sed -i -e "s|/usr/bin/slurm\\\\*-graphite|$bin/slurm-graphite|g" \
        -e "s|/usr/libexec/slurm\\\\*-graphite|$libexec|g" \
        -e "s|/usr/share/slurm\\\\*-graphite|$share/slurm-graphite|g" \
        -e "s|/usr/share/%i/|$share/%i/|g" -e "s|/etc/slurm\\\\*-graphite|$sysconf/slurm-graphite|g" "$1"
}

# Documents are in one folder here, without pictures and without those for developers.
links() {
    sed -i -e '/](docs\/images\//d' -e '/^!\[.*](images\//d' \
        -e 's|](\(\.\./\)*docs/|](|g' -e 's|](\(\.\./\)*README\.md|](README.md|g' \
        -e 's|](\(\.\./\)*config/slurm-graphite\.toml)|](slurm-graphite.toml)|g' \
        -e 's|](\(\.\./\)*config/|](../../slurm-graphite/|g' \
        -e 's#\[\([^]]*\)\](\(\.\./\)*\(tests/[^)]*\|CONTRIBUTING\.md\|development/[^)]*\|images/[^)]*\))#\1#g' "$1"
}

$action 755 "$built/slurm-graphite" "$bin/slurm-graphite"
for reader in "$built"/slurm-graphite-reader* "$built/slurm-graphite-rest-reader"; do
    # Cargo leaves a list of dependencies, with the same name and .d, where it builds a program.
    case $reader in
        # The tarball for aarch64 has no reader of libslurm.
        *.d | *'*') ;;
        *) $action 755 "$reader" "$libexec/${reader##*/}" ;;
    esac
done
for unit in slurm-graphite.service slurm-graphite@.service; do
    $action 644 "$top/systemd/$unit" "${UNITS:-$prefix/lib/systemd/system}/$unit"
done
$action 644 "$top/systemd/slurm-graphite.sysusers" "$prefix/lib/sysusers.d/slurm-graphite.conf"
$action 644 "$top/systemd/slurm-graphite.tmpfiles" "$prefix/lib/tmpfiles.d/slurm-graphite.conf"
$action 644 "$built/manual/slurm-graphite.1" "$share/man/man1/slurm-graphite.1"
$action 644 "$built/manual/slurm-graphite.toml.5" "$share/man/man5/slurm-graphite.toml.5"
$action 644 "$built/manual/slurm-graphite.bash" "$share/bash-completion/completions/slurm-graphite"
$action 644 "$built/manual/slurm-graphite.fish" "$share/fish/vendor_completions.d/slurm-graphite.fish"
$action 644 "$built/manual/_slurm-graphite" "${ZSH:-$share/zsh/site-functions}/_slurm-graphite"
find -H "$top/config" -mindepth 2 -type f | while read -r file; do
    $action 644 "$file" "$share/slurm-graphite/${file#"$top/config/"}"
done
for file in "$top"/config/slurm-graphite.toml "$top"/README.md "$top"/CHANGELOG.md \
    "$top"/SECURITY.md "$top"/LICENSE "$top"/THIRD-PARTY-NOTICES \
    "$top"/docs/*.md; do
    $action 644 "$file" "$share/doc/slurm-graphite/${file##*/}"
done

if [ "$action" = remove ]; then
    # As it was installed, nobody has edited it.
    fresh=$(mktemp)
    cp "$top/config/first.toml" "$fresh"
    adapt "$fresh"
    cmp -s "$fresh" "$root$configuration" && rm "$root$configuration"
    rm "$fresh"
    for folder in "$libexec" "$share/slurm-graphite" "$share/doc/slurm-graphite" "$sysconf/slurm-graphite"; do
        [ ! -d "$root$folder" ] || find "$root$folder" -depth -type d -exec rmdir --ignore-fail-on-non-empty {} +
    done
elif [ ! -e "$root$configuration" ]; then
    $action 644 "$top/config/first.toml" "$configuration"
fi

# On the host itself the unit can be started next, with systemd or without.
if [ "$action" = copy ] && [ -z "$root" ] && [ "$(id -u)" -eq 0 ]; then
    state=/var/lib/slurm-graphite
    getent group slurm-graphite >/dev/null || groupadd --system slurm-graphite
    getent passwd slurm-graphite >/dev/null || useradd --system --gid slurm-graphite --no-create-home \
        --home-dir "$state" --shell /usr/sbin/nologin --comment 'Slurm statistics to Graphite' slurm-graphite
    [ -d "$state" ] || install -d -m 700 -o slurm-graphite -g slurm-graphite "$state"
    install -d -o slurm-graphite -g slurm-graphite /run/slurm-graphite
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    echo "install.sh: installed; next, edit $configuration and start slurm-graphite.service"
fi
