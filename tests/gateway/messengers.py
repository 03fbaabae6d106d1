"""The gateway with a scripted model and any fake messenger: in this process, or as its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from tests.gateway.gateways import GatewayProcess, LiveGateway
from tests.kit import Home, Provider, run_hermes
from tests.kit.bodies import messages
from tests.kit.messenger import FakeMessenger
from tests.kit.server import Step

F = TypeVar("F", bound=FakeMessenger)


class Messenger(Generic[F]):
    """A gateway (`g.run`), the fake it talks to (`g.chat`) and the model (`g.provider`)."""

    def __init__(self, run: Any, chat: F, home: Home, provider: Provider) -> None:
        self.run = run
        self.chat = chat
        self.home = home
        self.provider = provider

    @property
    def prompts(self) -> list[str]:
        """The last user message of each request to the model."""
        return [
            [m.text for m in messages(r) if m.role == "user"][-1] for r in self.provider.requests
        ]

    async def until_state(self, state: str) -> dict[str, Any]:
        """What `hermes gateway status` says about the platform once it is in that state."""
        async with asyncio.timeout(90):
            while True:
                shown = await run_hermes(["gateway", "status", "--json"], self.home)
                found: dict[str, Any] = shown.json["platforms"][type(self.chat).name]
                if found["state"] == state:
                    return found


@asynccontextmanager
async def messenger(
    fake: AbstractAsyncContextManager[F],
    root: Path,
    steps: Iterable[Step] = (),
    *,
    then: Step | None = None,
    platform: dict[str, Any] | None = None,
    process: bool = False,
    start: bool = True,
    **config: Any,
) -> AsyncIterator[Messenger[F]]:
    """A gateway whose owner may talk to it. No token is left in any file of its home."""
    async with fake as chat, Provider(steps, then=then) as provider:
        kind: Any = type(chat)
        settings = {"base_url": chat.url, "allowed_users": [kind.owner], **(platform or {})}
        home = Home.of(root, provider, platforms={kind.name: settings}, **config)
        home.env.update(kind.variables)
        run: Any = (GatewayProcess if process else LiveGateway)(home, provider, chat)  # type: ignore[arg-type]
        found = Messenger(run, chat, home, provider)
        if start:
            await run.start()
        try:
            yield found
        finally:
            if not process:
                await run.stop()
            elif hasattr(run, "process") and run.process.returncode is None:
                await run.kill()
            assert not provider.errors, provider.errors
        for leak in home.path.rglob("*"):
            if leak.is_file() and ".db" not in leak.name and leak.name != ".env":
                for token in kind.variables.values():
                    assert token.encode() not in leak.read_bytes(), f"a token is in {leak}"
