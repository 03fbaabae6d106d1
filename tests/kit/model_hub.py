"""A place that offers one small model: half of it at once, the rest when the test lets it go."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from hermes.llm.local.models import LocalModel

_BODY = bytes(range(256)) * 4096


class ModelHub:
    def __init__(self) -> None:
        self.model: LocalModel
        self.release = asyncio.Event()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        answer.content_length = len(_BODY)
        await answer.prepare(request)
        await answer.write(_BODY[: len(_BODY) // 2])
        await self.release.wait()
        await answer.write(_BODY[len(_BODY) // 2 :])
        return answer


@asynccontextmanager
async def open_hub() -> AsyncIterator[ModelHub]:
    hub = ModelHub()
    runner = web.ServerRunner(web.Server(hub.handle), shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    hub.model = LocalModel(
        name="tiny",
        title="A tiny model",
        size=len(_BODY),
        sha256=hashlib.sha256(_BODY).hexdigest(),
        licence="none",
        page="",
        hub=f"http://127.0.0.1:{runner.addresses[0][1]}/tiny.gguf",
    )
    try:
        yield hub
    finally:
        hub.release.set()
        await runner.cleanup()
