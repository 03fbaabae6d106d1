#!/bin/sh
# Programs that real parts of the tests need (the sandbox, the fast search, the browser, the place
# that commands can run in): installed when we may, otherwise done without, and said. A line is a
# package and the commands it brings, one of which is enough.
set -eu

packages='
bubblewrap bwrap
ripgrep rg
git git
openssh-client ssh
openssh-server sshd /usr/sbin/sshd
chromium chromium chromium-browser google-chrome google-chrome-stable
'

# A daemon is much to install for a test run: only where nothing may be left out.
[ -z "${HERMES_TEST_COMPLETE:-}" ] || packages="$packages
docker.io dockerd /usr/sbin/dockerd"

missing_packages() {
    echo "$packages" | while read -r package commands; do
        [ -n "$package" ] || continue
        for command in $commands; do
            command -v "$command" >/dev/null 2>&1 && continue 2
        done
        echo "$package"
    done
}

missing=$(missing_packages | tr '\n' ' ')
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "Installing $missing with apt-get." >&2
    log=$(mktemp)
    # shellcheck disable=SC2086  # a list of names
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
        --no-install-recommends $missing; } >"$log" 2>&1 || tail -n 20 "$log" >&2
    rm -f "$log"
fi
for package in $(missing_packages); do
    echo "Without $package some tests are skipped; install it to run them." >&2
done
