"""The gateway with a scripted model and any messenger: in this process, or as its own."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.gateways import GatewayProcess, LiveGateway
from tests.kit import Home, Provider
from tests.kit.server import Step


def free_port() -> int:
    """A port that nobody has. It is below those that the system gives away: one of them could be
    somebody's before it is used."""
    while True:
        port = secrets.choice(range(20_000, 32_000))
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@asynccontextmanager
async def live_platform(
    root: Path,
    steps: Iterable[Step] = (),
    *,
    name: str,
    settings: Mapping[str, Any],
    env: Mapping[str, str],
    then: Step | None = None,
    **config: Any,
) -> AsyncIterator[LiveGateway]:
    """A gateway in this process with one messenger."""
    async with Provider(steps, then=then) as provider:
        home = Home.of(root, provider, platforms={name: dict(settings)}, **config)
        home.env.update(env)
        live = LiveGateway(home, provider, None)  # type: ignore[arg-type]
        try:
            await live.start()
            yield live
        finally:
            await live.stop()
            assert not provider.errors, provider.errors
        require_hidden(home, env)


@asynccontextmanager
async def platform_process(
    root: Path,
    steps: Iterable[Step] = (),
    *,
    name: str,
    settings: Mapping[str, Any],
    env: Mapping[str, str],
    then: Step | None = None,
    **config: Any,
) -> AsyncIterator[GatewayProcess]:
    """`hermes gateway run` with one messenger."""
    async with Provider(steps, then=then) as provider:
        home = Home.of(root, provider, platforms={name: dict(settings)}, **config)
        home.env.update(env)
        process = GatewayProcess(home, provider, None)  # type: ignore[arg-type]
        try:
            await process.start()
            yield process
        finally:
            if process.process.returncode is None:
                await process.kill()
            assert not provider.errors, provider.errors
        require_hidden(home, env)
        for secret in find_secrets(env):
            assert secret not in process.stderr


async def until_failed(live: LiveGateway) -> None:
    """Until a reply was given up."""
    async with asyncio.timeout(90):
        while not (await live.service.hub.mailbox.count_open()).failed:
            await asyncio.sleep(0.02)


def find_secrets(env: Mapping[str, str]) -> list[str]:
    words = ("TOKEN", "SECRET", "PASSWORD")
    return [value for name, value in env.items() if value and any(word in name for word in words)]


def require_hidden(home: Home, env: Mapping[str, str]) -> None:
    """No secret is in a file of the home."""
    for leak in home.path.rglob("*"):
        if leak.is_file() and ".db" not in leak.name:
            content = leak.read_bytes()
            for secret in find_secrets(env):
                assert secret.encode() not in content, f"a secret is in {leak}"
