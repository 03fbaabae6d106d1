"""The stored sessions a person may see: those of the same surface and conversation."""

from hermes.core.errors import ConfigError
from hermes.core.store import SessionMeta, Store

_MAX_LISTED = 20
_MAX_SEARCHED = 1000


async def list_own_sessions(
    store: Store, mine: SessionMeta, limit: int = _MAX_LISTED
) -> list[SessionMeta]:
    """The latest sessions of the same surface and, where several people use it, conversation."""
    found = await store.sessions.list_recent(source=mine.source, limit=_MAX_SEARCHED)
    return [meta for meta in found if meta.key == mine.key][:limit]


async def find_own_session(store: Store, mine: SessionMeta, wanted: str) -> SessionMeta:
    """The session with this id, beginning of an id, or title; other people's are not found."""
    by_id = [
        meta
        for meta in await store.sessions.find_by_prefix(wanted, limit=_MAX_LISTED)
        if (meta.source, meta.key) == (mine.source, mine.key)
    ]
    exact = [meta for meta in by_id if meta.id == wanted]
    titled: list[SessionMeta] = []
    if not by_id:
        recent = await list_own_sessions(store, mine, _MAX_SEARCHED)
        titled = [meta for meta in recent if meta.title.casefold() == wanted.casefold()][:1]
    match exact or by_id or titled:
        case [meta]:
            return meta
        case []:
            raise ConfigError(f"There is no session {wanted}. See /sessions.")
        case several:
            ids = ", ".join(meta.id for meta in several)
            raise ConfigError(f"{wanted} matches several sessions ({ids}); type more of the id.")
