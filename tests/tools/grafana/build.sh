#!/bin/sh
# build.sh WORK: makes page.js and page.css in WORK, from page.jsx and Grafana's libraries in the
# versions and with the hashes of package-lock.json. Needs node and npm.
set -eu
command -v npm >/dev/null || { echo 'npm is missing: install Node.js 20 or later' >&2; exit 1; }
mkdir -p "$1"
cp "$(dirname "$0")"/*.js* "$(dirname "$0")"/bundle.mjs "$1"
cd "$1"
if ! cmp -s package-lock.json installed.json; then
    npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
    cp package-lock.json installed.json
fi
node bundle.mjs page.js
