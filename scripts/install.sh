#!/bin/sh
# Installs a hashed lock file into .venv: with uv, and with pip where uv cannot reach the package
# index but pip is set up to (pip reads pip.conf and PIP_*, uv does not).
set -eu
venv=$1
lock=$2

if ! "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --compile-bytecode \
        --require-hashes -r "$lock"; then
    printf '%s\n' "uv could not install $lock; trying pip." >&2
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"
fi
# The project itself, editable, built with the locked hatchling: nothing unpinned is fetched.
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
"$venv/bin/python" -m compileall -q src
