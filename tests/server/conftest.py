"""One server for all the cases of a table: what they ask of it leaves nothing behind."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.kit import say
from tests.kit.api import Api, api


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory) -> AsyncIterator[Api]:
    """With a key, one allowed origin, and a model that always says Yes."""
    settings = {"cors_origins": ["https://ui.example"], "allowed_hosts": ["agent.example"]}
    async with api(tmp_path_factory.mktemp("api"), then=say("Yes."), settings=settings) as a:
        yield a


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def keyless(tmp_path_factory) -> AsyncIterator[Api]:
    async with api(tmp_path_factory.mktemp("open"), then=say("Yes."), key="") as a:
        yield a
