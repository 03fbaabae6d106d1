"""Prompts that are answered in sessions of their own while the conversation goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from hermes.app.session import Session
from hermes.app.titles import Spawn
from hermes.core.events import TurnResult
from hermes.core.message import Message


class BackgroundPrompt(Struct, eq=False):
    session: Session
    text: str
    owner: tuple[str, str]
    """The surface and the conversation it was ordered in."""
    started: float


class BackgroundPrompts:
    """Each is a stored session like any other. Nobody is there to be asked in it: what needs a yes
    is not run."""

    def __init__(self, spawn: Spawn) -> None:
        self._spawn = spawn
        self._running: list[BackgroundPrompt] = []
        self.on_done: Callable[[BackgroundPrompt, TurnResult], None] = lambda errand, result: None
        """Told of every one that has ended."""

    def __len__(self) -> int:
        return len(self._running)

    def list_prompts(self, session: Session) -> list[BackgroundPrompt]:
        """Those of this conversation, the oldest first."""
        owner = (session.transcript.meta.source, session.transcript.meta.key)
        return [errand for errand in self._running if errand.owner == owner]

    def start_prompt(self, origin: Session, session: Session, message: Message) -> None:
        owner = (origin.transcript.meta.source, origin.transcript.meta.key)
        errand = BackgroundPrompt(session, message.text, owner, time.time())
        self._running.append(errand)
        answer = session.submit(message)  # at once: what was ordered can be stopped
        self._spawn(self._await_answer(errand, answer), f"errand {session.id}")

    async def _await_answer(
        self, errand: BackgroundPrompt, answer: asyncio.Future[TurnResult]
    ) -> None:
        try:
            await asyncio.wait({answer})
        finally:
            self._running.remove(errand)
        stopped = TurnResult("interrupted", error="Interrupted.")
        result = stopped if answer.cancelled() else answer.result()
        await errand.session.close()
        self.on_done(errand, result)
