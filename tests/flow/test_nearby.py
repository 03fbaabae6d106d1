"""A model server on this machine answers when nothing else is configured, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.errors import ConfigError
from hermes.core.message import user
from hermes.llm.endpoints import catalog
from hermes.llm.endpoints import local_servers as nearby
from hermes.llm.endpoints.catalog import Choice
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
    for module in (nearby, catalog, __import__("hermes.llm.endpoints.resolver", fromlist=["find"])):
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
        Runtime.open(load_setup("", bare.env)) as runtime,
    ):
        assert provider.requests == []
        session = await runtime.session(cwd=bare.work)
        assert session.agent.providers[0].target.model == "qwen3:8b"
        assert "qwen3:8b" in session.agent.note
        assert (await session.submit(user("hi"))).text == "Near."


async def test_a_model_that_was_only_named_is_asked_of_who_has_it(
    bare: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--model qwen3` with a server that runs is enough; who does not have it is not asked."""
    async with (
        Provider([say("Near.")], models=["llama3.2:3b", "qwen3:latest"]) as provider,
        _server(monkeypatch, provider),
        Runtime.open(load_setup("", bare.env)) as runtime,
    ):
        options = Options(choice=Choice(model="qwen3"))
        session = await runtime.session(cwd=bare.work, options=options)
        assert session.agent.providers[0].target.model == "qwen3:latest"
        assert "qwen3:latest of lmstudio" in session.agent.note
        for name, key in (("gpt-5-nano", "OPENAI_API_KEY"), ("phi9", "that has it")):
            with pytest.raises(ConfigError, match=f"{name}.*{key}"):
                await runtime.session(cwd=bare.work, options=Options(choice=Choice(model=name)))
        assert not any(r.method == "POST" for r in provider.requests)


async def test_nobody_is_asked_when_a_model_is_set(
    bare: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.configure(model={"default": "m", "base_url": "http://127.0.0.1:9/v1"})

    async def fail(*_: object) -> tuple[()]:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(nearby, "look_around", fail)
    async with Runtime.open(load_setup("", bare.env)) as runtime:
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


async def test_what_floods_us_is_no_list_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever listens there may talk for ever: it is read as far as a list can go."""
    taken = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                taken += 65536
        except OSError:
            writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setattr(nearby, "SECONDS", 20)

    class Flood:
        base_url = f"http://127.0.0.1:{port}/v1"

    monkeypatch.setattr(nearby, "find", lambda _: Flood)
    async with asyncio.timeout(30):
        assert await nearby.look_around(["lmstudio"]) == ()
    server.close()
    assert taken < 64 << 20


async def test_everybody_names_the_model_that_would_answer(
    bare: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor, the status and `hermes model` go the way a conversation goes."""
    from hermes.cli.commands.status import _find_model
    from hermes.cli.doctor import connectivity
    from hermes.cli.model.show import describe_model

    async with Provider([], models=["qwen3:8b"]) as provider, _server(monkeypatch, provider):
        setup = load_setup("", bare.env)
        assert await _find_model(setup) == "lmstudio:qwen3:8b"
        model, reached = await connectivity.check_models(setup, online=False)
        assert model.text.startswith("lmstudio:qwen3:8b at ") and reached.state == "ok"
        assert (await describe_model(setup))["model"] == "qwen3:8b"
        asked = len(provider.requests)
        bare.configure(model={"default": "m", "base_url": "http://127.0.0.1:9/v1"})
        assert (await describe_model(load_setup("", bare.env)))["model"] == "m"
        assert len(provider.requests) == asked
