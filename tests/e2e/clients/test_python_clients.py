"""Clients for Python that others wrote, each against the real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.clients.client_run import SCRIPTS, ClientRig, client_rig, install_python
from tests.e2e.clients.scripted_model import AFTER_EFFECT, AFTER_TEXT, GREETING, MESSAGES
from tests.server.exchanges import wait_until_idle

pytestmark = pytest.mark.timeout(600)

_MODERN = (
    "openai==3.49.0",
    "anthropic==2.8.0",
    "langchain-openai==1.7.3",
    "langchain-anthropic==1.7.7",
    "langgraph==1.2.20",
    "pydantic-ai-slim[openai,anthropic]==2.66.0",
    "openai-agents==0.24.0",
)
_OTHERS = {
    "litellm": ("litellm==1.106.2", "mcp==2.3.0"),
    "instructor": ("instructor[anthropic]==1.17.0",),
    "smolagents": ("smolagents[openai]==1.26.0",),
    "llama_index": ("llama-index-llms-openai-like==0.8.1",),
    "huggingface_hub": ("huggingface_hub==2.4.0", "pydantic==2.14.3"),
}
"""Clients that need other versions of what they share."""
ANSWERS = {
    "greet": f"{GREETING} usage=18",
    "whole/greet": f"{GREETING} usage=18",
    "server-tool": "usage=36",
    "own-tool/whole": "25 degrees in Bern",
    "own-tool/stream": "25 degrees in Bern",
    "image": "I see 1 image.",
}
"""What every client makes of these cases; usage is that of all calls of the model together."""
FAILED = [f"{before}{name}" for before in ("", AFTER_TEXT, AFTER_EFFECT) for name in MESSAGES]
FAILED += ["whole/key", "whole/overflow", "whole/effect-then-broken"]
EFFECTS = 1 + len(MESSAGES)
"""A failed stream that is repeated as a whole answer has no effect again."""
CLIENTS = (
    "openai",
    "openai_responses",
    "anthropic",
    "litellm",
    "langchain",
    "langchain_messages",
    "langgraph",
    "pydantic_ai",
    "openai_agents",
    "smolagents",
    "llama_index",
    "huggingface_hub",
)


def find_packages(client: str) -> tuple[str, ...]:
    return _OTHERS.get(client, _MODERN)


@pytest.fixture
def python(client: str) -> Path:
    return install_python(find_packages(client))


async def use_client(rig: ClientRig, python: Path, client: str, *cases: str) -> dict[str, str]:
    """What the client says about each case: ok or failed, then the text."""
    ran = await rig.run([python, SCRIPTS / "python_clients.py", client, *cases], seconds=540)
    found = ran.read_cases()
    assert found.keys() == set(cases), ran.told[-2000:]
    return found


@pytest.mark.parametrize("client", CLIENTS)
async def test_answers_and_failures(tmp_path: Path, python: Path, client: str) -> None:
    async with client_rig(tmp_path) as rig:
        found = await use_client(rig, python, client, *ANSWERS, *FAILED, "leave")
        check_cases(found)
        assert rig.effects == EFFECTS
        await wait_until_idle(rig.api)


@pytest.mark.parametrize("client", ["instructor"])
async def test_failures_of_typed_answers(tmp_path: Path, python: Path, client: str) -> None:
    async with client_rig(tmp_path) as rig:
        streamed = [case for case in FAILED if "/" not in case]
        check_failures(await use_client(rig, python, client, *streamed))
        assert rig.effects == len(MESSAGES)


def check_cases(found: dict[str, str]) -> None:
    """The person gets each answer, and the reason of each failure."""
    for case, text in ANSWERS.items():
        assert found[case].startswith("ok") and text in found[case], (case, found[case])
    check_failures({case: found[case] for case in FAILED})
    assert "left after" in found["leave"], found["leave"]


def check_failures(found: dict[str, str]) -> None:
    for case in found:
        order = case.rpartition("/")[2].rpartition("-then-")[2]
        assert found[case].startswith("failed"), (case, found[case])
        assert MESSAGES[order] in found[case], (case, found[case])
