#!/bin/sh
# roots.sh [SUITE...]: makes a Debian of each suite, or of these, with its Slurm below
# target/releases, by debootstrap, as root. One that is there with the same packages stays.
set -eu
. "$(dirname "$0")/common.sh"

# libc6-dev: a reader is linked against the libc of its suite, so that it runs there. slurmdbd's
# database is this machine's.
packages=libslurm-dev,slurmctld,slurmd,slurmdbd,slurm-client,slurm-wlm-basic-plugins,munge,libc6-dev

[ "$(id -u)" -eq 0 ] || { say 'chroots are made, and entered, as root'; exit 1; }
command -v debootstrap >/dev/null || { say 'debootstrap is missing: apt-get install debootstrap'; exit 1; }
mirror=$(mirror)
suites | while read -r suite release _; do
    case " ${*:-$suite} " in *" $suite "*) ;; *) continue ;; esac
    root=$releases/$suite/root
    # Debian 11 has no package of the JWT plugin, and run.sh asks no slurmrestd of 20.11.
    [ "$release" = 20.11 ] && rest= || rest=,slurmrestd,slurm-wlm-jwt-plugin
    [ "$(cat "$root.done" 2>/dev/null)" = "$packages$rest" ] && continue
    [ -n "$mirror" ] || { say 'no mirror of Debian in the apt sources here; name one in DEBIAN_MIRROR'; exit 1; }
    say "Slurm $release: a chroot of $suite"
    rm -rf "$root"
    mkdir -p "$root"
    # What this debootstrap does not know yet is made as unstable is.
    script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
    debootstrap --variant=minbase --include="$packages$rest" "$suite" "$root" "$mirror" "$script" \
        >"$root.log" 2>&1 </dev/null || { tail -n 5 "$root.log" >&2; exit 1; }
    # To a linker outside an absolute link of the chroot would lead to this machine's libraries.
    find "$root/lib64/" "$root"/usr/lib/*-linux-gnu -maxdepth 1 -type l -lname '/*' | while read -r link; do
        ln -srf "$root$(readlink "$link")" "$link"
    done
    echo "$packages$rest" >"$root.done"
done
