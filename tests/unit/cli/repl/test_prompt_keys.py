"""Keys at the prompt while completions are looked up and messages wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from prompt_toolkit.application.current import set_app
from prompt_toolkit.buffer import CompletionState
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from hermes.cli.repl.controller import Repl


@pytest.fixture
def repl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repl]:
    master, slave = os.openpty()
    with os.fdopen(slave) as file:
        monkeypatch.setattr(sys, "stdin", file)
        yield Repl(tmp_path, colour=False, term="xterm")
    os.close(master)


def press(repl: Repl, key: Keys) -> None:
    processor = repl.screen.app.key_processor
    with set_app(repl.screen.app):
        processor.feed(KeyPress(key))
        processor.process_keys()


def start_lookup(repl: Repl) -> None:
    """As the completer leaves the buffer while its thread has found nothing yet."""
    repl.editor.buffer.complete_state = CompletionState(repl.editor.buffer.document)


async def test_keys_keep_their_meaning_during_a_lookup(repl: Repl) -> None:
    queue = ["earlier"]
    repl.conversation = SimpleNamespace(  # type: ignore[assignment]
        take_back_message=lambda: queue.pop() if queue else None,
    )
    repl.state.running = True
    start_lookup(repl)
    press(repl, Keys.Up)
    assert repl.editor.text == "earlier"
    start_lookup(repl)
    press(repl, Keys.Tab)
    assert repl.editor.text == "" and repl.state.entered[0].text == "earlier"


async def test_up_takes_back_what_was_entered_last(repl: Repl) -> None:
    repl.conversation = SimpleNamespace(  # type: ignore[assignment]
        take_back_message=lambda: "queued before"
    )
    repl.state.running = True
    repl.editor.fill("entered last")
    press(repl, Keys.Tab)
    entered = await repl.next_message()
    press(repl, Keys.Up)
    assert repl.editor.text == "entered last"
    assert not repl.accept_message(entered), "it would be sent although it was taken back"
    repl.editor.clear()
    press(repl, Keys.Up)
    assert repl.editor.text == "queued before"


async def test_what_was_taken_back_is_not_handled(repl: Repl) -> None:
    repl.editor.fill("first")
    press(repl, Keys.ControlM)
    press(repl, Keys.Up)
    repl.editor.fill("second")
    press(repl, Keys.ControlM)
    entered = await repl.next_message()
    assert entered.text == "second" and repl.accept_message(entered)
    assert not repl.state.entered
