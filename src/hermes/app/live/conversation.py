"""Conversations that pages write to: a queue of messages, and the session that answers them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from msgspec import structs

from hermes.app.agents import Options
from hermes.app.live.live_session import LiveSession
from hermes.app.live.session_choice import load_choice, save_choice
from hermes.app.live.stored_queue import QueuedMessage, StoredQueue, TurnState
from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.app.transcript import take_first_words
from hermes.config.schema import BusyMode
from hermes.core.errors import HermesError
from hermes.core.message import Media, Message, clean_message, user_message
from hermes.core.store import WEB_SOURCE, SessionMeta
from hermes.llm.endpoints.endpoint import ModelChoice

_OWN_SOURCES = ("api", WEB_SOURCE)
IDLE_SECONDS = 600.0
"""How long a session stays open after its last turn."""


class TurnRefused(HermesError):
    """A message cannot be taken; the text says why."""


class LiveConversation:
    """Answers messages one at a time, in order; those that wait can be changed and removed."""

    def __init__(
        self, runtime: Runtime, live: LiveSession, on_idle: Callable[[LiveConversation], None]
    ) -> None:
        self.live = live
        self.session: Session = live.session
        self.stored_queue = StoredQueue(runtime.store.objects)
        self._runtime = runtime
        self._on_idle = on_idle
        self.starting = asyncio.Lock()
        """Held by whoever is about to start a turn."""
        self._queue: deque[QueuedMessage] = deque()
        self._steered: list[QueuedMessage] = []
        """Guidance of the running turn that is not in the transcript yet, in order."""
        self._running: QueuedMessage | None = None
        self._is_recorded = False
        """Whether the running message is in the transcript."""
        self._is_closing = False
        self._resources: AsyncExitStack | None = None
        self._task: asyncio.Task[None] | None = None
        live.on_user_message = self._note_user_message

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def submit(self, item: QueuedMessage, busy: BusyMode) -> TurnState:
        has_media = any(isinstance(part, Media) for part in item.message.parts)
        has_same_tools = item.toolsets == self.session.options.toolsets
        is_guidance = busy == "steer" and has_same_tools and not has_media
        if self.session.is_steerable and is_guidance:
            self._steered.append(item)
            self.session.submit(item.message, "steer")
            self._show_turns()
            return "steered"
        if self.is_running and busy == "interrupt":
            self._queue.appendleft(item)
            self.session.interrupt()
        else:
            self._queue.append(item)
        if self._task is None:
            self._task = self._runtime.spawn_task(self._run_queue(), f"web {self.session.id}")
            return "running"
        self._show_turns()
        return "queued"

    def hold_resources(self, resources: AsyncExitStack) -> None:
        """Release these when the queue is empty."""
        self._resources = resources

    async def change_message(self, item_id: str, text: str | None) -> bool:
        """Replace the text of a waiting message, or remove it; False when it no longer waits."""
        item = next((item for item in self._queue if item.id == item_id), None)
        if item is None:
            return False
        if text is None:
            self._queue.remove(item)
            change = self.stored_queue.drop_message(item)
        else:
            media = (part for part in item.message.parts if isinstance(part, Media))
            item.message = clean_message(user_message(text, *media))
            change = self.stored_queue.put_message(item)
        self._show_turns()
        await change
        return True

    async def close(self) -> None:
        """Stop; what waits stays stored for the next start."""
        self._is_closing = True
        self._queue.clear()
        if self._task is not None:
            self.session.interrupt()
            await asyncio.wait({self._task}, timeout=5)
        self._runtime.claims.release_session(self.session.id)
        await self.session.close()

    def _show_turns(self) -> None:
        waiting = [*((i, "steered") for i in self._steered), *((i, "queued") for i in self._queue)]
        rows = [(self._running, "running"), *waiting] if self._running else waiting
        self.live.show_turns([{"id": i.id, "text": i.message.text, "state": s} for i, s in rows])

    async def _run_queue(self) -> None:
        try:
            while self._queue and not self._is_closing:
                self._running, self._is_recorded = self._queue.popleft(), False
                self._show_turns()
                self._select_tools(self._running.toolsets)
                await self._name_session(self._running.message)
                await asyncio.wait({self.session.submit(self._running.message)})
                await self.session.wait_until_idle()
                if not self._is_recorded:  # it never will be
                    self._drop_stored(self._running)
                self._requeue_guidance()
                self._running = None
                self._show_turns()
        finally:
            self._task = self._running = None
            if self._resources is not None:
                await asyncio.shield(self._resources.aclose())
                self._resources = None
            self._on_idle(self)

    def _note_user_message(self) -> None:
        """The transcript has another message: the running one, or guidance that was read."""
        if self._running is not None and not self._is_recorded:
            self._is_recorded = True
            self._drop_stored(self._running)
        read = len(self._steered) - len(self.session.host.pending_steer)
        for item in self._steered[: max(0, read)]:
            self._drop_stored(item)
        if read > 0:
            del self._steered[:read]
            self._show_turns()

    def _requeue_guidance(self) -> None:
        """Guidance that an interrupted turn did not read is answered next."""
        count = len(self.session.take_unread_guidance())
        unread = self._steered[len(self._steered) - count :]
        del self._steered[len(self._steered) - count :]
        self._queue.extendleft(reversed(unread))

    def _drop_stored(self, item: QueuedMessage) -> None:
        dropping = self.stored_queue.drop_message(item)
        self._runtime.spawn_task(dropping, f"message {item.id}")

    def _select_tools(self, toolsets: tuple[str, ...] | None) -> None:
        """Answer with the tools of the message, whoever opened the session."""
        if (options := self.session.options).toolsets != toolsets:
            changed = structs.replace(options, toolsets=toolsets)
            self._runtime.adapt_session(self.session, changed)

    async def _name_session(self, message: Message) -> None:
        """A session that was made empty gets its title with its first message."""
        transcript = self.session.transcript
        if transcript.last_seq < 0 and not transcript.meta.title:
            await transcript.update_meta(title=take_first_words(message))


class LiveConversations:
    """Opens the sessions that pages write to, and closes those that have been idle for long."""

    def __init__(self, runtime: Runtime, find_live: Callable[[str], LiveSession | None]) -> None:
        self._runtime = runtime
        self._find_live = find_live
        self._open: list[LiveConversation] = []
        self._opening = asyncio.Lock()
        self._timers: dict[LiveConversation, asyncio.TimerHandle] = {}

    def find_conversation(self, session_id: str) -> LiveConversation | None:
        return next((c for c in self._open if c.session.id == session_id), None)

    async def open_conversation(
        self, meta: SessionMeta, options: Options | None = None
    ) -> LiveConversation:
        """The conversation of a stored session. TurnRefused when it belongs to another surface or
        is open in another process."""
        async with self._opening:
            found = self.find_conversation(meta.id)
            if found is not None:
                if found.is_running or found.session.transcript.last_seq == meta.messages - 1:
                    return found
                await self._close_conversation(found)  # it went on elsewhere meanwhile
            self._refuse_foreign(meta)
            choice = await load_choice(self._runtime.store, meta)
            session = await self._runtime.open_session(
                resume=meta.id,
                source=meta.source,
                options=choice.apply_to(options or Options()),
            )
            session.interactions.user_present = True
            self._runtime.claims.claim_session(session.id)
            live = self._find_live(session.id)
            assert live is not None, "every session that is opened is followed"
            conversation = LiveConversation(self._runtime, live, self.keep_briefly)
            self._open.append(conversation)
            self.keep_briefly(conversation)
            return conversation

    async def change_choice(self, meta: SessionMeta, changes: Mapping[str, Any]) -> str:
        """Choose `model` or `effort` for a session, from its next model call on; the name of its
        model. ConfigError: the model is not known, and nothing was changed."""
        runtime = self._runtime
        choice = structs.replace(await load_choice(runtime.store, meta), **changes)
        open_one = self.find_conversation(meta.id)
        options = open_one.session.options if open_one is not None else Options()
        options = choice.apply_to(structs.replace(options, choice=ModelChoice()))
        options = await runtime.agents.choose_model(options)
        agent = runtime.agents.get_agent(options, meta.source)
        if open_one is not None:
            runtime.adapt_session(open_one.session, options)
        await save_choice(runtime.store, meta.id, choice)
        return agent.providers[0].target.model

    def _refuse_foreign(self, meta: SessionMeta) -> None:
        if meta.key and meta.source not in _OWN_SOURCES:
            raise TurnRefused(
                f"This conversation takes place on {meta.source}. Write there, or branch it to "
                "continue here."
            )
        if self._runtime.claims.is_taken(meta.id):
            raise TurnRefused(
                "This conversation is open in another program. Close it there, or branch it to "
                "continue here."
            )

    def keep_briefly(self, conversation: LiveConversation) -> None:
        """Close the conversation when it has been idle for long."""
        if conversation not in self._open:
            return
        if timer := self._timers.pop(conversation, None):
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[conversation] = loop.call_later(IDLE_SECONDS, self._expire, conversation)

    def _expire(self, conversation: LiveConversation) -> None:
        del self._timers[conversation]
        if conversation.is_running:
            self.keep_briefly(conversation)
        else:
            closing = self._close_conversation(conversation)
            self._runtime.spawn_task(closing, f"close {conversation.session.id}")

    async def _close_conversation(self, conversation: LiveConversation) -> None:
        if timer := self._timers.pop(conversation, None):
            timer.cancel()
        if conversation in self._open:
            self._open.remove(conversation)
            await conversation.close()

    async def close_session(self, session_id: str) -> None:
        """Close the conversation of a session that is about to be deleted or changed elsewhere."""
        if found := self.find_conversation(session_id):
            await self._close_conversation(found)

    def interrupt_all(self) -> None:
        for conversation in self._open:
            conversation.session.interrupt()

    async def close_all(self) -> None:
        for conversation in list(self._open):
            await self._close_conversation(conversation)
