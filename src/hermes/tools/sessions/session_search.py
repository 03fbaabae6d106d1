"""Searches earlier conversations and reads their messages in full."""

from typing import Annotated

from msgspec import Meta, Struct

from hermes.core.errors import StoreError, ToolError
from hermes.core.message import Media, Message, Text, Thinking, ToolCall, ToolReturn
from hermes.core.store import SessionMeta, Store
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._services import STORE

MAX_HITS = 10
_MAX_SCANNED = 200
"""Hits of all chats that are filtered for those of this one."""
_MAX_COUNT = 20


class Params(Struct, frozen=True):
    query: str = ""
    session: str = ""
    """The id of a session, to read in it."""
    message: Annotated[int, Meta(ge=0)] = 0
    """The number of the first message to read."""
    count: Annotated[int, Meta(ge=1, le=_MAX_COUNT)] = 1


@tool(
    "Search past conversations, also the part of this one that was summarised: `query` finds "
    "messages by their words; `session` with `message` (and `count`) reads them in full.",
    toolset="sessions",
    sends=False,
    words="history memory remember earlier talk said chat last recall",
)
async def session_search(p: Params, ctx: ToolContext) -> ToolResult:
    store = ctx.services.get(STORE)
    if store is None:
        raise ToolError("This session has no stored conversations to search.")
    if bool(p.query.strip()) == bool(p.session):
        raise ToolError("Give either query, or session and message.")
    try:
        current = await store.sessions.get_meta(ctx.session_id)
        if p.session:
            return await _read_messages(store, current, p)
        return await _find_messages(store, current, p.query)
    except StoreError as error:
        raise ToolError(str(error)) from None


async def _find_messages(store: Store, current: SessionMeta | None, query: str) -> ToolResult:
    hits = [
        h
        for h in await store.search.find_messages(query, limit=_MAX_SCANNED)
        if _is_same_chat(current, h.session)
    ][:MAX_HITS]
    if not hits:
        return ToolResult("Nothing was found. Try other or fewer words.", data=[])
    lines = [
        f"session {h.session.id} message {h.seq} ({h.role}; {h.session.title[:60]}): {h.snippet}"
        for h in hits
    ]
    return ToolResult("\n".join(lines), data=[(h.session.id, h.seq) for h in hits])


async def _read_messages(store: Store, current: SessionMeta | None, p: Params) -> ToolResult:
    meta = await store.sessions.get_meta(p.session)
    if meta is None or not _is_same_chat(current, meta):
        raise ToolError(f"There is no session {p.session}.")
    wanted = range(p.message, p.message + p.count)
    messages = await store.sessions.load_messages(meta.id) if p.message < meta.messages else []
    found = [
        f"message {i} ({messages[i].role}):\n{_render_message(messages[i])}"
        for i in wanted
        if i < len(messages)
    ]
    if not found:
        raise ToolError(f"Session {meta.id} has {meta.messages} messages, numbered from 0.")
    return ToolResult("\n\n".join(found))


def _is_same_chat(current: SessionMeta | None, other: SessionMeta) -> bool:
    """Whether both sessions belong to the same chat: nobody reads those of another one."""
    return current is not None and (current.source, current.key) == (other.source, other.key)


def _render_message(message: Message) -> str:
    out = []
    for part in message.parts:
        match part:
            case Text(text=text) | ToolReturn(text=text) | Thinking(text=text):
                out.append(text)
            case ToolCall(name=name, args=args):
                out.append(f"[calls {name} {args}]")
            case Media(mime=mime):
                out.append(f"[{mime}]")
    return "\n".join(out)
