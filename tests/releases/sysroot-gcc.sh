#!/bin/sh
# The linker for a program that is to run in the Debian at $SYSROOT: that release may have an older
# libc than this one. Or, with RPATH, for one that finds its libslurm there.
exec cc ${SYSROOT:+--sysroot="$SYSROOT"} ${RPATH:+-Wl,-rpath,"$RPATH"} "$@"
