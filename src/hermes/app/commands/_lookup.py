"""Which stored sessions a person may see: those of the same place."""

from __future__ import annotations

from hermes.app.commands import CommandContext
from hermes.core.errors import ConfigError
from hermes.core.store import SessionMeta

_LISTED = 20
_SEARCHED = 1000


async def here(ctx: CommandContext, limit: int = _LISTED) -> list[SessionMeta]:
    """The latest ones of this surface and, on one with several people, of this conversation."""
    mine = ctx.session.transcript.meta
    found = await ctx.runtime.store.sessions.list_recent(source=mine.source, limit=_SEARCHED)
    return [meta for meta in found if meta.key == mine.key][:limit]


async def find(ctx: CommandContext, wanted: str) -> SessionMeta:
    """By id, the beginning of one, or title. What belongs to others does not exist."""
    mine = ctx.session.transcript.meta
    by_id = [
        meta
        for meta in await ctx.runtime.store.sessions.find_by_prefix(wanted, limit=_LISTED)
        if (meta.source, meta.key) == (mine.source, mine.key)
    ]
    exact = [meta for meta in by_id if meta.id == wanted]
    titled: list[SessionMeta] = []
    if not by_id:
        word = wanted.casefold()
        titled = [m for m in await here(ctx, _SEARCHED) if m.title.casefold() == word][:1]
    match exact or by_id or titled:
        case [one]:
            return one
        case []:
            raise ConfigError(f"There is no session {wanted}; /sessions lists them.")
        case several:
            ids = ", ".join(meta.id for meta in several)
            raise ConfigError(f"{wanted} fits several sessions ({ids}); give more of the id.")
