"""The sessions that one conversation runs through: each compression begins another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.core.message import Message
from hermes.core.store import SessionMeta, Store
from hermes.core.taint import Taint

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime


async def current(store: Store, session_id: str) -> SessionMeta | None:
    """The session, or the one that it goes on in since it was compressed."""
    meta = await store.sessions.get_meta(session_id)
    while meta is not None and meta.next:
        following = await store.sessions.get_meta(meta.next)
        if following is None:
            break
        meta = following
    return meta


async def go_on(
    runtime: Runtime, meta: SessionMeta, taint: Taint, messages: Sequence[Message], running: bool
) -> SessionMeta:
    """A stored session continues in a child that begins with these messages."""
    from hermes.app.session_init import new_id

    now = time.time()
    child = structs.replace(
        meta, id=new_id(now), parent=meta.id, created=now, updated=now, taint=taint, next=""
    )
    await runtime.store.sessions.continue_in_child(
        meta.id, child, messages, "running" if running else "idle"
    )
    runtime.background.adopt(meta.id, child.id)
    return child
