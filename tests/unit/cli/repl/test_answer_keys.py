"""Which keys answer a question, and which go to the prompt."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prompt_toolkit.application.current import set_app
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from hermes.cli.repl.controller import Repl
from hermes.cli.repl.questions import PendingQuestion

KEYS = {"y": "yes", "s": "for this session", "a": "always", "n": "no"}
LONE = 0.4
"""Seconds after which a letter has stayed alone."""


class Prompt:
    """The prompt of a terminal with a question that has just been drawn."""

    def __init__(self, home: Path) -> None:
        self.now = 0.0
        self.answers: list[str | None] = []
        self.repl = Repl(home, colour=False, term="xterm")
        questions = SimpleNamespace(answer=self._take_answer)
        self.repl.conversation = SimpleNamespace(questions=questions)  # type: ignore[assignment]
        state = self.repl.state
        state.clock = lambda: self.now
        state.question = PendingQuestion(
            [], KEYS, lambda _: None, "Allow it?", confirmed_keys=frozenset("a")
        )
        state.note_drawing()

    def _take_answer(self, answer: str | None) -> None:
        self.answers.append(answer)
        self.repl.state.question = None

    async def press(self, keys: str) -> str:
        """Presses the keys at once and waits; what is then in the prompt."""
        processor = self.repl.screen.app.key_processor
        with set_app(self.repl.screen.app):
            for key in keys:
                processor.feed(KeyPress(Keys.ControlM if key == "\r" else key, key))
            processor.process_keys()
        await asyncio.sleep(LONE)
        return self.repl.editor.text


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    master, slave = os.openpty()
    with os.fdopen(slave) as file:
        monkeypatch.setattr(sys, "stdin", file)
        yield
    os.close(master)


@pytest.mark.usefixtures("stdin")
@pytest.mark.parametrize(
    ("seconds", "keys", "text", "answers"),
    [
        (1.1, "y", "", ["y"]),
        (1.1, "N", "", ["n"]),
        (1.1, "s", "", ["s"]),
        (1.1, "\r", "", [None]),
        (1.1, "a", "a", []),
        (1.1, "a\r", "", ["a"]),
        (1.1, "yes\r", "", ["y"]),
        (1.1, "yesterday", "yesterday", []),
        (1.1, "stop", "stop", []),
        (0.9, "y", "y", []),
        (0.9, "y\r", "y", []),
        (0.9, "a\r", "a", []),
        (0.9, "\r", "", []),
    ],
)
async def test_keys_at_a_question(
    tmp_path: Path, seconds: float, keys: str, text: str, answers: list[str | None]
) -> None:
    prompt = Prompt(tmp_path)
    prompt.now = seconds
    assert await prompt.press(keys) == text
    assert prompt.answers == answers


@pytest.mark.usefixtures("stdin")
async def test_a_letter_after_a_draft_is_no_answer(tmp_path: Path) -> None:
    prompt = Prompt(tmp_path)
    prompt.repl.editor.fill("I sa")
    prompt.repl.editor.buffer.cursor_position = 4
    prompt.now = 5.0
    assert await prompt.press("y") == "I say" and not prompt.answers
    await prompt.press("\r")
    assert [message.text for message in prompt.repl.state.entered] == [
        "I say"
    ] and not prompt.answers
