"""A library agent on a scripted provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import hermes
from tests.kit import Home, Provider, Reply
from tests.kit.bodies import messages, quoted
from tests.kit.home import KEY

Opening = Callable[..., AbstractAsyncContextManager[tuple[hermes.Agent, Provider]]]


@pytest.fixture
def opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opening:
    """Opens an agent whose provider answers with these replies."""
    monkeypatch.setenv("KIT_KEY", KEY)

    @asynccontextmanager
    async def opened(
        *steps: Any, then: Reply | None = None, config: Any = None, **options: Any
    ) -> AsyncIterator[tuple[hermes.Agent, Provider]]:
        async with Provider(steps, then=then) as provider:
            home = Home.of(tmp_path, provider, **(config or {}))
            options = {"home": home.path, "cwd": home.work, **options}
            async with hermes.Agent(**options) as agent:
                yield agent, provider
            assert not provider.surprises
            assert not home.leaks()

    return opened


def last_results(provider: Provider) -> list[str]:
    """What tools returned, as the last request shows it."""
    return [quoted(text) for m in messages(provider.requests[-1]) for _, text in m.results]


def last_prompt(provider: Provider) -> str:
    return messages(provider.requests[-1])[-1].text


async def collect_events(stream: AsyncIterator[hermes.Event]) -> list[hermes.Event]:
    return [event async for event in stream]
