"""A model server on this machine answers when nothing else is configured, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.errors import ConfigError
from hermes.core.message import user_message
from hermes.llm.endpoints import local_servers
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.provider_spec import ProviderSpec
from hermes.llm.providers import register_provider
from tests.kit import Home, Provider, say
from tests.kit.replay import replay_now


@contextmanager
def _moved(base_url: str, *names: str) -> Iterator[None]:
    """These servers, at that address."""
    undo = [register_provider(ProviderSpec(name, "chat", base_url, auth="none")) for name in names]
    try:
        yield
    finally:
        for unregister in undo:
            unregister()


@asynccontextmanager
async def _server(provider: Provider, name: str = "lmstudio") -> AsyncIterator[None]:
    """`provider` at the address where that server usually is."""
    with _moved(provider.base_url, name):
        yield


@pytest.fixture
def bare(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    for name in ("KIT_KEY", "SPARE_KEY"):
        del home.env[name]
    return home


async def test_it_is_used_when_nothing_else_is_there(bare: Home) -> None:
    async with (
        Provider([say("Near.")], models=["nomic-embed-text", "qwen3:8b"]) as provider,
        _server(provider),
        Runtime.open(load_setup("", bare.env)) as runtime,
    ):
        assert provider.requests == []
        session = await runtime.open_session(cwd=bare.work)
        assert session.agent.providers[0].target.model == "qwen3:8b"
        assert "qwen3:8b" in session.agent.note
        assert (await session.submit(user_message("hi"))).text == "Near."
        await replay_now(bare.path)


async def test_a_model_that_was_only_named_is_asked_of_who_has_it(bare: Home) -> None:
    """`--model qwen3` with a server that runs is enough; who does not have it is not asked."""
    async with (
        Provider([say("Near.")], models=["llama3.2:3b", "qwen3:latest"]) as provider,
        _server(provider),
        Runtime.open(load_setup("", bare.env)) as runtime,
    ):
        options = Options(choice=ModelChoice(model="qwen3"))
        session = await runtime.open_session(cwd=bare.work, options=options)
        assert session.agent.providers[0].target.model == "qwen3:latest"
        assert "qwen3:latest of lmstudio" in session.agent.note
        for name, key in (("gpt-5-nano", "OPENAI_API_KEY"), ("phi9", "that has it")):
            with pytest.raises(ConfigError, match=f"{name}.*{key}"):
                await runtime.open_session(
                    cwd=bare.work, options=Options(choice=ModelChoice(model=name))
                )
        assert not any(r.method == "POST" for r in provider.requests)


async def test_nobody_is_asked_when_a_model_is_set(
    bare: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.configure(model={"default": "m", "base_url": "http://127.0.0.1:9/v1"})

    async def fail(*_: object) -> tuple[()]:
        raise AssertionError("somebody was asked")

    monkeypatch.setattr(local_servers, "find_servers", fail)
    async with Runtime.open(load_setup("", bare.env)) as runtime:
        session = await runtime.open_session(cwd=bare.work)
        assert session.agent.providers[0].target.model == "m"


async def test_who_does_not_answer_in_time_is_not_waited_for() -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(mute, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async with asyncio.timeout(90):
        with _moved(f"http://127.0.0.1:{port}/v1", "ollama", "vllm"):
            assert await local_servers.find_servers(["ollama", "vllm"]) == ()
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
    monkeypatch.setattr(local_servers, "SECONDS", 20)

    async with asyncio.timeout(90):
        with _moved(f"http://127.0.0.1:{port}/v1", "lmstudio"):
            assert await local_servers.find_servers(["lmstudio"]) == ()
    server.close()
    assert taken < 64 << 20


async def test_everybody_names_the_model_that_would_answer(bare: Home) -> None:
    """The doctor, the status and `hermes model` go the way a conversation goes."""
    from hermes.app.control.doctor import connectivity
    from hermes.app.control.model_description import describe_model
    from hermes.cli.commands.status import _find_model

    async with Provider([], models=["qwen3:8b"]) as provider, _server(provider):
        setup = load_setup("", bare.env)
        assert await _find_model(setup) == "lmstudio:qwen3:8b"
        model, reached = await connectivity.check_models(setup, online=False)
        assert model.text.startswith("lmstudio:qwen3:8b at ") and reached.state == "ok"
        assert (await describe_model(setup))["model"] == "qwen3:8b"
        asked = len(provider.requests)
        bare.configure(model={"default": "m", "base_url": "http://127.0.0.1:9/v1"})
        assert (await describe_model(load_setup("", bare.env)))["model"] == "m"
        assert len(provider.requests) == asked
