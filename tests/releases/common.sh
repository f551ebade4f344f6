# What the scripts of this folder share: where things lie, which releases there are, and Debian's
# mirror.
# shellcheck shell=sh

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cd "$top"
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# For each suite a folder: headers/, root/ (a chroot), bin/ (its reader, and the daemon beside it).
# For each branch the same; root/ is the prefix that it is installed below.
releases=$target/releases

say() { echo "releases: $*" >&2; }

# Lines of suite or branch, release and soname number: all of them, those of Debian, those of
# Slurm's own repository.
all() {
    awk -F '[(), ]+' '/^ *\([0-9]+, Release::new/ {
        release = sprintf("%02d.%02d", $4, $5)
        print ($7 == "suite" ? $8 : "slurm-" release), release, $2
    }' crates/slurm-snapshot/src/release.rs
}
suites() { all | grep -v '^slurm-'; }
branches() { all | grep '^slurm-'; }

# The mirror that this machine's own apt uses for Debian, whichever it is; DEBIAN_MIRROR names
# another.
mirror() {
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        echo "$DEBIAN_MIRROR"
        return
    fi
    command -v apt-get >/dev/null || return 0
    apt-get indextargets 'Created-By: Packages' --format '$(ORIGIN) $(RELEASE) $(REPO_URI)' 2>/dev/null |
        awk '$1 == "Debian" && $2 !~ /-/ { print $3; exit }'
}

# fetch SUITE PACKAGE DIR: unpacks a package of Debian's below DIR, with apt lists of our own beside
# it; nothing is installed.
fetch() {
    apt=$3.apt
    rm -rf "$3" "$apt"
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$3"
    # The machine's own configuration says how its mirror is reached and what is trusted.
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keyring] $(mirror) $1 main" >"$apt/sources.list"
    (
        cd "$apt"
        for words in 'update --error-on=any' "download $2"; do
            # shellcheck disable=SC2086
            apt-get "-oDir::Etc::SourceList=$apt/sources.list" -oDir::Etc::SourceParts=- \
                "-oDir::State::Lists=$apt/lists" \
                -oDir::State::Status=/dev/null "-oDir::Cache=$apt/cache" \
                -oAcquire::Retries=0 -oAcquire::http::Timeout=20 \
                -oAPT::Sandbox::User= -qq $words || exit 1
        done
        dpkg -x "$2"_*.deb "$3"
    ) </dev/null || return 1
    rm -rf "$apt"
}

# The platform that Rust builds for here.
host() { rustc -vV | sed -n 's/^host: //p'; }

# version CLONE COMMIT FORMAT: Slurm's major, minor and micro number in META, each in this format of
# printf.
version() {
    git -C "$1" show "$2:META" | awk -v format="$3" '/^ *(Major|Minor|Micro):/ { printf format, $2 }'
}

# revision CLONE BRANCH: the branch's commit in a git clone of Slurm, where it may be a remote's
# only. A release that has no branch yet is master's commit, if master is of that release.
revision() {
    for name in "$2" "origin/$2" master origin/master; do
        commit=$(git -C "$1" rev-parse --verify --quiet "$name^{commit}") || continue
        case $name:$(version "$1" "$commit" %02d.) in
        "master:${2#slurm-}".* | "origin/master:${2#slurm-}".*)
            say "no branch $2 in $1: $name of $(git -C "$1" log -1 --format='%cs, %h' "$commit")"
            ;;
        *master:*) continue ;;
        esac
        echo "$commit"
        return
    done
    return 1
}
