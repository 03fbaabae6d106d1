"""The step of the schema that adds what nodes have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psycopg import Connection

_TABLES = """
CREATE TABLE singletons (
    name text PRIMARY KEY,
    owner text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""


def add_shared_tables(db: Connection[Any]) -> None:
    db.execute(_TABLES)
