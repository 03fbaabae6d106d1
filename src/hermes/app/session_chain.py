"""How stored sessions hang together: what continues them, what branches off, where turns begin."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.app.session_init import new_id
from hermes.core.message import Message
from hermes.core.store import SessionMeta, SessionState, Store
from hermes.core.taint import Taint

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint

log = logging.getLogger(__name__)

_MARK = re.compile(r" ?\[(\S+) (\d+)\]$")
_LONGEST_LABEL = 100
_MAX_ANCESTORS = 100


async def find_current(store: Store, session_id: str) -> SessionMeta | None:
    """The session, or the one it continues in since it was compressed."""
    meta = await store.sessions.get_meta(session_id)
    while meta is not None and meta.next:
        following = await store.sessions.get_meta(meta.next)
        if following is None:
            break
        meta = following
    return meta


async def continue_in_child(
    store: Store, meta: SessionMeta, taint: Taint, messages: Sequence[Message], *, running: bool
) -> SessionMeta:
    """Store a child that begins with these messages; the conversation continues there."""
    now = time.time()
    child = structs.replace(
        meta, id=new_id(now), parent=meta.id, created=now, updated=now, taint=taint, next=""
    )
    state: SessionState = "running" if running else "idle"
    await store.sessions.continue_in_child(meta.id, child, messages, state)
    return child


async def store_branch(
    store: Store, meta: SessionMeta, taint: Taint, messages: Sequence[Message], title: str = ""
) -> str:
    """Store a session of its own that begins with these messages; its id. The old one stays."""
    now = time.time()
    child = structs.replace(
        meta,
        id=new_id(now),
        parent=meta.id,
        title=title or meta.title,
        created=now,
        updated=now,
        taint=taint,
        next="",
    )
    if messages:
        await store.sessions.append(child.id, messages, create=child)
    else:
        await store.sessions.create(child)
    return child.id


def turn_starts(messages: Sequence[Message]) -> list[int]:
    """Indexes of the messages that a turn answered."""
    return [i for i, m in enumerate(messages) if m.role == "user" and m.kind == "normal"]


# The checkpoint of a turn is found again by its label


def readable_label(label: str) -> str:
    """A checkpoint's label without the part that only serves to find it again."""
    return _MARK.sub("", label)


async def save_checkpoint(cwd: Path, home: Path, asked: str, session_id: str, index: int) -> None:
    """Save the files as they are before the turn that answers message `index` changes any."""
    from hermes.exec.snapshots.checkpoints import create_checkpoint

    label = f"{asked[:_LONGEST_LABEL]} [{session_id} {index}]".strip()
    await create_checkpoint(cwd, home, label, log.info)


async def checkpoint_since(
    store: Store, home: Path, meta: SessionMeta, *, index: int, length: int
) -> Checkpoint | None:
    """The files as they were before message `index` was answered: the earliest checkpoint of a
    turn from there on. None when none of those turns changed any. `length`: of the history."""
    from hermes.exec.snapshots.checkpoints import list_checkpoints

    ends = {session_id: end async for session_id, end in _walk_ancestors(store, meta, length)}
    found: list[tuple[int, float, Checkpoint]] = []
    for made in await list_checkpoints(Path(meta.cwd), home):
        mark = _MARK.search(made.label)
        if mark and index <= int(mark[2]) < ends.get(mark[1], 0):
            found.append((int(mark[2]), made.created, made))
    return min(found, key=lambda row: row[:2])[2] if found else None


async def _walk_ancestors(
    store: Store, meta: SessionMeta, length: int
) -> AsyncIterator[tuple[str, int]]:
    """The session and those it was branched off, each with the number of messages they share."""
    for _ in range(_MAX_ANCESTORS):
        yield meta.id, length
        above = await store.sessions.get_meta(meta.parent) if meta.parent else None
        if above is None or above.next == meta.id:  # compressed: its indexes are other ones
            return
        length = min(length, await _count_inherited(store, meta.id))
        meta = above


async def _count_inherited(store: Store, session_id: str) -> int:
    """How many messages a branch began with: written together, they have one time."""
    count, together = 0, None
    async for stored in store.sessions.stream_messages(session_id):
        if together is not None and stored.created != together:
            break
        count, together = count + 1, stored.created
    return count if count > 1 else 0
