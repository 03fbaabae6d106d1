#!/bin/sh
# Installs a hashed lock file into .venv: with uv, and with pip where uv cannot reach the package
# index but pip is set up to (pip reads pip.conf and PIP_*, uv does not).
set -eu
venv=$1
lock=$2
log=$venv/install.log
. scripts/steps.sh

say "  - installing the packages of $lock"
if ! run_quietly "$venv/bin/uv" pip install --python "$venv/bin/python" --compile-bytecode \
        --require-hashes -r "$lock"; then
    run_quietly "$venv/bin/python" -m pip install --disable-pip-version-check --retries 2 \
        --require-hashes -r "$lock" || fail_download "The packages of $lock"
fi
# The project itself, editable, built with the locked hatchling: nothing unpinned is fetched.
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
"$venv/bin/python" -m compileall -q src
