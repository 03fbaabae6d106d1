"""Two stores on one database, as two processes would have them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.store.sqlite import SqliteStore

_tenants = itertools.count(1)
MakeStore = Callable[..., Any]
"""A new store on the test's database, as another process would open it; closed after the test."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
def database(request: pytest.FixtureRequest) -> str:
    """Which database the stores of a test are on; files that say so are run on both."""
    return getattr(request, "param", "sqlite")


@pytest.fixture
async def make_store(
    database: str, path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[MakeStore]:
    opened: list[Any] = []
    tenant = next(_tenants)

    def make(**options: Any) -> Any:
        if database == "sqlite":
            opened.append(SqliteStore(path, **options))
        else:
            from hermes.store.postgres.database import PostgresDatabase
            from hermes.store.postgres.store import PostgresStore

            node = f"node-{tenant}-{len(opened)}"
            url = request.getfixturevalue("postgres_url")
            connections = PostgresDatabase(url, node=node, lease_seconds=90)
            opened.append(PostgresStore(connections, tenant=tenant, **options))
        return opened[-1]

    yield make
    for store in opened:
        await store.close()


@pytest.fixture
def store(make_store: MakeStore) -> Any:
    return make_store()


@pytest.fixture
def other(make_store: MakeStore) -> Any:
    """What another process would be: its own connections and its own owner's lock."""
    return make_store()
