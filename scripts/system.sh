#!/bin/sh
# Programs that real parts of the tests need (the sandbox, the fast search, the browser, the place
# that commands can run in, toolchains): installed when we may, otherwise done without, and said.
# A line is a package and the commands or files it brings, one of which is enough.
set -eu

packages='
bubblewrap bwrap
ripgrep rg
git git
openssh-client ssh
openssh-server sshd /usr/sbin/sshd
chromium chromium chromium-browser google-chrome google-chrome-stable
'

# A daemon and compilers are much to install for a test run: only where nothing may be left out.
# Toolchains are looked for where every user finds them.
[ -z "${HERMES_TEST_COMPLETE:-}" ] || packages="$packages
docker.io dockerd /usr/sbin/dockerd
firefox-esr firefox-esr firefox
nginx /usr/sbin/nginx
python3-venv /usr/share/doc/python3-venv
python3-pip /usr/bin/pip3
cargo /usr/bin/cargo
golang-go /usr/bin/go
default-jdk-headless /usr/bin/javac
maven /usr/bin/mvn
junit4 /usr/share/java/junit4.jar
libmaven-compiler-plugin-java /usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin
libmaven-jar-plugin-java /usr/share/maven-repo/org/apache/maven/plugins/maven-jar-plugin
libmaven-resources-plugin-java /usr/share/maven-repo/org/apache/maven/plugins/maven-resources-plugin
libsurefire-java /usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin
ruby /usr/bin/ruby
php-cli /usr/bin/php
phpunit /usr/bin/phpunit
composer /usr/bin/composer
postgresql /usr/lib/postgresql
ngircd /usr/sbin/ngircd
dovecot-imapd /usr/lib/dovecot/imap"

missing_packages() {
    echo "$packages" | while read -r package commands; do
        [ -n "$package" ] || continue
        for command in $commands; do
            { [ -e "$command" ] || command -v "$command" >/dev/null 2>&1; } && continue 2
        done
        echo "$package"
    done
}

missing=$(missing_packages | tr '\n' ' ')
[ -n "$missing" ] || exit 0
as_root=
[ "$(id -u)" = 0 ] || as_root='sudo -n'
if $as_root true 2>/dev/null && command -v apt-get >/dev/null 2>&1; then
    echo "Installing $missing with apt-get." >&2
    log=$(mktemp)
    # shellcheck disable=SC2086  # lists of words
    { $as_root apt-get update -qq && $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends $missing; } >"$log" 2>&1 ||
        tail -n 20 "$log" >&2
    rm -f "$log"
fi
for package in $(missing_packages); do
    echo "Without $package some tests are skipped; install it to run them." >&2
done
