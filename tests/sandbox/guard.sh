# The guard of one sandbox: ends whatever the sandbox started once its owner is gone, and removes
# its folder.
#
# The owner writes the sandbox's mark and its folder, and then holds the pipe open. However the
# owner ends, by return, panic, abort, Ctrl-C or SIGKILL, the kernel closes the pipe.

IFS= read -r mark || exit 0
IFS= read -r folder || exit 0
IFS= read -r keep || exit 0
while read -r _; do :; done

# The mark comes to grep by a pipe: on its command line it would find itself.
marked() {
    printf '%s\n' "$mark" | grep -s -l -F -f - /proc/[0-9]*/environ | cut -d / -f 3
}

# What runs in a chroot has the folder mounted, and may have lost its mark: of a variable's place
# there is no knowing. Were it mounted here too, that would be said of everybody.
mounted() {
    grep -q -s -F "$folder" /proc/self/mountinfo || grep -s -l -F "$folder" /proc/[0-9]*/mountinfo | cut -d / -f 3
}

# slurmstepd of 24.11 wipes its whole environment, and listens on a socket in slurmd's folder.
listening() {
    grep -s -F "$folder/spool/" /proc/net/unix | while read -r _ _ _ _ _ _ inode _; do
        find /proc/[0-9]*/fd -lname "socket:\[$inode\]" 2>/dev/null | cut -d / -f 3
    done
}

round=0
while pids=$(marked; mounted; listening) && [ -n "$pids" ] && [ "$round" -lt 100 ]; do
    # shellcheck disable=SC2086
    kill -9 $pids 2>/dev/null
    round=$((round + 1))
    sleep 0.02
done

[ "$keep" = keep ] || rm -rf -- "$folder"
