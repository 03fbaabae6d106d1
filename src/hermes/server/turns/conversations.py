"""Finds the session of a conversation whose history is in the request."""

import asyncio
import hashlib
import secrets
from collections.abc import Collection, Iterable, Sequence

from hermes.app.knowledge.titles import SpawnTask
from hermes.core.events import TurnResult
from hermes.core.message import Media, Message, Part, Text, ToolCall, ToolReturn
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
        said = request.past[: len(request.past) - len(request.results)]
        if said:
            digest = _hash_history(owner, request.instructions, said)
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


def restore_steps(
    past: tuple[Message, ...], results: tuple[Message, ...], stored: Sequence[Message]
) -> tuple[Message, ...]:
    """The past with the calls that ran here in the turn which waits for `results`. Its client knows
    only its own calls; without the others the model would do everything again."""
    said = past[: len(past) - len(results)]
    begin = _find_prompt(said, len(said))
    asked = {call.id for call in said[-1].calls} if said else set()
    last = len(stored) - 1
    while last >= 0 and not asked & {call.id for call in stored[last].calls}:
        last -= 1
    start = _find_prompt(stored, last)
    if begin < 0 or start < 0:
        return past
    own = {call.id for call in stored[last].calls} - asked
    done = [m for m in stored[last + 1 :] if any(_is_result(part, own) for part in m.parts)]
    return (*said[: begin + 1], *stored[start + 1 : last + 1], *done, *results)


def _find_prompt(messages: Sequence[Message], end: int) -> int:
    """The place of the last message before `end` that a user sent; -1: there is none."""
    place = end - 1
    while place >= 0 and (messages[place].role != "user" or messages[place].kind != "normal"):
        place -= 1
    return place


def _is_result(part: Part, call_ids: Collection[str]) -> bool:
    return isinstance(part, ToolReturn) and part.call_id in call_ids


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
