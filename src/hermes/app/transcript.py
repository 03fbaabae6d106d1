"""A conversation as it is stored: its meta data, its history, and what it has read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import structs

from hermes.app.background_commands import BackgroundCommands
from hermes.app.client_history import ClientHistory
from hermes.app.session_chain import continue_in_child
from hermes.core.errors import StoreError
from hermes.core.history import History
from hermes.core.message import Message
from hermes.core.store import SessionMeta, SessionState, Store
from hermes.core.taint import Source, Taint
from hermes.core.untrusted_text import wrapper_mark

_LONGEST_TITLE = 80


def first_words(message: Message) -> str:
    """The title a conversation has until it gets another."""
    return " ".join(message.text.split())[:_LONGEST_TITLE]


class Transcript:
    """One conversation's. Nothing is stored before its first message; `on_first_answer` is then
    told the question and the answer of a conversation without a title."""

    def __init__(
        self,
        store: Store,
        background: BackgroundCommands,
        meta: SessionMeta,
        history: History | None = None,
    ) -> None:
        self.meta = meta
        self.taint = meta.taint
        """What it has read so far; stored together with the result that brought it."""
        self.client_history: ClientHistory | None = None
        """The past that the client knows: then it is not ours to replace in the store."""
        self.on_first_answer: Callable[[str, str], None] = lambda question, answer: None
        self.stored = history is not None
        self._store = store
        self._background = background
        self._history = history
        self._past: tuple[Message, ...] | None = ()
        """Stored together with the first message; None: nothing of it is stored."""
        self._first_question = ""
        """What was asked first, until it is answered and the conversation can have a title."""

    @property
    def id(self) -> str:
        return self.meta.id

    @property
    def history(self) -> History:
        if self._history is None:
            self._history = History(mark=wrapper_mark(self.id))
        return self._history

    def absorb_taint(self, sources: Collection[Source]) -> None:
        self.taint |= Taint.from_sources(sources)

    async def adopt(self, past: ClientHistory, *, stored: bool) -> None:
        """Continue from a past that the client knows better than the store does."""
        self._history = History(await past.recall(), mark=wrapper_mark(self.id))
        self.stored, self.client_history = stored, past
        self._past = past.messages if past.kept else None

    async def record(self, message: Message | None, state: SessionState | None) -> None:
        """Store a message and the state of the turn; the first one creates the session."""
        if self._past is None:
            return
        if message is None:
            if self.stored and state is not None:
                await self._store.sessions.set_state(self.id, state)
            return
        create = None
        if not self.stored:
            title = self.meta.title or first_words((*self._past, message)[0])
            self._first_question = "" if self.meta.title else message.text
            create = structs.replace(self.meta, title=title)
        taint = self.taint
        news = taint if taint != self.meta.taint else None
        new = (*self._past, message) if create is not None else (message,)
        try:
            await self._store.sessions.append(self.id, new, state=state, create=create, taint=news)
        except StoreError as error:
            if error.code != "exists" or self.client_history is None:
                raise  # else another turn of the same conversation was quicker
            await self._store.sessions.append(self.id, (message,), state=state, taint=news)
        self.stored = True
        self.meta = structs.replace(create or self.meta, taint=taint)
        if state == "idle" and (question := self._first_question):
            self._first_question = ""
            self.on_first_answer(question, message.text)

    async def continue_with(self, messages: Sequence[Message], *, running: bool) -> History:
        """Go on with these messages instead, in a child session; the new history."""
        if self.client_history is not None:
            await self.client_history.keep(self.history.messages, messages)
        else:
            old = self.meta
            self.meta = await continue_in_child(
                self._store, old, self.taint, messages, running=running
            )
            self._background.adopt(old.id, self.id)
        self._history = History(messages, mark=wrapper_mark(self.id))
        return self._history
