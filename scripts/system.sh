#!/bin/sh
# Programs that real parts of the tests need (the sandbox, the fast search): installed when we may,
# otherwise done without, and said.
set -eu

missing=
for pair in bwrap:bubblewrap rg:ripgrep git:git; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing="$missing ${pair#*:}"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing$missing with apt-get." >&2
    # shellcheck disable=SC2086  # a list of names
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing; } >&2 || true
fi
for pair in bwrap:bubblewrap rg:ripgrep git:git; do
    command -v "${pair%%:*}" >/dev/null 2>&1 ||
        echo "Without ${pair#*:} some tests are skipped; install it to run them." >&2
done
