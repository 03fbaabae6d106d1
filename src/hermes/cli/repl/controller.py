"""The controller of the interactive terminal: keys in front, a conversation behind."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import ThreadedCompleter
from prompt_toolkit.document import Document

from hermes.cli.repl import key_bindings as keys
from hermes.cli.repl.completer import Completing
from hermes.cli.repl.input_history import Typed
from hermes.cli.repl.message_input import Chips
from hermes.cli.repl.screen import Screen
from hermes.cli.repl.state import State

if TYPE_CHECKING:
    from hermes.app.commands import Command
    from hermes.cli.repl.event_view import View
    from hermes.cli.repl.session_view import Conversation

_TWICE = 1.5
"""Seconds within which a second Ctrl-C, or Ctrl-D while it works, leaves."""
_QUIET = 0.5
"""Seconds without a key before a key may answer a question that came while somebody typed."""
_LEAVING = frozenset({"exit", "quit", ":q"})


class Repl:
    """Keys are taken from the first moment; what is sent before everything is there waits."""

    def __init__(self, home: Path, *, colour: bool, term: str) -> None:
        self.state = State()
        self.pasted = Chips()
        self.completing = Completing(self._commands)
        self.buffer = Buffer(
            completer=ThreadedCompleter(self.completing),
            complete_while_typing=True,
            history=Typed(home / "history.jsonl"),
            tempfile_suffix=".md",
        )
        bindings = keys.bindings(self.state, self)
        self.screen = Screen(self.state, self.buffer, bindings, colour=colour, term=term)
        self.screen.output.gone = lambda: self.quit(128 + signal.SIGHUP)
        self.buffer.on_text_changed += lambda _: self._typed()
        self.screen.search.on_text_changed += lambda _: self._searched()
        self.code: int | None = None
        """Set when it is to end."""
        self.left = asyncio.Event()
        self.inbox: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        """What was entered, and whether it is to be queued."""
        self.view: View | None = None
        self.conversation: Conversation | None = None
        self.cwd = Path()
        self.offered = ""
        """The interrupted session that Tab goes on with."""
        self._stopped = self._last_key = self._leaving = 0.0
        self.suspended = False
        """The next message starts a session of its own."""
        self._stash: str | None = None
        self.patience: asyncio.Timeout | None = None
        """With the command that runs: its end ends the command."""

    def _commands(self) -> tuple[Command, ...]:
        from hermes.app.commands import registry

        return registry()

    def quit(self, code: int) -> None:
        if self.code is None:
            self.code = code
            if self.buffer.text.strip():  # a draft is not lost with its window
                self.buffer.append_to_history()
            self.screen.closing = True
            self.left.set()
            app = self.screen.app
            if app.is_running and not app.is_done:
                app.exit()

    # -- what keys ask for -----------------------------------------------------------------

    def enter(self) -> None:
        text, asking = self.buffer.text, self.state.asking
        if asking is not None and asking.wants_text:
            self._clear()
            self._answer(text)
            return
        if asking is not None and self.armed():
            self._answer(None)
            return
        if not text.strip():
            if self.conversation is not None:
                self.conversation.send_next()
            return
        self._submit(text, queued=False)

    def queue(self) -> None:
        text = self.buffer.text
        if text.strip() and self.state.asking is None:
            self._submit(text, queued=self.state.running)

    def _submit(self, text: str, *, queued: bool) -> None:
        self._remember(text)
        self._clear()
        self.state.offer = self.offered = ""
        if text.strip().lower() in _LEAVING:
            self.leave()
            return
        self._put(text, queued=queued)

    def _put(self, text: str, *, queued: bool) -> None:
        self.state.entered.append(text)
        self.inbox.put_nowait((text, queued))

    async def taken(self) -> tuple[str, bool]:
        """What was entered next."""
        text, queued = await self.inbox.get()
        self.state.entered.pop(0)
        return text, queued

    def _remember(self, text: str) -> None:
        """With what was pasted: a chip means nothing to a later program."""
        whole, _ = self.pasted.expanded(text)
        history = self.buffer.history
        kept = history.get_strings()
        if not kept or kept[-1] != whole:
            history.append_string(whole)

    def interrupt(self) -> bool:
        if self.patience is not None:
            if not self.patience.expired():
                self.patience.reschedule(0)
            return True
        return self.conversation is not None and self.conversation.interrupt()

    def control_c(self) -> None:
        now = time.monotonic()
        twice = now - self._stopped < _TWICE
        self._stopped = now
        if twice:
            self.quit(0)
        elif self.state.asking is not None and not self.state.running:
            self._answer(None)
        elif self.interrupt():
            self._hint("stopping · Ctrl-C again leaves")
        else:
            draft = self.buffer.text
            if draft.strip():
                self._remember(draft)
            self._clear()
            self._hint("Ctrl-C again leaves" + " · ↑ brings the text back" * bool(draft.strip()))
        self.screen.refresh()

    def _hint(self, text: str) -> None:
        """For as long as it is true."""
        self.state.hint = text
        asyncio.get_running_loop().call_later(_TWICE, self._unhint, text)

    def _unhint(self, text: str) -> None:
        if self.state.hint == text:
            self.state.hint = ""
            self.screen.refresh()

    def leave(self) -> None:
        """At once; while something runs, when it is asked for twice."""
        now = time.monotonic()
        if self.state.running and now - self._leaving > _TWICE:
            self._leaving = now
            self._hint("it still works · Ctrl-D again stops it and leaves")
            self.screen.refresh()
            return
        self.quit(0)

    def take_back(self) -> bool:
        text = self.conversation.take_back() if self.conversation is not None else None
        if text is None:
            return False
        self._fill(text)
        return True

    def show_reasoning(self) -> None:
        if self.view is not None:
            self.view.show_reasoning()
            self.screen.refresh()

    def paste(self, data: str) -> str:
        return self.pasted.paste(data, self.cwd)

    def chips(self) -> tuple[str, ...]:
        return self.pasted.names

    def decide(self, key: str | None) -> None:
        if self.state.asking is not None and self.state.asking.wants_text:
            self._clear()
        self._answer(key)

    def armed(self) -> bool:
        """A question that comes while somebody types is not answered by the next letter."""
        return not self.buffer.text or time.monotonic() - self._last_key > _QUIET

    def pick(self, chosen: bool) -> None:
        picking, self.state.picking = self.state.picking, None
        self.screen.app.layout.focus(self.buffer)
        if picking is not None:
            picking.done(picking.chosen if chosen else None)

    def accept_offer(self) -> bool:
        if not self.offered:
            return False
        self._put(f"/resume {self.offered}", queued=False)
        self._put("Go on from where you were interrupted.", queued=False)
        self.state.offer = self.offered = ""
        return True

    def pressed(self) -> None:
        self.state.hint = ""

    # -- inside ----------------------------------------------------------------------------

    def edit(self, text: str) -> None:
        """Something else than the draft is written now; the draft comes back afterwards."""
        self._stash = self.buffer.text
        self._fill(text)
        self.screen.refresh()

    def _answer(self, answer: str | None) -> None:
        if self.conversation is None:
            return
        self.conversation.answered(answer)
        asking = self.state.asking
        if self._stash is not None and not (asking is not None and asking.wants_text):
            draft, self._stash = self._stash, None
            self._fill(draft)

    def _fill(self, text: str) -> None:
        self.buffer.set_document(Document(text), bypass_readonly=True)

    def _clear(self) -> None:
        self.buffer.reset()

    def _typed(self) -> None:
        self._last_key = time.monotonic()
        self.state.hint = ""

    def _searched(self) -> None:
        if self.state.picking is not None:
            self.state.picking.search(self.screen.search.text)
