#!/bin/sh
# Installs the engine of the embedded model, if there is one for this machine.
set -eu
venv=$1
lock=$2

if ! "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --require-hashes -r "$lock" &&
        ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$lock"; then
    printf '%s\n' "The embedded model's engine cannot be installed here; connect a model with a key instead." >&2
fi
