"""The store in which a run is: that of its folder, or that of the cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hermes.batch.run_folder import RunFolder, RunSettings
from hermes.config.load import Setup
from hermes.core.store import Store
from hermes.store.sqlite import SqliteStore


@asynccontextmanager
async def open_run_store(
    setup: Setup, folder: RunFolder, settings: RunSettings
) -> AsyncIterator[Store]:
    """Open until the block ends. ConfigError where the cluster of the run is not configured."""
    store: Store = SqliteStore(folder.database) if not settings.cluster else _open_cluster(setup)
    try:
        await store.wait_until_open()
        yield store
    finally:
        await store.close()


def _open_cluster(setup: Setup) -> Store:
    from hermes.app.cluster.node import require_database

    url = require_database(setup)
    from hermes.store.postgres.store import open_postgres

    return open_postgres(url)
