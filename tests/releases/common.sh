# What the scripts of this folder share: where things lie, which releases there are, and Debian's mirror.
# shellcheck shell=sh

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cd "$top"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# For each suite a folder: headers/, root/ (a chroot), bin/ (its reader, and the daemon beside it). For each branch the same;
# root/ is the prefix that it is installed below.
releases=$target/releases

say() { echo "releases: $*" >&2; }

# Lines of suite or branch, release and soname number: all of them, those of Debian, those of Slurm's own repository.
all() { grep -v '^#' "$here/suites"; }
suites() { all | grep -v '^slurm-'; }
branches() { all | grep '^slurm-'; }

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

# revision CLONE BRANCH: the branch's commit in a git clone of Slurm, where it may be a remote's only.
revision() {
    git -C "$1" rev-parse --verify --quiet "$2^{commit}" || git -C "$1" rev-parse --verify --quiet "origin/$2^{commit}"
}
