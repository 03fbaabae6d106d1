"""Models in the interactive terminal: the embedded one, small ones, keys of new providers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit import Gate, Home, Provider, call, run_hermes, say
from tests.kit.home import KEY
from tests.kit.screen import ENTER, terminal

pytestmark = pytest.mark.e2e
FAKE = Path(__file__).parents[1] / "kit" / "llama.py"
READY = "(Enter: no)"
_EMBEDDED = f"""
from pathlib import Path
import hermes.llm.local.engine as engine
engine.CHILD = Path({str(FAKE)!r})
engine.find_spec = lambda _: object()
import hermes.llm.endpoints.embedded as embedded
embedded.is_engine_installed = lambda: True
"""
"""Stands in for llama.cpp; the program around it is the real one."""
CALL = '<tool_call>{"name": "read_file", "arguments": {"path": "a.txt"}}</tool_call>'


_WITHOUT_EXTRA = """
import sys
sys.modules["botocore"] = None
"""


def patch_start(home: Home, code: str) -> Home:
    """Has the program run this code before its own."""
    folder = home.work.parent / "patch"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    home.env["PYTHONPATH"] = str(folder)
    return home


@pytest.fixture
def embedded(tmp_path: Path) -> Home:
    model = tmp_path / "small.gguf"
    model.write_bytes(b"GGUF")
    home = Home(tmp_path, model={"provider": "local", "default": str(model)})
    return patch_start(home, _EMBEDDED)


async def test_the_embedded_model_reads_before_it_writes(embedded: Home) -> None:
    """To look asks nothing. What it has not read is shown to it instead of replaced, and then its
    change is asked about; that the user refuses is told in words."""
    file = embedded.file("insisted.txt", "as it was\n")
    async with terminal(embedded, size=(100, 50)) as t:
        t.type("run ls" + ENTER)
        await t.see("✓ terminal: ls", "Result of terminal:", "Enter: send")
        assert "Allow it?" not in t.screen
        t.type("insist" + ENTER)
        await t.see("you have not read it", "wants to change insisted.txt (+1 -1):", READY)
        assert "-as it was" in t.screen and file.read_text() == "as it was\n"
        t.type("n")
        await t.see("not allowed", "The user denied it", "Enter: send")
        assert file.read_text() == "as it was\n"


async def test_calls_that_a_model_writes_as_text_are_made(tmp_path: Path) -> None:
    """What worked is remembered for the endpoint and its model."""
    async with Provider([say(CALL), say("It says heron.")]) as p:
        home = Home.of(tmp_path, p)
        home.file("a.txt", "heron\n")
        async with terminal(home) as t:
            t.type("what is in a.txt?" + ENTER)
            await t.see("✓ read_file: a.txt", "It says heron.", "Enter: send")
            assert "tool_call" not in "\n".join(t.scrollback)
        assert "heron" in str(p.last.json["messages"][-1]["content"])
        shown = (await run_hermes(["model"], home)).stdout
        assert re.search(r"^tool calls\s+written as text, recognised$", shown, re.MULTILINE), shown


async def test_a_provider_without_a_login_asks_for_its_key(tmp_path: Path) -> None:
    """Not shown, and not sent to a model; after a failure nothing is said to have changed."""
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, size=(100, 30)) as t:
            t.type("/login nosuch" + ENTER)
            await t.see("There is no provider 'nosuch'")
            t.type("/login groq" + ENTER)
            await t.see("Key for groq (it is not shown):")
            t.type("\n")
            await t.see("No key was given; nothing was changed.", "Enter: send")
            assert "next start" not in t.screen
            t.type("/login groq" + ENTER)
            await t.until(lambda: t.screen.count("Key for groq") == 2, "the question again")
            t.type(KEY + "\n")
            await t.see("A new key or login counts from the next start", "Enter: send")
            assert KEY not in t.raw.decode()
        assert f"GROQ_API_KEY={KEY}" in (home.path / ".env").read_text()
        assert not p.requests


async def test_bedrock_streams_without_its_extra(tmp_path: Path) -> None:
    gate = Gate()
    reply = say("first half\n\n", "second half\n").hold(gate, after="text", n=1)
    async with Provider([reply], wire="bedrock") as p:
        home = patch_start(Home.of(tmp_path, p), _WITHOUT_EXTRA)
        async with terminal(home) as t:
            t.type("go" + ENTER)
            await t.see("first half")
            assert "second half" not in t.screen
            gate.open()
            await t.see("second half", "Enter: send")


async def test_commands_allowed_ahead_ask_nothing(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git stash drop"})), say("it ran")]
    async with Provider(steps) as p:
        args = ["--allowed-tools", "terminal:git stash drop"]
        async with terminal(Home.of(tmp_path, p), args) as t:
            t.type("go" + ENTER)
            await t.see("✗ terminal: git stash drop", "exit 1", "it ran")
        assert b"Allow it?" not in t.raw
