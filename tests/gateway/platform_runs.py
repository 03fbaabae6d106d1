"""`hermes gateway run` as a process with one messenger that is not Telegram."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.gateway.gateways import GatewayProcess
from tests.kit import Home, Provider
from tests.kit.bodies import messages
from tests.kit.server import Step
from tests.kit.telegram import Telegram


@asynccontextmanager
async def platform_gateway(
    root: Path,
    name: str,
    settings: Mapping[str, Any],
    env: Mapping[str, str],
    steps: Iterable[Step] = (),
    *,
    then: Step | None = None,
    start: bool = True,
    **config: Any,
) -> AsyncIterator[GatewayProcess]:
    """A running gateway; afterwards none of the secrets in `env` may be in a file of the home."""
    async with Provider(steps, then=then) as provider:
        home = Home.of(root, provider, platforms={name: dict(settings)}, **config)
        home.env |= env
        process = GatewayProcess(home, provider, Telegram())
        if start:
            await process.start()
        try:
            yield process
        finally:
            if hasattr(process, "process") and process.process.returncode is None:
                await process.kill()
            assert not provider.errors, provider.errors
        secrets = [v.encode() for k, v in env.items() if "TOKEN" in k or "PASSWORD" in k]
        for file in home.path.rglob("*"):
            if file.is_file() and ".db" not in file.name:
                data = file.read_bytes()
                assert not any(secret in data for secret in secrets), f"a secret is in {file}"


def list_prompts(g: GatewayProcess) -> list[str]:
    """The last user message of each request to the model."""
    return [[m.text for m in messages(r) if m.role == "user"][-1] for r in g.provider.requests]


async def until_fatal(g: GatewayProcess, name: str) -> str:
    """The code of the error that turned the platform off."""
    state = g.home.path / "gateway_state.json"
    async with asyncio.timeout(90):
        while True:
            if state.exists():
                found = json.loads(state.read_bytes())["platforms"][name]
                if found["state"] == "fatal":
                    return str(found["error_code"])
            await asyncio.sleep(0.1)
