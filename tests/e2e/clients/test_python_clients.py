"""Clients for Python that others wrote, each against the real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.clients.client_run import SCRIPTS, ClientRig, client_rig, install_python
from tests.e2e.clients.scripted_model import GREETING, MESSAGES

_MODERN = (
    "openai==3.49.0",
    "anthropic==2.8.0",
    "langchain-openai==1.7.3",
    "langgraph==1.2.20",
    "pydantic-ai-slim[openai]==2.66.0",
    "openai-agents==0.24.0",
)
_OTHERS = {
    "litellm": ("litellm==1.106.2", "mcp==2.3.0"),
    "instructor": ("instructor==1.17.0",),
    "smolagents": ("smolagents[openai]==1.26.0",),
    "llama_index": ("llama-index-llms-openai-like==0.8.1",),
    "huggingface_hub": ("huggingface_hub==2.4.0",),
}
"""Clients that need other versions of what they share."""
FULL = ("text", "stream", "own-tool", "structured")
CASES: dict[str, tuple[str, ...]] = {
    "openai": (*FULL, "structured-stream"),
    "openai_responses": (*FULL, "structured-stream"),
    "anthropic": FULL,
    "litellm": FULL,
    "langchain": FULL,
    "pydantic_ai": FULL,
    "openai_agents": FULL,
    "instructor": ("structured",),
    "smolagents": ("text", "stream"),
    "llama_index": ("text", "stream"),
    "huggingface_hub": ("text", "stream"),
}
EXPECTED = {
    "text": GREETING,
    "stream": f"{GREETING} usage=18",
    "own-tool": "25 degrees in Bern",
    "structured": "25",
    "structured-stream": "25",
}
SPEAKING = ("openai", "openai_responses", "anthropic", "litellm", "langchain", "pydantic_ai")
"""Clients whose errors are tried with every failure."""


@pytest.fixture
def python(client: str) -> Path:
    return install_python(_OTHERS.get(client, _MODERN))


async def use_client(rig: ClientRig, python: Path, client: str, *cases: str) -> dict[str, str]:
    """What the client says about each case: ok or failed, then the text."""
    ran = await rig.run([python, SCRIPTS / "python_clients.py", client, *cases])
    found = dict(part.partition(" ")[::2] for part in ran.out.split("\n== ")[1:])
    assert found.keys() == set(cases), ran.told[-2000:]
    return found


@pytest.mark.parametrize("client", CASES)
async def test_what_a_client_gets(tmp_path: Path, python: Path, client: str) -> None:
    async with client_rig(tmp_path) as rig:
        found = await use_client(rig, python, client, *CASES[client])
        for case, said in found.items():
            assert said.startswith("ok") and EXPECTED[case] in said, (case, said)


@pytest.mark.parametrize("client", [*SPEAKING, "openai_agents"])
async def test_tools_of_the_server_run_once(tmp_path: Path, python: Path, client: str) -> None:
    async with client_rig(tmp_path) as rig:
        found = await use_client(rig, python, client, "server-tool", "effect-then-gone")
        assert "The tool said" in found["server-tool"]
        failed = found["effect-then-gone"]
        assert failed.startswith("failed") and MESSAGES["gone"] in failed
        assert rig.effects == 2


@pytest.mark.parametrize("client", SPEAKING)
async def test_the_person_sees_why_it_failed(tmp_path: Path, python: Path, client: str) -> None:
    orders = [order for order in MESSAGES if order != "limit"]  # clients wait as long as told
    async with client_rig(tmp_path) as rig:
        found = await use_client(rig, python, client, *orders, "cut")
        for order in orders:
            assert MESSAGES[order] in found[order], (order, found[order])
        assert found["cut"].startswith("failed"), found["cut"]
