#!/bin/sh
# `make release VERSION=x.y.z`: everything of a release but the push, which it prints. DRY=1 only
# says what it would do. SUITES=no leaves the long suites out, and NOTES.md says so; SIGN=no leaves
# the signatures out, and SHA256SUMS says so. target/suites has which suite has passed on which
# commit, so after a failure the same command continues.
set -eu

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
passed=$target/suites
dist=$target/dist
make=${MAKE:-make}
version=${VERSION-}
tag=v$version
value() { sed -n "s/^$1 = \"\(.*\)\"\$/\1/p" Cargo.toml | head -n 1; }

# One after the other on a quiet machine, each with its variables.
suites='test
lints
demo
soak
soak SOAK_TLS=1
soak SOAK_LONGEST=1
loss-long
finished-long
ha-long
bench
bench-scale
scale-out
grafana
audit
releases'

# refuse TEXT: ends; a dry run names all that is wrong.
refused=
refuse() {
    echo "release: $1" >&2
    refused=yes
    [ -n "${DRY-}" ] || exit 1
}

# run COMMAND...: or what it would be.
run() {
    echo "release: $*"
    [ -n "${DRY-}" ] || "$@"
}

# The changelog's lines of this release: below its own heading, or of what is unreleased.
section() {
    grep -q "^## \[$version\]" CHANGELOG.md && heading=$version || heading=Unreleased
    awk -v heading="## [$heading]" 'index($0, "## [") == 1 { on = index($0, heading) == 1; next } on' CHANGELOG.md
}

echo "$version" | grep -qxE '[0-9]+\.[0-9]+\.[0-9]+(-rc\.[0-9]+)?' ||
    refuse "VERSION is '$version': give VERSION=X.Y.Z, or X.Y.Z-rc.N"
[ -z "$(git status --porcelain)" ] || refuse 'the tree has changes: commit or remove them (git status)'
! git rev-parse --quiet --verify "refs/tags/$tag" >/dev/null || refuse "$tag exists: take the next version"
section | grep -q '[^[:space:]]' || refuse "CHANGELOG.md has nothing under '## [$version]' or '## [Unreleased]'"
case "$(value repository)" in
'' | *://example.* | *.example/* | *.example.*)
    refuse "repository in Cargo.toml is '$(value repository)': put the public address there, and into the Dockerfile"
    ;;
esac
case "${DEBFULLNAME-} <${DEBEMAIL-}>" in
' <'* | *@localhost* | *.localdomain\> | *\<\>) refuse 'the packages need a maintainer: set DEBFULLNAME and DEBEMAIL' ;;
esac
key=$(git config user.signingkey || git config user.email || :)
if [ "${SIGN-}" != no ]; then
    echo x | gpg --quiet --local-user "$key" --detach-sign --output - >/dev/null 2>&1 ||
        refuse "gpg cannot sign as '$key': git config user.signingkey KEY, or SIGN=no to release without signatures"
fi

# The commit that was tested: the release's own commit changes only version, date and golden files.
subject="Version $version"
tested=$(git rev-parse HEAD)
[ "$(git log -1 --format=%s)" != "$subject" ] || tested=$(git rev-parse HEAD^)
names=$(echo "$suites" | paste -sd , | sed 's/,/, /g')
if [ "${SUITES-}" = no ]; then
    ran="Long suites that were not run: $names."
else
    ran="Long suites that passed on commit $tested: $names."
    [ -n "${DRY-}" ] || mkdir -p "$target"
    echo "$suites" | while read -r suite; do
        ! grep -qsxF "$tested $suite" "$passed" || { echo "release: $suite has passed on $tested"; continue; }
        # shellcheck disable=SC2086
        run "$make" $suite </dev/null
        [ -n "${DRY-}" ] || echo "$tested $suite" >>"$passed"
    done
fi

# change: the version, the date, and what is made from them.
change() {
    sed -i "0,/^version = /s/^version = .*/version = \"$version\"/" Cargo.toml
    cargo update --quiet --workspace
    section >/dev/null
    sed -i "s/^## \[$heading\].*/## [$version] - $(date -u +%Y-%m-%d)/" CHANGELOG.md
    "$make" golden dashboards
    git add --all
    git diff --cached --quiet || git commit --quiet --message "$subject"
}
if [ "$(git log -1 --format=%s)" = "$subject" ]; then
    echo "release: \"$subject\" is committed"
else
    echo "release: $version in Cargo.toml, the date in CHANGELOG.md, $make golden dashboards, commit \"$subject\""
    [ -n "${DRY-}" ] || change
fi

run "$make" dist-test packages-test

# sign FILE: or says in it that nothing is signed, in a line that sha256sum skips.
sign() {
    if [ "${SIGN-}" = no ]; then
        echo 'release: no signature, and a line in SHA256SUMS that says so'
        [ -n "${DRY-}" ] || { rm -f "$1.asc" && sed -i '1i # Not signed (SIGN=no).' "$1"; }
    else
        run gpg --quiet --yes --local-user "$key" --armor --detach-sign "$1"
    fi
}
sign "$dist/SHA256SUMS"
echo "release: $dist/NOTES.md has the changelog's section. $ran"
[ -n "${DRY-}" ] || { section && printf '\n%s\n' "$ran"; } >"$dist/NOTES.md"
if [ "${SIGN-}" = no ]; then annotate=--annotate; else annotate=--sign; fi
run git tag "$annotate" "$tag" --message "slurm-graphite $version"

cat <<END
release: what is left, in $dist:
    git push origin HEAD $tag
    gh release create $tag --verify-tag --notes-file NOTES.md SHA256SUMS* \$(grep -o 'slurm-graphite.*' SHA256SUMS)
    gh release download $tag --dir new && cd new && gpg --verify SHA256SUMS.asc && sha256sum --check SHA256SUMS
END
[ -z "$refused" ]
