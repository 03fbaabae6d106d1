#!/bin/sh
# Installs the engine of the embedded model, if there is one for this machine.
set -eu
venv=$1
lock=$2
log=$venv/install.log
. scripts/steps.sh

say "  - installing the engine of the built-in model"
if ! run_quietly "$venv/bin/uv" pip install --python "$venv/bin/python" --require-hashes -r "$lock" &&
        ! run_quietly "$venv/bin/python" -m pip install --disable-pip-version-check --require-hashes -r "$lock"; then
    say "The engine of the built-in model cannot be installed here; connect a model with a key instead."
fi
say "Ready. To run it as 'hermes' from any folder: make install"
