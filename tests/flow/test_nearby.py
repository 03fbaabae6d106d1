"""A model server on this machine answers when nothing else is configured, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.app.runtime import Runtime
from hermes.config.load import load
from hermes.core.message import user
from hermes.llm import catalog, nearby
from tests.kit import Home, Provider, say


@asynccontextmanager
async def _server(
    monkeypatch: pytest.MonkeyPatch, provider: Provider, name: str = "lmstudio"
) -> AsyncIterator[None]:
    """`provider` at the address where that server usually is."""
    spec = catalog.find(name)
    assert spec is not None
    moved = {name: spec.__class__(name=name, wire="chat", base_url=provider.base_url, auth="none")}
    real = catalog.find
    for module in (nearby, catalog, __import__("hermes.llm.choosing", fromlist=["find"])):
        monkeypatch.setattr(module, "find", lambda n: moved.get(n) or real(n))
    yield


@pytest.fixture
def bare(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    for name in ("KIT_KEY", "SPARE_KEY"):
        del home.env[name]
    return home


async def test_it_is_used_when_nothing_else_is_there(
    bare: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        Provider([say("Near.")], models=["nomic-embed-text", "qwen3:8b"]) as provider,
        _server(monkeypatch, provider),
        Runtime.open(load("", bare.env)) as runtime,
    ):
        assert provider.requests == []
        session = await runtime.session(cwd=bare.work)
        assert session.agent.providers[0].target.model == "qwen3:8b"
        assert "qwen3:8b" in session.agent.note
        assert (await session.turn(user("hi"))).text == "Near."


async def test_nobody_is_asked_when_a_model_is_set(
    bare: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.configure(model={"default": "m", "base_url": "http://127.0.0.1:9/v1"})

    async def fail(*_: object) -> tuple[()]:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(nearby, "look_around", fail)
    async with Runtime.open(load("", bare.env)) as runtime:
        session = await runtime.session(cwd=bare.work)
        assert session.agent.providers[0].target.model == "m"


async def test_who_does_not_answer_in_time_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    class Mute:
        base_url = f"http://127.0.0.1:{port}/v1"

    monkeypatch.setattr(nearby, "find", lambda name: Mute)
    async with asyncio.timeout(5):
        assert await nearby.look_around(["ollama", "vllm"]) == ()
    server.close()
