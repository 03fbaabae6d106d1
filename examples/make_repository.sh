#!/bin/sh
# Makes the repository of tasks.jsonl in the folder that is given. Its commits are the same each time.
set -eu
target="$1/example__calculator"
rm -rf "$target"
mkdir -p "$target"
cd "$target"
export GIT_AUTHOR_NAME=Example GIT_AUTHOR_EMAIL=example@example.org
export GIT_COMMITTER_NAME=Example GIT_COMMITTER_EMAIL=example@example.org
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
git init -q --initial-branch=main .
cat > calculator.py <<'PYTHON'
"""A small calculator."""


def add(a, b):
    return a - b


def mean(values):
    return sum(values) / len(values)
PYTHON
git add -A
git commit -q -m "A calculator"
git rev-parse HEAD
