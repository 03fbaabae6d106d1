"""The transcript of a conversation: its stored messages, and the history that a client sends."""

import hashlib
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec
from msgspec import Struct, structs

from hermes.app.background_commands import BackgroundCommands
from hermes.app.session_records import continue_in_child
from hermes.core.errors import StoreError
from hermes.core.history import History
from hermes.core.message import Message, Text
from hermes.core.store import MailboxChange, SessionMeta, SessionState, Store
from hermes.core.taint import Source, Taint
from hermes.core.untrusted_text import wrapper_mark

log = logging.getLogger(__name__)

RecordHook: TypeAlias = Callable[[Message | None, SessionState | None, str], MailboxChange | None]
PLAN_NOTE = (
    "\n\n[Plan mode: change nothing and run nothing that changes anything; such calls are refused. "
    "Read what you need, ask what is unclear, then answer with a plan: the steps, the files, and "
    "how to check the result. The user decides whether it is carried out.]"
)
_PERSONALITY = "\n\n[From now on: "
_NO_PERSONALITY = "Speak as usual again."
_OBJECT_KIND = "handoff"
_MAX_STORED = 200
_LONGEST_TITLE = 80


def take_first_words(message: Message) -> str:
    """The default title of a conversation that begins with this message."""
    text = message.text.removesuffix(PLAN_NOTE).partition(_PERSONALITY)[0]
    return " ".join(text.split())[:_LONGEST_TITLE]


def note_plan_mode(message: Message, *, planning: bool) -> Message:
    """The message with the note that tells the model about plan mode, or without it."""
    note = Text(PLAN_NOTE)
    parts = message.parts[:-1] if message.parts[-1:] == (note,) else message.parts
    return structs.replace(message, parts=(*parts, note) if planning else parts)


def note_personality(message: Message, text: str) -> Message:
    """The message with a note that tells the model how to speak from now on."""
    note = Text(f"{_PERSONALITY}{text or _NO_PERSONALITY}]")
    return structs.replace(message, parts=(*message.parts, note))


def find_personality(messages: Sequence[Message]) -> str:
    """How the model was told last to speak; empty: as usual."""
    for message in reversed(messages):
        for part in message.parts if message.role == "user" else ():
            if isinstance(part, Text) and part.text.startswith(_PERSONALITY):
                text = part.text.removeprefix(_PERSONALITY).removesuffix("]")
                return "" if text == _NO_PERSONALITY else text
    return ""


class _StoredBeginning(Struct):
    """What the beginning of a client's history was shortened to."""

    covered: int
    """How many messages of the history it replaces."""
    digest: bytes
    """Of the replaced messages: it only applies to a history that begins with exactly these."""
    messages: tuple[Message, ...]


class ClientHistory:
    """A client's full history, and the shortened one its turn begins with. Shortened beginnings are
    stored, so that a long conversation is not summarised again for each turn."""

    def __init__(
        self, store: Store, session_id: str, past: tuple[Message, ...], *, persistent: bool
    ) -> None:
        self.messages = past
        self.persistent = persistent
        self._store = store
        self._id = session_id
        self._beginning: tuple[Message, ...] | None = past

    async def recall_messages(self) -> tuple[Message, ...]:
        """The history a turn begins with, shortened as far as an earlier turn did so."""
        with suppress(StoreError, msgspec.DecodeError):
            stored = None
            if self.persistent and self.messages:
                stored = await self._store.objects.get(_OBJECT_KIND, self._id, owner="")
            if stored is not None:
                start = msgspec.msgpack.decode(stored.body, type=_StoredBeginning)
                covered = self.messages[: start.covered]
                if len(covered) == start.covered and _hash_messages(covered) == start.digest:
                    self._beginning = (*start.messages, *self.messages[start.covered :])
        return self._beginning or ()

    async def save_shortened(self, old: Sequence[Message], new: Sequence[Message]) -> None:
        """Store what the history before this turn became when `old` was shortened to `new`."""
        beginning, self._beginning = self._beginning, None
        if beginning is None:
            return
        turn_length = len(old) - len(beginning)
        cut = len(new) - turn_length
        if cut < 0 or list(new[cut:]) != list(old[len(beginning) :]):
            return  # messages of this turn were shortened too
        self._beginning = tuple(new[:cut])
        if not self.persistent:
            return
        start = _StoredBeginning(len(self.messages), _hash_messages(self.messages), self._beginning)
        try:
            await self._store.objects.put(
                _OBJECT_KIND, self._id, msgspec.msgpack.encode(start), keep_latest=_MAX_STORED
            )
        except StoreError as error:
            log.warning("the shortened history of session %s was not stored: %s", self._id, error)


class Transcript:
    """The stored messages of one conversation. Nothing is stored before the first message;
    `on_first_answer` receives the first question and answer if there is no title yet."""

    def __init__(
        self,
        store: Store,
        background: BackgroundCommands,
        meta: SessionMeta,
        history: History | None = None,
    ) -> None:
        self.meta = meta
        self.taint = meta.taint
        """What kinds of data it has read; stored together with the result that brought it."""
        self.client_history: ClientHistory | None = None
        """The history as the client knows it, which is then never replaced in the store."""
        self.on_first_answer: Callable[[str, str], None] = lambda question, answer: None
        self.on_record: RecordHook | None = None
        """What changes in the mailbox together with a message or a state."""
        self.stored = history is not None
        self.last_seq = meta.messages - 1 if self.stored else -1
        """The place of the last message that is stored."""
        self._store = store
        self._background = background
        self._history = history
        self._past: tuple[Message, ...] | None = ()
        """Messages stored together with the first one; None: nothing is stored."""
        self._first_question = ""
        """The first prompt of a conversation without a title, until it is answered."""

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

    def ends_with(self, message: Message) -> bool:
        """Whether this message is stored already, and was left unanswered."""
        last = self.history.messages[-1:]
        return self.stored and self.client_history is None and tuple(last) == (message,)

    async def adopt_history(self, past: ClientHistory, *, stored: bool) -> None:
        """Continue from the client's history instead of the stored one."""
        self._history = History(await past.recall_messages(), mark=wrapper_mark(self.id))
        self.stored, self.client_history = stored, past
        self._past = past.messages if past.persistent else None

    async def update_meta(self, *, title: str | None = None, model: str | None = None) -> None:
        """Change the title or the model, also in the store once the session is there."""
        changes = {"title": title, "model": model}
        new = {name: value for name, value in changes.items() if value is not None}
        self.meta = structs.replace(self.meta, **new)
        if await self._store.sessions.get_meta(self.id) is not None:
            await self._store.sessions.update_meta(self.id, title=title, model=model)

    async def record(
        self, message: Message | None, state: SessionState | None, error: str = ""
    ) -> None:
        """Store a message and the state of the turn; the first one creates the session."""
        if self._past is None:
            return
        change = self.on_record(message, state, error) if self.on_record is not None else None
        if message is None:
            if self.stored and state is not None:
                await self._store.sessions.set_state(self.id, state, mailbox=change)
            return
        create = None
        if not self.stored:
            title = self.meta.title or take_first_words((*self._past, message)[0])
            self._first_question = "" if self.meta.title else message.text
            create = structs.replace(self.meta, title=title)
        taint = self.taint
        news = taint if taint != self.meta.taint else None
        new = (*self._past, message) if create is not None else (message,)
        try:
            self.last_seq = await self._store.sessions.append(
                self.id, new, state=state, create=create, taint=news, mailbox=change
            )
        except StoreError as error:
            if error.code != "exists" or self.client_history is None:
                raise  # otherwise another turn of the same conversation was faster
            self.last_seq = await self._store.sessions.append(
                self.id, (message,), state=state, taint=news
            )
        self.stored = True
        self.meta = structs.replace(create or self.meta, taint=taint)
        if state == "idle" and (question := self._first_question):
            self._first_question = ""
            self.on_first_answer(question, message.text)

    async def replace_history(self, messages: Sequence[Message], *, running: bool) -> History:
        """Continue with these messages instead, in a child session; returns the new history."""
        if self.client_history is not None:
            await self.client_history.save_shortened(self.history.messages, messages)
        else:
            old = self.meta
            self.meta = await continue_in_child(
                self._store, old, self.taint, messages, running=running
            )
            self.last_seq = len(messages) - 1
            self._background.move_to_child(old.id, self.id)
        self._history = History(messages, mark=wrapper_mark(self.id))
        return self._history


def _hash_messages(messages: Sequence[Message]) -> bytes:
    return hashlib.sha256(msgspec.msgpack.encode(messages)).digest()
