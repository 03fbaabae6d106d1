"""A connection to the database of the cluster, for commands of the operator."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hermes.app.cluster.node import require_database
from hermes.config.load import Setup

if TYPE_CHECKING:
    from psycopg import Connection


@contextmanager
def open_database(setup: Setup, *, checks: bool = True) -> Iterator[Connection[Any]]:
    """ConfigError where no cluster is configured; StoreError when the database fails, or, if
    `checks`, when its tables do not fit this Hermes."""
    url = require_database(setup)
    import psycopg

    from hermes.store.postgres.connection import open_connection
    from hermes.store.postgres.errors import translate_error
    from hermes.store.postgres.schema import check_version

    try:
        with open_connection(url) as db:
            if checks:
                check_version(db)
            yield db
    except psycopg.Error as error:
        raise translate_error(error) from error
