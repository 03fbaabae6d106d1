"""Responses as they are stored, with everything it takes to go on from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from hermes.core.errors import StoreError
from hermes.core.message import Message
from hermes.core.taint import Taint
from hermes.server.http.route import Call
from hermes.server.turns.image_links import shown_as
from hermes.server.turns.response_items import items_of

if TYPE_CHECKING:
    from hermes.server.app import Server

KIND = "response"


class Kept(Struct):
    response: dict[str, Any]
    transcript: tuple[Message, ...] = ()
    session: str = ""
    instructions: str = ""
    server: str = ""
    """The token of the one that tells it."""

    def lost(self, server: Server) -> bool:
        """Whether nobody tells it any more, though it has no end."""
        going = self.response["id"] in server.unfinished or server.elsewhere(self.server)
        return self.response["status"] == "in_progress" and not going


async def load_kept(call: Call, identity: str) -> Kept | None:
    objects = call.server.runtime.store.objects
    found = await objects.get(KIND, identity, owner=call.principal.name, touch=True)
    if found is None:
        return None
    kept = msgspec.msgpack.decode(found.body, type=Kept)
    if kept.lost(call.server):
        await _end_lost(call, kept)
    return kept


async def _end_lost(call: Call, kept: Kept) -> None:
    """Its server died while it was told; what was done until then is in the session."""
    store = call.server.runtime.store
    try:
        messages = await store.sessions.load_messages(kept.session)
        meta = await store.sessions.get_meta(kept.session)
    except StoreError:
        messages, meta = [], None
    last = max((n for n, m in enumerate(messages) if m.role == "user"), default=-1)
    done: tuple[Message, ...] = ()
    if last >= 0 and messages[last].text == kept.transcript[-1].text:
        done = tuple(messages[last + 1 :])
    kept.transcript += done
    kept.response |= {
        "status": "incomplete",
        "incomplete_details": {"reason": "error"},
        "output": items_of(done, say=shown_as(call.server, meta.taint if meta else Taint())),
    }
    body = msgspec.msgpack.encode(kept)
    await store.objects.put(KIND, kept.response["id"], body, owner=call.principal.name)
