#!/bin/sh
# enter.sh ROOT FOLDER... -- PROGRAM ARGUMENT...: this process becomes PROGRAM in the Debian at
# ROOT, as root.
#
# Its mounts are in a namespace of their own and end with it, however it ends: /proc, /sys, an empty
# /tmp, /etc/hosts (slurmctld looks up this machine's name), and each FOLDER under its own name. The
# network, the process ids and the environment are those of outside.
set -eu
exec unshare --mount --propagation private sh -euc '
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount -t tmpfs tmpfs "$root/tmp"
    : >>"$root/etc/hosts"
    mount --bind /etc/hosts "$root/etc/hosts"
    while [ "$1" != -- ]; do
        mkdir -p "$root$1"
        mount --rbind "$1" "$root$1"
        shift
    done
    shift
    exec chroot "$root" "$@"' enter "$@"
