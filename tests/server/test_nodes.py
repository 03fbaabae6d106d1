"""What `make test` runs of the slow tests of a cluster; all of them: `make e2e`, and for an hour:
`make cluster-test`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.postgres import create_database
from tests.server import (
    test_cluster_anywhere,
    test_cluster_limits,
    test_cluster_queue,
    test_cluster_requests,
)

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    prepared = (test_cluster_limits.__name__, test_cluster_requests.__name__)
    tables = request.function.__module__ in prepared
    with create_database(postgres_server, tables=tables) as made:
        yield made


test_inbox = test_cluster_queue.test_messages_of_a_session_are_answered_once_and_in_order
test_streams = test_cluster_anywhere.test_a_stream_that_is_cut_goes_on_at_any_node_byte_for_byte
test_notices = test_cluster_queue.test_no_statement_that_writes_notifies
test_cap = test_cluster_limits.test_a_cap_holds_over_all_nodes
test_pause_of_a_key = test_cluster_limits.test_a_pause_of_one_node_is_one_of_all
test_requests = test_cluster_requests.test_a_key_that_reaches_all_nodes_at_once_runs_once
