"""Two stores on one file, as two processes would have them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.store.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    await opened.close()


@pytest.fixture
async def other(path: Path) -> AsyncIterator[SqliteStore]:
    """What another process would be: its own connections and its own owner's lock."""
    opened = SqliteStore(path)
    yield opened
    await opened.close()
