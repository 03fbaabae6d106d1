"""Stored responses, their transcripts, and the latest response of each named conversation."""

from collections.abc import AsyncIterator, Callable

import msgspec
from msgspec import Struct

from hermes.app.knowledge.titles import SpawnTask
from hermes.config.api_server import ApiServer
from hermes.core.errors import StoreError
from hermes.core.message import Message, Text
from hermes.core.store import Store
from hermes.core.taint import Taint
from hermes.server.turns.frame_log import FrameLog, read_stored_frames
from hermes.server.turns.image_links import choose_text_filter
from hermes.server.turns.response_items import (
    ItemStyle,
    ResponseError,
    ResponseObject,
    build_items,
    rebuild_items,
)
from hermes.server.turns.server_instance import ServerInstance

RESPONSE_KIND = "response"
CONVERSATION_KIND = "conversation"
_MAX_CONVERSATIONS = 1000
LOST = (
    "The server stopped during this response. Its text so far is kept; continue with "
    "previous_response_id."
)


class StoredResponse(Struct):
    """A response with everything needed to continue from it."""

    response: ResponseObject
    transcript: tuple[Message, ...] = ()
    session: str = ""
    instructions: str = ""
    server: str = ""
    """The token of the server that works on it."""
    own_input: tuple[Message, ...] = ()
    """The messages of its request, without those of earlier responses."""


class ActiveResponse(Struct):
    """A response that this server is streaming."""

    stop: Callable[[], None]
    cancelled: bool = False


class ResponseStore:
    """Stores the responses of all principals; each can only read its own."""

    def __init__(self, store: Store, instance: ServerInstance, settings: ApiServer) -> None:
        self._store = store
        self._instance = instance
        self._settings = settings
        self.in_progress: dict[str, ActiveResponse] = {}
        """The responses this server is streaming. A deleted one is removed from here, and therefore
        not stored again."""
        self._logs: dict[str, FrameLog] = {}
        """The logs of streams that are not completely on disk."""

    async def load(self, owner: str, response_id: str) -> StoredResponse | None:
        objects = self._store.objects
        found = await objects.get(RESPONSE_KIND, response_id, owner=owner, touch=True)
        if found is None:
            return None
        stored = msgspec.msgpack.decode(found.body, type=StoredResponse)
        if self._is_abandoned(stored):
            await self._end_abandoned(owner, stored)
        return stored

    def open_log(self, response_id: str, spawn: SpawnTask) -> FrameLog:
        """The log for the frames of a new stream."""
        log = self._logs[response_id] = FrameLog(self._store.objects, response_id, spawn)
        return log

    async def close_log(self, response_id: str) -> None:
        """Wait until all frames of a stream are on disk."""
        await self._logs[response_id].end()
        del self._logs[response_id]

    def read_frames(self, response_id: str) -> AsyncIterator[bytes]:
        """The frames of a stream, until it has ended."""
        log = self._logs.get(response_id)
        if log is None:
            return read_stored_frames(self._store.objects, response_id)
        return log.read_new_frames()

    async def find_latest_id(self, owner: str, conversation: str) -> str:
        """The id of the latest response of a conversation; empty if it has none."""
        name = f"{owner}/{conversation}"
        pointer = await self._store.objects.get(CONVERSATION_KIND, name, owner=owner)
        return pointer.body.decode() if pointer else ""

    async def save(self, owner: str, stored: StoredResponse, conversation: str) -> None:
        """Store a response; `conversation`, unless empty, continues from it."""
        objects, response_id = self._store.objects, stored.response.id
        stored.server = self._instance.token
        limit = self._settings.max_stored_responses
        body = msgspec.msgpack.encode(stored)
        await objects.put(RESPONSE_KIND, response_id, body, owner=owner, keep_latest=limit)
        if conversation:
            name, body = f"{owner}/{conversation}", response_id.encode()
            limit = _MAX_CONVERSATIONS
            await objects.put(CONVERSATION_KIND, name, body, owner=owner, keep_latest=limit)

    async def delete(self, owner: str, response_id: str) -> bool:
        """Delete a response and the conversation that ends with it; returns whether it existed."""
        objects = self._store.objects
        if not await objects.remove(RESPONSE_KIND, response_id, owner=owner):
            return False
        self.in_progress.pop(response_id, None)
        for name in await objects.list_all(CONVERSATION_KIND, owner=owner):
            if name.body == response_id.encode():
                await objects.remove(CONVERSATION_KIND, name.id, owner=owner)
        return True

    def _is_abandoned(self, stored: StoredResponse) -> bool:
        """Whether the response is unfinished and no running server works on it."""
        is_ours = stored.response.id in self.in_progress
        is_alive = is_ours or self._instance.is_other_running(stored.server)
        return stored.response.status == "in_progress" and not is_alive

    async def _end_abandoned(self, owner: str, stored: StoredResponse) -> None:
        """Finish a response whose server has died, with the messages its session has stored."""
        try:
            messages = await self._store.sessions.load_messages(stored.session)
            meta = await self._store.sessions.get_meta(stored.session)
        except StoreError:
            messages, meta = [], None
        last = max((n for n, m in enumerate(messages) if m.role == "user"), default=-1)
        added: tuple[Message, ...] = ()
        if last >= 0 and messages[last].text == stored.transcript[-1].text:
            added = tuple(messages[last + 1 :])
        response = stored.response
        response.status = "incomplete"
        response.incomplete_details = {"reason": "error"}
        response.error = ResponseError("server_error", LOST)
        pages = [page async for page in read_stored_frames(self._store.objects, response.id)]
        response.output, unfinished = rebuild_items(b"".join(pages))
        if not response.output:
            clean = choose_text_filter(self._settings.images, meta.taint if meta else Taint())
            response.output = build_items(added, ItemStyle(), clean)
        stored.transcript += added
        if unfinished:
            stored.transcript += (Message("assistant", (Text(unfinished),), stop="died"),)
        body = msgspec.msgpack.encode(stored)
        await self._store.objects.put(RESPONSE_KIND, response.id, body, owner=owner)
