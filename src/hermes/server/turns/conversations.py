"""Finds the session of a conversation whose history is in the request."""

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Sequence

from hermes.app.knowledge.titles import SpawnTask
from hermes.core.events import TurnResult
from hermes.core.message import Media, Message, Text, ToolCall, ToolReturn
from hermes.core.store import Objects
from hermes.server.requests.client_tools import list_open_calls
from hermes.server.requests.turn_request import TurnRequest

KIND = "history"
_MAX_STORED = 2000
_MAX_KNOWN = 5000


class Conversations:
    """Knows a conversation by everything said in it so far, so that two which begin alike never
    share a session. Each turn records what the next request has to repeat."""

    def __init__(self, objects: Objects, spawn: SpawnTask) -> None:
        self._objects = objects
        self._spawn = spawn
        self._known: dict[str, str] = {}
        self.is_shared = False
        """Whether another node may get the next request."""

    async def find_session(self, owner: str, request: TurnRequest) -> str:
        """The session of the conversation that the request continues, or the id of a new one."""
        if request.past:
            digest = _hash_history(owner, request.instructions, request.past)
            if known := self._known.get(digest):
                return known
            stored = await self._objects.get(KIND, digest, owner=owner, touch=True)
            if stored is not None:
                return stored.body.decode()
        return f"api-{secrets.token_hex(16)}"

    async def note_answer(
        self, owner: str, request: TurnRequest, session_id: str, result: TurnResult
    ) -> None:
        """Record a turn. A stream shows the texts of all steps, a single answer only the last."""
        if request.session or request.new_session or not request.keep:
            return
        before, calls = (*request.past, request.prompt), list_open_calls(result.messages)
        saved = []
        texts = (message.text for message in result.messages if message.role == "assistant")
        for text in {result.text, "".join(texts)}:
            answer = Message("assistant", (Text(text), *calls))
            digest = _hash_history(owner, request.instructions, (*before, answer))
            self._known[digest] = session_id
            saving = self._objects.put(
                KIND, digest, session_id.encode(), owner=owner, keep_latest=_MAX_STORED
            )
            saved.append(self._spawn(saving, f"history of {session_id}"))
        while len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        if self.is_shared:
            await asyncio.wait(saved)


def _hash_history(owner: str, instructions: str, messages: Sequence[Message]) -> str:
    """A hash of what clients repeat of a conversation; they often change white space."""
    digest = hashlib.sha256()
    for part in (owner, instructions, *(p for m in messages for p in _list_marks(m))):
        raw = part if isinstance(part, bytes) else part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()


def _list_marks(message: Message) -> Iterable[str | bytes]:
    yield message.role
    yield "".join(message.text.split())
    for part in message.parts:
        match part:
            case ToolCall(call_id) | ToolReturn(call_id):
                yield call_id
            case Media(_, data, url):
                yield data or url
