"""Clients for Node that others wrote, each against the real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.clients.client_run import ClientRig, client_rig, install_node, locate_script
from tests.e2e.clients.test_python_clients import ANSWERS, EFFECTS, FAILED, check_cases
from tests.server.exchanges import wait_until_idle

pytestmark = pytest.mark.timeout(600)
PACKAGES = (
    "openai@6.49.0",
    "@anthropic-ai/sdk@1.8.0",
    "ai@7.0.169",
    "@ai-sdk/openai@4.0.114",
    "@ai-sdk/openai-compatible@3.0.90",
    "@ai-sdk/anthropic@4.0.102",
    "zod@4.6.7",
    "node@22",
)
CLIENTS = (
    "openai",
    "openai_responses",
    "anthropic",
    "ai_sdk",
    "ai_sdk_responses",
    "ai_sdk_messages",
)


@pytest.fixture(scope="module")
def folder() -> Path:
    return install_node(PACKAGES)


async def use_client(rig: ClientRig, folder: Path, client: str, *cases: str) -> dict[str, str]:
    """What the client says about each case: ok or failed, then the text."""
    script = locate_script(rig.folder, folder, "node_clients.mjs")
    ran = await rig.run(
        [folder / "node_modules" / ".bin" / "node", script, client, *cases], seconds=540
    )
    found = ran.read_cases()
    assert found.keys() == set(cases), ran.told[-2000:]
    return found


@pytest.mark.parametrize("client", CLIENTS)
async def test_answers_and_failures(tmp_path: Path, folder: Path, client: str) -> None:
    async with client_rig(tmp_path) as rig:
        check_cases(await use_client(rig, folder, client, *ANSWERS, *FAILED, "leave"))
        assert rig.effects == EFFECTS
        await wait_until_idle(rig.api)
