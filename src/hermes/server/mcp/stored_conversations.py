"""The stored conversations, in rows of limited size."""

from collections.abc import Iterable
from typing import Any

from hermes.core.errors import ToolError
from hermes.core.message import Media, Message, ToolCall, ToolReturn
from hermes.core.store import SessionMeta, Store, StoredMessage

MAX_ROWS = 200
MAX_TEXT = 2000
_MAX_NUMBER = 1 << 32


class StoredConversations:
    """Reads; never changes anything."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_recent(self, limit: int, source: str = "") -> list[dict[str, Any]]:
        """The most recently used first."""
        count = max(1, min(limit, MAX_ROWS))
        found = await self._store.sessions.list_recent(limit=count, source=source or None)
        return [describe_session(meta) for meta in found]

    async def describe(self, session_id: str) -> dict[str, Any]:
        meta = await self._require_session(session_id)
        count = len(await self._store.sessions.load_messages(meta.id))
        return {**describe_session(meta), "folder": meta.cwd, "messages": count}

    async def read_messages(self, session_id: str, after: int, limit: int) -> list[dict[str, Any]]:
        """The messages behind number `after`, in order."""
        meta = await self._require_session(session_id)
        rows: list[dict[str, Any]] = []
        count = max(1, min(limit, MAX_ROWS))
        after = max(-1, min(after, _MAX_NUMBER))
        async for stored in self._store.sessions.stream_messages(meta.id, after=after):
            rows.append(_describe_message(stored))
            if len(rows) >= count:
                break
        return rows

    async def find_media(self, session_id: str, number: int) -> list[Media]:
        """The attachments of one message, also those that a tool returned."""
        meta = await self._require_session(session_id)
        behind = max(-1, min(number, _MAX_NUMBER) - 1)
        async for stored in self._store.sessions.stream_messages(meta.id, after=behind):
            if stored.seq == number:
                return list(_list_media(stored.message))
            break
        raise ToolError(f"{session_id} has no message {number}.")

    async def _require_session(self, session_id: str) -> SessionMeta:
        meta = await self._store.sessions.get_meta(session_id)
        if meta is None:
            raise ToolError(f"There is no conversation {session_id}.")
        return meta


def describe_session(meta: SessionMeta) -> dict[str, Any]:
    return {
        "session_id": meta.id,
        "title": meta.title,
        "source": meta.source,
        "model": meta.model,
        "updated": round(meta.updated, 3),
    }


def _describe_message(stored: StoredMessage) -> dict[str, Any]:
    message = stored.message
    results = [part.text for part in message.parts if isinstance(part, ToolReturn)]
    text = "\n".join(filter(None, (message.text, *results)))
    row: dict[str, Any] = {"n": stored.seq, "role": message.role, "time": round(stored.created, 3)}
    row["text"] = text[:MAX_TEXT]
    if len(text) > MAX_TEXT:
        row["cut"] = len(text) - MAX_TEXT
    if calls := [part.name for part in message.parts if isinstance(part, ToolCall)]:
        row["tools"] = calls
    if count := len(list(_list_media(message))):
        row["attachments"] = count
    return row


def _list_media(message: Message) -> Iterable[Media]:
    for part in message.parts:
        if isinstance(part, Media):
            yield part
        elif isinstance(part, ToolReturn):
            yield from (item for item in part.content if isinstance(item, Media))
