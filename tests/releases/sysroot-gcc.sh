#!/bin/sh
# The linker for a program that is to run in the Debian at $SYSROOT: that release may have an older libc than this one.
exec cc --sysroot="$SYSROOT" "$@"
