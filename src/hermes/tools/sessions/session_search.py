"""Searches earlier conversations and reads their messages in full."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from hermes.core.errors import StoreError, ToolError
from hermes.core.message import Media, Message, Text, Thinking, ToolCall, ToolReturn
from hermes.core.store import SearchFilter, SearchHit, SessionMeta, Store
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._services import STORE

MAX_HITS = 10
_MAX_PER_CONVERSATION = 3
_MAX_SCANNED = 100
_MAX_COUNT = 20
_LAST_SOURCES = frozenset({"cron", "subagent"})


class Params(Struct, frozen=True):
    query: str | None = None
    session: str | None = None
    """The id of a session, to read in it."""
    message: int | None = None
    """The number of the first message to read; negative: from the end."""
    count: int | None = None
    role: Literal["user", "assistant", "tool"] | None = None
    sort: Literal["best", "newest"] | None = None


@tool(
    "Search past conversations, also the part of this one that was summarised: `query` finds "
    "messages by their words; `session` with `message` (and `count`) reads them in full; without "
    "both it lists the latest.",
    toolset="sessions",
    sends=False,
    words="history memory remember earlier talk said chat last recall",
)
async def session_search(p: Params, ctx: ToolContext) -> ToolResult:
    store = ctx.services.get(STORE)
    if store is None:
        raise ToolError("This session has no stored conversations to search.")
    query = (p.query or "").strip()
    if query and p.session:
        raise ToolError("Give either query, or session and message.")
    try:
        current = await store.sessions.get_meta(ctx.session_id)
        if p.session:
            return await _read_messages(store, current, p)
        if not query:
            return await _list_latest(store, current)
        return await _find_messages(store, current, query, p)
    except StoreError as error:
        raise ToolError(str(error)) from None


async def _list_latest(store: Store, current: SessionMeta | None) -> ToolResult:
    if current is None:
        return ToolResult("There are no other conversations yet.", data=[])
    found = await store.sessions.list_recent(limit=MAX_HITS, source=current.source, key=current.key)
    lines = [
        f"session {meta.id} ({meta.messages} messages; {meta.title[:60]}; "
        f"{_format_date(meta.updated)})"
        for meta in found
    ]
    return ToolResult("\n".join(lines), data=[meta.id for meta in found])


async def _find_messages(
    store: Store, current: SessionMeta | None, query: str, p: Params
) -> ToolResult:
    hits: Sequence[SearchHit] = ()
    if current is not None:
        within = SearchFilter(
            *(current.source, current.key, p.role),
            newest=p.sort == "newest",
            per_session=_MAX_PER_CONVERSATION,
        )
        found = await store.search.find_messages(query, limit=_MAX_SCANNED, within=within)
        hits = await _choose_hits(store, found)
    if not hits:
        return ToolResult("Nothing was found. Try other or fewer words.", data=[])
    lines = [
        f"session {h.session.id} message {h.seq} ({h.role}; {h.session.title[:60]}; "
        f"{_format_date(h.created)}): {h.snippet}"
        for h in hits
    ]
    return ToolResult("\n".join(lines), data=[(h.session.id, h.seq) for h in hits])


async def _choose_hits(store: Store, found: Sequence[SearchHit]) -> list[SearchHit]:
    """The hits to show: few of one conversation, those of jobs and subagents last."""
    ordered = sorted(found, key=lambda hit: hit.session.source in _LAST_SOURCES)
    roots: dict[str, str] = {}
    counts: Counter[str] = Counter()
    chosen: list[SearchHit] = []
    for hit in ordered:
        root = await _find_end(store, hit.session, roots)
        counts[root] += 1
        if counts[root] <= _MAX_PER_CONVERSATION:
            chosen.append(hit)
        if len(chosen) == MAX_HITS:
            break
    return chosen


async def _find_end(store: Store, meta: SessionMeta, known: dict[str, str]) -> str:
    """The session in which the conversation continues today: compressed parts are one."""
    path = []
    while meta.id not in known:
        path.append(meta.id)
        following = await store.sessions.get_meta(meta.next) if meta.next else None
        if following is None or following.id in path:
            break
        meta = following
    end = known.get(meta.id, meta.id)
    known.update(dict.fromkeys(path, end))
    return end


async def _read_messages(store: Store, current: SessionMeta | None, p: Params) -> ToolResult:
    meta = await store.sessions.get_meta(p.session or "")
    if meta is None or not _is_same_chat(current, meta):
        raise ToolError(f"There is no session {p.session}.")
    first = p.message or 0
    first = max(0, meta.messages + first) if first < 0 else first
    wanted = range(first, first + max(1, min(p.count or 1, _MAX_COUNT)))
    messages = await store.sessions.load_messages(meta.id) if first < meta.messages else []
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


def _format_date(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


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
