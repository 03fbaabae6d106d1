"""The model and the reasoning effort that a person chose for one session."""

import msgspec
from msgspec import Struct, structs

from hermes.app.agents import Options
from hermes.core.provider import Effort
from hermes.core.store import SessionMeta, Store
from hermes.llm.endpoints.endpoint import ModelChoice

_KIND = "session_choice"
_MAX_KEPT = 2000
_MAX_ANCESTORS = 20


class SessionChoice(Struct, frozen=True, omit_defaults=True):
    """Empty: as configured."""

    model: str = ""
    effort: Effort | None = None

    def apply_to(self, options: Options) -> Options:
        if self.model:
            options = structs.replace(options, choice=ModelChoice(model=self.model))
        return structs.replace(options, effort=self.effort or options.effort)


async def load_choice(store: Store, meta: SessionMeta) -> SessionChoice:
    """The choice for a session, or for the one that it continues or branched from."""
    current: SessionMeta | None = meta
    for _ in range(_MAX_ANCESTORS):
        if current is None:
            break
        found = await store.objects.get(_KIND, current.id, owner="")
        if found is not None:
            return msgspec.json.decode(found.body, type=SessionChoice)
        current = await store.sessions.get_meta(current.parent) if current.parent else None
    return SessionChoice()


async def save_choice(store: Store, session_id: str, choice: SessionChoice) -> None:
    body = msgspec.json.encode(choice)
    await store.objects.put(_KIND, session_id, body, keep_latest=_MAX_KEPT)
