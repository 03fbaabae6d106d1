"""The turns of a session: where they begin, the files before them, and a session without them."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.message import Message
from hermes.core.tool import ToolContext

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session
    from hermes.exec.snapshots.checkpoints import Checkpoint

log = logging.getLogger(__name__)

_MARK = re.compile(r" ?\[(\S+) (\d+)\]$")
_ASKED = 100
_ANCESTORS = 100


def turn_label(asked: str, session_id: str, place: int) -> str:
    """Of the checkpoint made before a turn changes files: for people, and to be found again."""
    return f"{asked[:_ASKED]} [{session_id} {place}]".strip()


def spoken_label(label: str) -> str:
    """The part for people."""
    return _MARK.sub("", label)


async def save_files(context: ToolContext, asked: str, session_id: str, place: int) -> None:
    """Before a turn changes files for the first time: how they were."""
    from hermes.exec.snapshots.checkpoints import create_checkpoint

    await create_checkpoint(
        context.cwd, context.home, turn_label(asked, session_id, place), log.info
    )


def starts(messages: Sequence[Message]) -> list[int]:
    """Places of the messages that a turn answered."""
    return [i for i, m in enumerate(messages) if m.role == "user" and m.kind == "normal"]


async def checkpoint_since(runtime: Runtime, session: Session, place: int) -> Checkpoint | None:
    """The files as they were before the message at `place` was answered: the earliest checkpoint
    of a turn from there on. None when none of those changed any."""
    from hermes.exec.snapshots.checkpoints import list_checkpoints

    upto = {session_id: end async for session_id, end in _lineage(runtime, session)}
    found: list[tuple[int, float, Checkpoint]] = []
    for made in await list_checkpoints(Path(session.meta.cwd), runtime.setup.home):
        mark = _MARK.search(made.label)
        if mark and place <= int(mark[2]) < upto.get(mark[1], 0):
            found.append((int(mark[2]), made.created, made))
    return min(found, key=lambda one: one[:2])[2] if found else None


async def _lineage(runtime: Runtime, session: Session) -> AsyncIterator[tuple[str, int]]:
    """The session and those it was branched off, each with the number of messages they share."""
    meta, shared = session.meta, len(session.history)
    for _ in range(_ANCESTORS):
        yield meta.id, shared
        above = await runtime.store.meta(meta.parent) if meta.parent else None
        if above is None or above.next == meta.id:  # compressed: its places are not ours
            return
        shared = min(shared, await _taken_over(runtime, meta.id))
        meta = above


async def _taken_over(runtime: Runtime, session_id: str) -> int:
    """How many messages a branch began with: they were written together, and so have one time."""
    count, time_ = 0, None
    async for stored in runtime.store.export(session_id):
        if time_ is not None and stored.created != time_:
            break
        count, time_ = count + 1, stored.created
    return count if count > 1 else 0


async def branch(runtime: Runtime, session: Session, upto: int, title: str = "") -> Session:
    """A session of its own that begins with the first `upto` messages; the old one stays."""
    from hermes.app.session_init import new_id

    now = time.time()
    meta = structs.replace(
        session.meta,
        id=new_id(now),
        parent=session.id,
        title=title or session.meta.title,
        created=now,
        updated=now,
        taint=session.taint,
        next="",
    )
    kept = session.history.messages[:upto]
    if kept:
        await runtime.store.append(meta.id, kept, create=meta)
    else:
        await runtime.store.create(meta)
    return await reopen(runtime, session, meta.id)


async def reopen(runtime: Runtime, session: Session, resume: str = "") -> Session:
    """Another session (or a new one) in the same place, for the same people."""
    meta = session.meta
    other = await runtime.session(
        resume=resume, source=meta.source, key=meta.key, cwd=Path(meta.cwd), options=session.options
    )
    mine, old = other.people, session.people
    mine.present, mine.busy, mine.verbose = old.present, old.busy, old.verbose
    return other
