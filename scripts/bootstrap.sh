#!/bin/sh
# Makes .venv from a plain python3 (3.11 or newer) and puts the locked installer (uv, hatchling)
# into it. Called by make; safe to run again.
set -eu

venv=$1
log=$venv/install.log
. scripts/steps.sh
usable() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

python=
for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.14; do
    if command -v "$candidate" >/dev/null 2>&1 && usable "$candidate"; then
        python=$(command -v "$candidate")
        break
    fi
done
if [ -z "$python" ]; then
    say "Python 3.11 or newer was not found. Install it, or name it: make PYTHON=/path/to/python3"
    exit 1
fi

has_ensurepip() { "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; }

if ! [ -x "$venv/bin/python" ] || ! usable "$venv/bin/python"; then
    say "Setting up Hermes in $venv (once, about a minute):"
    say "  - creating the Python environment"
    rm -rf "$venv"
    if ! has_ensurepip && ! "$python" -m pip --version >/dev/null 2>&1; then
        # Debian and Ubuntu ship Python without venv and pip.
        package=python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
            say "Python has no venv module; installing $package with apt-get."
            { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$package"; } >&2 || true
        fi
        if ! has_ensurepip; then
            say "Python's venv module is missing. Install it with: sudo apt-get install $package"
            exit 1
        fi
    fi
    if has_ensurepip; then
        "$python" -m venv "$venv"
    else
        "$python" -m venv --without-pip "$venv"
    fi
fi

if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    pip="$venv/bin/python -m pip"
else
    pip="$python -m pip --python $venv/bin/python"
fi
# shellcheck disable=SC2086  # $pip is a command with arguments
run_quietly $pip install --disable-pip-version-check --require-hashes --no-deps --retries 2 \
    -r requirements/build.txt || fail_download "The installer (uv)"
