"""Prompts that are answered in separate sessions while the conversation continues."""

import asyncio
import time
from collections.abc import Callable

from msgspec import Struct

from hermes.app.session import Session
from hermes.app.titles import SpawnTask
from hermes.core.events import TurnResult
from hermes.core.message import Message


class BackgroundPrompt(Struct, eq=False):
    session: Session
    text: str
    owner: tuple[str, str]
    """The surface and the conversation it was started from."""
    started: float


class BackgroundPrompts:
    """Each is a stored session like any other. Nobody can be asked in it: commands that need
    approval are skipped."""

    def __init__(self, spawn: SpawnTask) -> None:
        self._spawn = spawn
        self._running: list[BackgroundPrompt] = []
        self.on_done: Callable[[BackgroundPrompt, TurnResult], None] = lambda prompt, result: None
        """Called whenever a prompt has been answered."""

    def __len__(self) -> int:
        return len(self._running)

    def list_prompts(self, session: Session) -> list[BackgroundPrompt]:
        """The running prompts of this conversation, the oldest first."""
        owner = (session.transcript.meta.source, session.transcript.meta.key)
        return [prompt for prompt in self._running if prompt.owner == owner]

    def start_prompt(self, origin: Session, session: Session, message: Message) -> None:
        """Answer the message in `session`, for the conversation of `origin`."""
        owner = (origin.transcript.meta.source, origin.transcript.meta.key)
        prompt = BackgroundPrompt(session, message.text, owner, time.time())
        self._running.append(prompt)
        answer = session.submit(message)  # now, so that it can be stopped at once
        self._spawn(self._await_answer(prompt, answer), f"background prompt {session.id}")

    async def _await_answer(
        self, prompt: BackgroundPrompt, answer: asyncio.Future[TurnResult]
    ) -> None:
        try:
            await asyncio.wait({answer})
        finally:
            self._running.remove(prompt)
        stopped = TurnResult("interrupted", error="Interrupted.")
        result = stopped if answer.cancelled() else answer.result()
        await prompt.session.close()
        self.on_done(prompt, result)
