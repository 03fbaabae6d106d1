"""The controller of the interactive terminal: keys in front, a conversation behind."""

import asyncio
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.key_binding import KeyBindings

from hermes.cli.repl.display.screen import Screen
from hermes.cli.repl.input.editor import PromptEditor
from hermes.cli.repl.input.key_bindings import bind_keys
from hermes.cli.repl.state import TWICE_SECONDS, EnteredMessage, ScreenState
from hermes.cli.repl.transcript_viewer import TranscriptViewer

if TYPE_CHECKING:
    from hermes.app.commands import Command
    from hermes.cli.repl.conversation import Conversation

_LONE_SECONDS = 0.3
"""Within which a second letter makes the first one the beginning of a text, not an answer."""
_QUIT_WORDS = frozenset({"exit", "quit", ":q"})


class Repl:
    """Handles keys from the first moment; messages sent before the session is open wait."""

    def __init__(self, home: Path, *, colour: bool, term: str) -> None:
        self._home = home
        self.state = ScreenState()
        self.editor = PromptEditor(home / "history.jsonl", _list_commands)
        self.state.prompt_text = lambda: self.editor.text
        keys = KeyBindings()
        self.screen = Screen(self.state, self.editor.buffer, keys, colour=colour, term=term)
        self.viewer = TranscriptViewer(self.screen)
        self.action_keys = bind_keys(keys, self.state, self.editor, self, self.viewer)
        self.action_keys.add_action("clear_screen", self.screen.clear)
        self.screen.output.on_closed = lambda: self.quit(128 + signal.SIGHUP)
        self.editor.buffer.on_text_changed += lambda _: self._on_typing()
        self.screen.search.on_text_changed += lambda _: self._search_sessions()
        self.code: int | None = None
        """The exit status, set when the program is to end."""
        self.left = asyncio.Event()
        self._inbox: asyncio.Queue[EnteredMessage] = asyncio.Queue()
        self.conversation: Conversation | None = None
        self.offered_session = ""
        """The interrupted session that Tab continues."""
        self.command_timeout: asyncio.Timeout | None = None
        """Of the slash command that is running: to expire it is to stop the command."""
        self._last_control_c = self._last_leave = 0.0
        self._lone_answer: asyncio.TimerHandle | None = None
        """Answers the question with the letter typed last, unless something else is typed."""

    def quit(self, code: int) -> None:
        if self.code is None:
            self.code = code
            if self.editor.text.strip():  # a draft is not lost with its window
                self.editor.buffer.append_to_history()
            self.screen.closing = True
            self.left.set()
            app = self.screen.app
            if app.is_running and not app.is_done:
                app.exit()

    async def next_message(self) -> EnteredMessage:
        """The message that was entered next; it can be taken back until it is accepted."""
        while (message := await self._inbox.get()).withdrawn:
            pass
        return message

    def accept_message(self, message: EnteredMessage) -> bool:
        """Whether the message is to be sent; from now on it cannot be taken back."""
        if message in self.state.entered:
            self.state.entered.remove(message)
        return not message.withdrawn

    def edit_text(self, text: str) -> None:
        """Has the user edit this text; the draft returns afterwards."""
        self.editor.edit_instead(text)
        self.screen.refresh()

    def send_or_answer(self) -> None:
        text, question = self.editor.text, self.state.question
        if self.state.takes_text:
            self.editor.clear()
            self._pass_answer(text)
        elif question is not None and (not text.strip() or question.find_key(text)):
            if self.state.takes_answer:
                self.editor.clear()
                self._pass_answer(question.find_key(text))
        elif text.strip() == "?":
            self.editor.clear()
            self.put_message("/keys")
        elif text.strip():
            self._submit_message(text, queued=False)
        elif self.conversation is not None:
            self.conversation.send_next_message()

    def queue_message(self) -> bool:
        """Queues the text while something runs; otherwise False."""
        text, state = self.editor.text, self.state
        if not text.strip() or state.question is not None:
            return False
        if not (state.running or state.command or state.entered):
            return False
        self._submit_message(text, queued=state.running)
        return True

    def toggle_plan_mode(self) -> None:
        self.put_message("/plan")

    def paste_image(self) -> None:
        self.screen.app.create_background_task(self._paste_image())

    async def _paste_image(self) -> None:
        from hermes.cli.repl.input.clipboard import read_clipboard_image

        file = await read_clipboard_image(self._home / "cache" / "clipboard")
        if file is None:
            self.screen.show_hint("there is no image in the clipboard")
        else:
            self.editor.buffer.insert_text(self.editor.paste(str(file)))
        self.screen.refresh()

    def interrupt_turn(self) -> bool:
        if self.command_timeout is not None:
            if not self.command_timeout.expired():
                self.command_timeout.reschedule(0)
            return True
        return self.conversation is not None and self.conversation.interrupt_turn()

    def press_control_c(self) -> None:
        if self.viewer.is_paging:  # it was meant for the pager
            return
        now = time.monotonic()
        if now - self._last_control_c < TWICE_SECONDS:
            self.quit(0)
        elif self.state.question is not None and not self.state.running:
            self._pass_answer(None)
        elif self.interrupt_turn():
            self.screen.show_hint("stopping · Ctrl-C again quits")
        else:
            draft = self.editor.text.strip()
            if draft:
                self.editor.remember(self.editor.text)
            self.editor.clear()
            self.screen.show_hint("Ctrl-C again quits" + " · ↑ restores the text" * bool(draft))
        self._last_control_c = now  # clearing the prompt has forgotten it
        self.screen.refresh()

    def leave_prompt(self) -> None:
        """Quits; while the agent works, only when asked twice."""
        now = time.monotonic()
        if self.state.running and now - self._last_leave > TWICE_SECONDS:
            self._last_leave = now
            self.screen.show_hint("still working · Ctrl-D again stops it and quits")
            self.screen.refresh()
            return
        self.quit(0)

    def take_back_message(self) -> bool:
        if self.state.entered:
            message = self.state.entered.pop()
            message.withdrawn = True
            text: str | None = message.text
        else:
            text = self.conversation.take_back_message() if self.conversation is not None else None
        if text is None:
            return False
        self.editor.fill(text)
        return True

    def answer_question(self, key: str | None) -> None:
        if self.state.takes_text:
            self.editor.clear()
        self._pass_answer(key)

    def press_answer_key(self, key: str) -> None:
        """Answers with the letter that has just been typed, unless another follows."""
        question = self.state.question
        if question is None or key.lower() not in question.keys.keys() - question.confirmed_keys:
            return

        def answer_if_open() -> None:
            if self.state.question is question:
                self.editor.clear()
                self._pass_answer(key.lower())

        loop = asyncio.get_running_loop()
        self._lone_answer = loop.call_later(_LONE_SECONDS, answer_if_open)

    def close_picker(self, *, accept: bool) -> None:
        picker, self.state.picker = self.state.picker, None
        self.screen.app.layout.focus(self.editor.buffer)
        if picker is not None:
            picker.done(picker.selected_session if accept else None)

    def accept_offer(self) -> bool:
        if not self.offered_session:
            return False
        self.put_message(f"/resume {self.offered_session}")
        self.put_message("Continue where you were interrupted.")
        self._drop_offer()
        return True

    def clear_hint(self) -> None:
        self.state.hint = ""

    def _on_typing(self) -> None:
        """What a key asked to press again is forgotten once something is typed, and a letter that
        would have been an answer is text."""
        self.clear_hint()
        self.state.has_draft &= bool(self.editor.text.strip())
        if self._lone_answer is not None:
            self._lone_answer.cancel()
            self._lone_answer = None
        self._last_control_c = self._last_leave = 0.0

    def _submit_message(self, text: str, *, queued: bool) -> None:
        self.editor.remember(text)
        self.editor.clear()
        self.state.has_draft = False
        self._drop_offer()
        if text.strip().lower() in _QUIT_WORDS:
            self.leave_prompt()
            return
        self.put_message(text, queued=queued)

    def put_message(self, text: str, *, queued: bool = False, first: bool = False) -> None:
        """Has a message handled when its turn comes; with `first`, before all others."""
        message = EnteredMessage(text, queued)
        waiting = [self._inbox.get_nowait() for _ in range(self._inbox.qsize() * first)]
        self.state.entered.insert(0 if first else len(self.state.entered), message)
        for entered in (message, *waiting):
            self._inbox.put_nowait(entered)

    def _drop_offer(self) -> None:
        self.state.offered_title = self.offered_session = ""

    def _pass_answer(self, text: str | None) -> None:
        if self.conversation is None:
            return
        self.conversation.questions.answer(text)
        question = self.state.question
        if question is None or not question.wants_text:
            self.editor.restore_draft()

    def _search_sessions(self) -> None:
        if self.state.picker is not None:
            self.state.picker.search(self.screen.search.text)


def _list_commands() -> "tuple[Command, ...]":
    from hermes.app.commands import load_commands

    return load_commands()
