"""Finding the session a person means."""

from __future__ import annotations

from hermes.core.errors import ConfigError
from hermes.core.store import SessionMeta, Store


async def find_session(store: Store, prefix: str) -> SessionMeta:
    """By its id or the beginning of it."""
    found = await store.sessions.find_by_prefix(prefix, limit=4) if prefix else []
    exact = [meta for meta in found if meta.id == prefix]
    match exact or found:
        case [meta]:
            return (
                await store.sessions.get_meta(meta.id) or meta
            )  # whole: lists leave the prompt out
        case []:
            raise ConfigError(f"There is no session {prefix!r}; hermes sessions list shows them.")
        case several:
            ids = ", ".join(meta.id for meta in several)
            raise ConfigError(f"{prefix!r} fits several sessions ({ids}); give more of the id.")
