"""Stored sessions as JSON objects."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from hermes.core.provider import Effort
from hermes.core.store import SessionEnd, SessionMeta


class SessionObject(Struct):
    id: str
    object: Literal["hermes.session"]
    title: str
    source: str
    model: str
    state: str
    parent: str | None
    created_at: float
    updated_at: float
    message_count: int
    cwd: str
    pinned: bool
    archived: bool
    busy: bool
    """Whether a turn runs."""
    elsewhere: bool
    """Whether the turn that runs is another program's."""
    waiting: bool
    """Whether it waits for an approval or an answer."""
    cost_usd: float
    last_text: str
    effort: Effort | UnsetType | None = UNSET
    """The reasoning effort that was chosen; None: as configured. Lists do not have it."""


def describe_session(
    meta: SessionMeta,
    end: SessionEnd | None = None,
    *,
    busy: bool | None = None,
    elsewhere: bool = False,
    waiting: bool = False,
) -> SessionObject:
    end = end or SessionEnd()
    return SessionObject(
        id=meta.id,
        object="hermes.session",
        title=meta.title,
        source=meta.source,
        model=meta.model,
        state=meta.state,
        parent=meta.parent or None,
        created_at=meta.created,
        updated_at=meta.updated,
        message_count=meta.messages,
        cwd=meta.cwd,
        pinned=meta.pinned,
        archived=meta.archived,
        busy=meta.state == "running" if busy is None else busy,
        elsewhere=elsewhere,
        waiting=waiting,
        cost_usd=end.cost,
        last_text=end.text,
    )
