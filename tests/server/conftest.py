"""Servers that the cases of a table share; the requests leave nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.kit import say
from tests.kit.api import Api, api


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder in memory where possible: hundreds of turns are written to disk."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None, prefix="hermes-test-"))
    yield made
    shutil.rmtree(made)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(folder: Path) -> AsyncIterator[Api]:
    """A server with a key, one allowed origin, and a model that always says Yes."""
    settings = {"cors_origins": ["https://ui.example"], "allowed_hosts": ["agent.example"]}
    async with api(folder / "shared", then=say("Yes."), settings=settings) as a:
        yield a


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyless(folder: Path) -> AsyncIterator[Api]:
    async with api(folder / "keyless", then=say("Yes."), key="") as a:
        yield a
