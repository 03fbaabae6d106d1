"""Results of background subagents: stored until the conversation has read them, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from hermes.core.message import Message, Text
from hermes.core.taint import BOTH, Taint
from hermes.core.untrusted_text import make_inert, wrap_text, wrapper_mark

if TYPE_CHECKING:
    from hermes.app.transcript import Transcript
    from hermes.core.store import Store

_KIND = "delegation"
_MAX_STORED = 200
_LOST = "Hermes was ended while it ran; what it did so far is kept."
_HEAD = "[Result of the background subagent {id} ({session}), which you had started:]"


def describe_failure(
    task: str, status: str, error: str, *, session: str = "", summary: str = ""
) -> dict[str, Any]:
    """The result of a task whose subagent did not live to report what it did."""
    return {
        "task": task,
        "session_id": session,
        "status": status,
        "summary": summary,
        "files_changed": [],
        "model_calls": 0,
        "tokens": 0,
        "cost_usd": None,
        "seconds": 0.0,
        "error": error,
    }


class _TaskRecord(Struct, frozen=True, omit_defaults=True):
    id: str
    parent: str
    """The session that is waiting for it."""
    session: str
    goal: str
    result: dict[str, Any] | None = None
    """None: it is running, or its process has ended."""
    taint: int = 0


class BackgroundResults:
    """The records of background subagents, in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.running: set[str] = set()
        """Sessions of those that work in this process."""

    async def begin_task(self, parent: str, id: str, session: str, goal: str) -> None:
        self.running.add(session)
        await self._put_record(_TaskRecord(id, parent, session, goal))

    async def finish_task(self, session: str, row: dict[str, Any], taint: int) -> None:
        self.running.discard(session)
        record = await self._get_record(session)
        if record is not None:
            await self._put_record(structs.replace(record, result=row, taint=taint))

    async def list_ended(self, parents: set[str]) -> tuple[list[_TaskRecord], bool]:
        """The tasks of these sessions that have ended, with their results, and whether others are
        still at work."""
        ended, is_waiting = [], False
        for stored in await self._store.objects.list_all(_KIND, owner=""):
            record = msgspec.msgpack.decode(stored.body, type=_TaskRecord)
            if record.parent not in parents:
                continue
            if record.session in self.running:
                is_waiting = True
                continue
            ended.append(record if record.result is not None else await self._close_lost(record))
        return ended, is_waiting

    async def find_ancestors(self, transcript: Transcript) -> set[str]:
        """The session and those it was compressed from."""
        found, meta = {transcript.id}, transcript.meta
        while meta.parent:
            above = await self._store.sessions.get_meta(meta.parent)
            if above is None or above.next != meta.id or above.id in found:
                break
            found.add(above.id)
            meta = above
        return found

    async def remove_task(self, session: str) -> None:
        await self._store.objects.remove(_KIND, session, owner="")

    async def _close_lost(self, record: _TaskRecord) -> _TaskRecord:
        """The record of a task whose process has ended, with what it said last."""
        messages = await self._store.sessions.load_messages(record.session)
        said = [m.text for m in messages if m.role == "assistant" and m.text.strip()]
        meta = await self._store.sessions.get_meta(record.session)
        last = said[-1] if said else ""
        row = describe_failure(record.goal, "stopped", _LOST, session=record.session, summary=last)
        taint = meta.taint.bits if meta is not None else Taint.from_sources(BOTH).bits
        return structs.replace(record, result=row, taint=taint)

    async def _get_record(self, session: str) -> _TaskRecord | None:
        found = await self._store.objects.get(_KIND, session, owner="")
        return msgspec.msgpack.decode(found.body, type=_TaskRecord) if found else None

    async def _put_record(self, record: _TaskRecord) -> None:
        body = msgspec.msgpack.encode(record)
        await self._store.objects.put(_KIND, record.session, body, keep_latest=_MAX_STORED)


class BackgroundNews:
    """Adds results that a conversation has not read yet to its next message."""

    def __init__(
        self,
        results: BackgroundResults,
        transcript: Transcript,
        end: Callable[[BackgroundNews], None],
    ) -> None:
        self._results = results
        self._transcript = transcript
        self._added: list[str] = []
        self._is_waiting = True
        self._end = end
        """Called when nothing more can come."""

    async def add_news(self, message: Message) -> Message:
        parents = await self._results.find_ancestors(self._transcript)
        known = [m.text for m in self._transcript.history.messages if m.role == "user"]
        texts = []
        ended, self._is_waiting = await self._results.list_ended(parents)
        for record in ended:
            self._added.append(record.session)
            head = _HEAD.format(id=record.id, session=record.session)
            if any(head in text for text in known):
                continue  # its process ended before it could be removed
            self._transcript.absorb_taint(Taint.from_bits(record.taint).sources)
            mark = wrapper_mark(self._transcript.id)
            body = make_inert(msgspec.json.encode(record.result).decode())
            texts.append(f"{head}\n{wrap_text(body, mark, begin=True, end=True)}\n\n")
        if not texts:
            return message
        first, *others = message.parts or (Text(""),)
        news = "".join(texts)
        parts = (
            (Text(news + first.text), *others)
            if isinstance(first, Text)
            else (
                Text(news),
                first,
                *others,
            )
        )
        return structs.replace(message, parts=parts)

    async def settle_news(self) -> None:
        """Forget the results that the conversation has now."""
        while self._added:
            await self._results.remove_task(self._added.pop())
        if not self._is_waiting:
            self._end(self)
