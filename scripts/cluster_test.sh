#!/bin/sh
# The long tests of a cluster, then its speed: make cluster-test. Every figure can be set outside.
set -eu
BIN=$1 WORKERS=$2
shift 2
export HERMES_KILLS="${HERMES_KILLS:-200}" HERMES_KILL_ROUNDS="${HERMES_KILL_ROUNDS:-15}"
export HERMES_TEST_TURNS="${HERMES_TEST_TURNS:-20}" HERMES_TEST_LEASE="${HERMES_TEST_LEASE:-5}"
export HERMES_TEST_PAUSES="${HERMES_TEST_PAUSES:-20}"
export HERMES_TEST_PAUSE_SECONDS="${HERMES_TEST_PAUSE_SECONDS:-30}"
export HERMES_TEST_CRASHES="${HERMES_TEST_CRASHES:-20}"
export HERMES_TEST_SESSIONS="${HERMES_TEST_SESSIONS:-150}"
export HERMES_IMPORT="${HERMES_IMPORT:-100000}"
postgres() {
	"$BIN/python" -m tests.kit.postgres "$BIN/python" "$@"
}
# The store and the API: on one node, then with requests spread over three.
HERMES_TEST_STORE=postgres postgres -m pytest -n "$WORKERS" tests/unit/store \
	tests/server/test_api_*.py "$@"
HERMES_TEST_STORE=postgres HERMES_TEST_NODES=3 postgres -m pytest -n "$WORKERS" \
	tests/server/test_api_*.py "$@"
# One after the other: they measure.
postgres -m pytest -s tests/server/test_cluster*.py "$@"
postgres -m bench.cluster
