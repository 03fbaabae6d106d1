"""Clients for Node that others wrote, each against the real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.clients.client_run import SCRIPTS, ClientRig, Ran, client_rig, install_node
from tests.e2e.clients.scripted_model import MESSAGES
from tests.e2e.clients.test_python_clients import EXPECTED

PACKAGES = (
    "openai@6.49.0",
    "@anthropic-ai/sdk@1.8.0",
    "ai@6.0.326",
    "@ai-sdk/openai@3.0.139",
    "@ai-sdk/openai-compatible@2.0.87",
    "zod@4.6.7",
)
CLIENTS = ("openai", "openai_responses", "anthropic", "ai_sdk", "ai_sdk_responses")
CASES = [
    (client, case)
    for client in CLIENTS
    for case in ("text", "stream", "own-tool", "structured")
    if (client, case) != ("anthropic", "structured")
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return install_node(PACKAGES)


async def use_client(rig: ClientRig, folder: Path, client: str, case: str) -> Ran:
    command = ["node", SCRIPTS / "node_clients.mjs", client, case]
    return await rig.run(command, CLIENT_FOLDER=str(folder))


@pytest.mark.parametrize(("client", "case"), CASES)
async def test_what_a_client_gets(tmp_path: Path, folder: Path, client: str, case: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await use_client(rig, folder, client, case)
        assert ran.status == 0 and EXPECTED[case] in ran.out, ran.told[-2000:]


@pytest.mark.parametrize("client", CLIENTS)
async def test_tools_of_the_server_run_once(tmp_path: Path, folder: Path, client: str) -> None:
    async with client_rig(tmp_path) as rig:
        ran = await use_client(rig, folder, client, "server-tool")
        assert ran.status == 0 and "The tool said" in ran.out, ran.told[-2000:]
        assert rig.effects == 1


@pytest.mark.parametrize("client", CLIENTS)
async def test_the_person_sees_why_it_failed(tmp_path: Path, folder: Path, client: str) -> None:
    async with client_rig(tmp_path) as rig:
        for order in ("key", "overflow", "gone"):
            ran = await use_client(rig, folder, client, order)
            assert ran.status and MESSAGES[order] in ran.error, (order, ran.told[-2000:])
        cut = await use_client(rig, folder, client, "cut")
        assert cut.status, cut.told
        effect = await use_client(rig, folder, client, "effect-then-gone")
        assert effect.status and MESSAGES["gone"] in effect.error, effect.told[-2000:]
        assert rig.effects == 1
