"""The session behind the screen: what is sent, how its events come back, and what is asked."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.cli.repl import question as asking
from hermes.cli.repl.question import Asking
from hermes.cli.repl.state import State
from hermes.core.events import (
    Answer,
    Approval,
    Question,
    Recorded,
    TurnEnd,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import Message, user

if TYPE_CHECKING:
    from hermes.app.background_prompts import Errand
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.cli.repl.event_view import View
    from hermes.core.channel import Channel

log = logging.getLogger(__name__)

_EDITED = "The user did not allow that command. Run this one instead, exactly as it stands:\n"


class Conversation:
    """One session at a time. What waits to be sent stays here, where it can be taken back."""

    def __init__(
        self,
        runtime: Runtime,
        session: Session,
        view: View,
        state: State,
        changed: Callable[[], None],
    ) -> None:
        self.runtime = runtime
        self.session = session
        self._view = view
        self._state = state
        self._changed = changed
        self._queue: deque[tuple[str, Message]] = deque()
        self._steers: list[str] = []
        """Guidance that the turn has not taken in."""
        self._asked: deque[Asking] = deque()
        self._own = 0
        self._allowed = ""
        """A command the user wrote in place of another: it is not asked about again."""
        self.editing: Callable[[str], None] = lambda command: None
        self._channel: Channel | None = None
        self._reader: asyncio.Task[None] | None = None
        self._turns = 0
        self._brought: list[tuple[Errand, TurnResult]] = []
        """What ended in the background while an answer was being written here."""
        runtime.errands.done = self._errand
        self.attach(session)

    def attach(self, session: Session) -> None:
        """From now on this session is shown."""
        self.session = session
        session.approver = True
        self._channel = session.events()
        self._reader = self.runtime.spawn(self._read(self._channel), "the terminal")
        self._view.reset()
        state, facts = self._state, self._state.facts
        endpoint = session.agent.providers[0]
        facts.model = endpoint.target.model
        facts.window = endpoint.endpoint.context_length
        facts.begin(session.history.messages)
        self._view.folder = session.meta.cwd
        self._view.verbose = lambda: session.people.verbose
        self.refresh_mode()
        state.running = session.busy

    def refresh_mode(self) -> None:
        """What may have been changed by a command."""
        session, config = self.session, self.runtime.setup.config
        yolo = session.options is not None and session.options.yolo
        words = []
        if yolo:
            words.append("yolo")
        elif config.approvals.mode != "ask":
            words.append(config.approvals.mode)
        if config.sandbox.mode != "workspace-write" and not yolo:
            words.append(config.sandbox.mode)
        facts = self._state.facts
        facts.mode = ", ".join(words)
        facts.model = session.agent.providers[0].target.model
        facts.window = session.agent.providers[0].endpoint.context_length
        self._state.busy = session.people.busy
        facts.background = self.runtime.background.count + len(self.runtime.errands)

    async def switch(self, session: Session) -> None:
        """Go on with another; what was left running in the background stays."""
        old, channel = self.session, self._channel
        if channel is not None:
            channel.close()
        self.dismiss()
        self.attach(session)
        if old is not session:
            await old.close()

    # -- sending ---------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        return self._state.running

    def send(self, shown: str, message: Message) -> None:
        """Now, or as /busy says while a turn runs."""
        if not self.running:
            self._start(shown, message)
            return
        busy = self.session.people.busy
        if busy == "steer" and len(message.parts) == 1:
            self._view.said(shown, "↳")
            self._steers.append(message.text)
            self.session.submit(message, "steer")
        elif busy == "interrupt":
            self._queue.appendleft((shown, message))
            self._show_queue()
            self.session.interrupt()
        else:
            self.enqueue(shown, message)

    def enqueue(self, shown: str, message: Message) -> None:
        if not self.running:
            self._start(shown, message)
            return
        self._queue.append((shown, message))
        self._show_queue()

    def send_next(self) -> bool:
        """The first of those that wait; whether there was one."""
        if self.running or not self._queue:
            return False
        shown, message = self._queue.popleft()
        self._show_queue()
        self._start(shown, message)
        return True

    def take_back(self) -> str | None:
        if not self._queue:
            return None
        shown, _ = self._queue.pop()
        self._show_queue()
        return shown

    def _start(self, shown: str, message: Message) -> None:
        state = self._state
        state.running, state.since = True, time.monotonic()
        state.do("waiting for the model")
        if shown:
            self._view.said(shown)
        self.session.submit(message)
        self._changed()

    def _show_queue(self) -> None:
        self._state.queue = [shown for shown, _ in self._queue]
        self._changed()

    def interrupt(self) -> bool:
        if not self.running:
            return False
        self._state.do("stopping")
        self.session.interrupt()
        self._changed()
        return True

    # -- events ----------------------------------------------------------------------------

    async def _read(self, channel: Channel) -> None:
        async for event in channel:
            try:
                self._event(event)
            except Exception:  # what cannot be shown must not end the conversation
                log.exception("an event could not be shown")
                self._view.trouble("Something could not be shown; the log has the details.")
            self._changed()

    def _event(self, event: TurnEvent) -> None:
        match event:
            case Approval():
                self._approve(event)
            case Question():
                self.ask(asking.question(event, lambda text: self._reply(event, text)))
            case Recorded(message=message) if message.kind == "steer":
                text = message.text
                self._steers = [steer for steer in self._steers if steer not in text]
                self._view.event(event)
            case TurnEnd(result=result):
                self._view.event(event)
                self._ended(result)
            case _:
                self._view.event(event)

    def _ended(self, result: TurnResult) -> None:
        self._turns += 1
        state = self._state
        self._asked.clear()
        state.asking = None
        self._allowed = ""
        state.running = bool(result.pending_steer)
        if result.interrupted:
            # The turn has dropped them, the user has not.
            for text in reversed(self._steers):
                self._queue.appendleft((text, user(text)))
            self._show_queue()
        self._steers.clear()
        state.facts.background = self.runtime.background.count + len(self.runtime.errands)
        self._show_brought()
        if state.running:
            state.since = time.monotonic()
        elif not result.interrupted or self.session.people.busy == "interrupt":
            self.send_next()

    def _errand(self, errand: Errand, result: TurnResult) -> None:
        self._brought.append((errand, result))
        if not self.running:
            self._show_brought()
        self._changed()

    def _show_brought(self) -> None:
        """Never in the middle of an answer."""
        for errand, result in self._brought:
            self._view.brought(errand.prompt, errand.session.id, result)
        self._brought.clear()
        self._state.facts.background = self.runtime.background.count + len(self.runtime.errands)

    # -- questions -------------------------------------------------------------------------

    def _approve(self, question: Approval) -> None:
        if question.command and question.command == self._allowed:
            self._allowed = ""
            self.session.answer(question.id, "once")
            return
        self.ask(
            asking.approval(
                question,
                lambda answer: self._decide(question, answer),
                lambda command: self._edit(question, command),
            )
        )

    def ask(self, one: Asking) -> None:
        """One at a time, in order."""
        self._asked.append(one)
        if len(self._asked) == 1:
            self._show_question()

    def _show_question(self) -> None:
        one = self._asked[0]
        self._state.asking = one
        if one.body:
            self._view.asked(one.body)
        self._changed()

    def answered(self, answer: str | None) -> None:
        """To the question that is shown; None: no."""
        if not self._asked:
            return
        one = self._asked.popleft()
        self._state.asking = None
        one.answer(answer)
        if self._asked:
            self._show_question()
        self._changed()

    def dismiss(self) -> None:
        self._asked.clear()
        self._state.asking = None

    def _decide(self, question: Approval, answer: Answer) -> None:
        if self.session.answer(question.id, answer):
            self._view.answered(asking.told(answer))
        else:
            self._view.answered("nobody waits for that answer any more")

    def _reply(self, question: Question, text: str | None) -> None:
        self._view.answered(text or "no answer")
        self.session.reply(question.id, text)

    def _edit(self, question: Approval, command: str) -> None:
        """The question stays open until the new command is there: then it is a no, with that."""

        def written(text: str | None) -> None:
            if not text or not text.strip() or text == command:
                self._decide(question, "deny")
                return
            self._allowed = text
            self._view.said(text, "↳")
            self._steers.append(_EDITED + text)
            self.session.submit(user(_EDITED + text), "steer")
            self.session.answer(question.id, "deny")

        one = Asking([], {}, written, prompt="Your command instead (Esc: no)")
        self._asked.appendleft(one)
        self._state.asking = one
        self.editing(command)
