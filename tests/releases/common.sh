# What the scripts of this folder share: where things lie, which releases there are, and Debian's mirror.
# shellcheck shell=sh

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cd "$top"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# For each suite a folder: headers/, root/ (a chroot), bin/ (its reader, and the daemon beside it).
releases=$target/releases

say() { echo "releases: $*" >&2; }

# Lines of suite, release and soname number.
suites() { grep -v '^#' "$here/suites"; }

# The mirror that this machine's own apt uses for Debian, whichever it is; DEBIAN_MIRROR names another.
mirror() {
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        echo "$DEBIAN_MIRROR"
        return
    fi
    command -v apt-get >/dev/null || return 0
    apt-get indextargets 'Created-By: Packages' --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' 2>/dev/null |
        awk '$1 == "Debian" && $2 !~ /-/ { print $3; exit }'
}

# The platform that Rust builds for here.
host() { rustc -vV | sed -n 's/^host: //p'; }

# revision CLONE BRANCH: the branch in a clone, where it may be a remote's only.
revision() {
    for name in "$2" "origin/$2"; do
        git -C "$1" rev-parse --verify --quiet "$name^{commit}" >/dev/null && { echo "$name"; return; }
    done
    echo "$2"
}
