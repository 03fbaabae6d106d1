"""The stored sessions a person may see: those of the same surface and conversation."""

from hermes.app.commands import CommandContext
from hermes.core.errors import ConfigError
from hermes.core.store import SessionMeta

_MAX_LISTED = 20
_MAX_SEARCHED = 1000


async def list_sessions(ctx: CommandContext, limit: int = _MAX_LISTED) -> list[SessionMeta]:
    """The latest sessions of this surface and, where several people use it, this conversation."""
    mine = ctx.session.transcript.meta
    found = await ctx.runtime.store.sessions.list_recent(source=mine.source, limit=_MAX_SEARCHED)
    return [meta for meta in found if meta.key == mine.key][:limit]


async def find_session(ctx: CommandContext, wanted: str) -> SessionMeta:
    """The session with this id, beginning of an id, or title; other people's are not found."""
    mine = ctx.session.transcript.meta
    by_id = [
        meta
        for meta in await ctx.runtime.store.sessions.find_by_prefix(wanted, limit=_MAX_LISTED)
        if (meta.source, meta.key) == (mine.source, mine.key)
    ]
    exact = [meta for meta in by_id if meta.id == wanted]
    titled: list[SessionMeta] = []
    if not by_id:
        word = wanted.casefold()
        titled = [m for m in await list_sessions(ctx, _MAX_SEARCHED) if m.title.casefold() == word][
            :1
        ]
    match exact or by_id or titled:
        case [meta]:
            return meta
        case []:
            raise ConfigError(f"There is no session {wanted}. See /sessions.")
        case several:
            ids = ", ".join(meta.id for meta in several)
            raise ConfigError(f"{wanted} matches several sessions ({ids}); type more of the id.")
