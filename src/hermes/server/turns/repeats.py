"""Requests that failed after tools had changed something: repeating them runs nothing."""

import hashlib
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson
from msgspec import Struct

from hermes.app.knowledge.titles import SpawnTask
from hermes.core.events import ToolStarted, TurnEvent, TurnResult
from hermes.core.message import Message
from hermes.core.store import Object, Objects
from hermes.core.tool import Tool
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError, describe_final_error
from hermes.server.requests.turn_request import TurnRequest
from hermes.server.turns.outcome import (
    CHECK_EFFECTS,
    EFFECTS_STATUS,
    INCOMPLETE_HEADERS,
    NO_RETRY,
    build_error,
    build_turn_headers,
    is_truncated,
    is_unusable,
)
from hermes.server.turns.server_instance import ServerInstance

KIND = "failure"
KEPT_SECONDS = 600.0
_MAX_FAILURES = 1000
_SENDING_FIELDS = ("stream", "stream_options")
_RETRY_HEADER = "X-Stainless-Retry-Count"
STOPPED = f"The server stopped during this request, after a tool had run. {CHECK_EFFECTS}"
_RUNNING = (
    "The first attempt of this request is still running, and a tool has run in it. Try again later."
)
_DISCONNECTED = (
    f"The client disconnected during this request, after a tool had run. {CHECK_EFFECTS}"
)
_EARLIER_ATTEMPT = (
    "An earlier attempt at a message of this conversation ended early, after these tools had run: "
    "{}. What they changed is still there, and the conversation does not show it. Check what was "
    "done before you run anything again, and do not repeat what is done."
)


class RequestFailure(Struct):
    """How a request ended whose tools have changed something."""

    when: float
    server: str
    """The token of the server that works on it; empty: it has ended."""
    envelope: dict[str, Any] = {}
    session: str = ""
    retries_only: bool = False
    """Whether only a client's automatic retry gets the failure: the person may have stopped it."""
    prompt: str = ""
    """A hash of what the user said."""
    tools: tuple[str, ...] = ()


class FailedRequests:
    """Remembers failures for ten minutes, also across restarts."""

    def __init__(self, objects: Objects, spawn: SpawnTask, instance: ServerInstance) -> None:
        self._objects = objects
        self._spawn = spawn
        self._instance = instance
        self._known: dict[str, RequestFailure] = {}

    async def load_failures(self) -> None:
        """Read the failures of earlier servers; what they had begun has failed."""
        await self._read_failures(await self._objects.list_all(KIND))

    async def _read_failures(self, rows: Iterable[Object]) -> None:
        oldest = time.time() - KEPT_SECONDS
        for found in rows:
            failure = msgspec.msgpack.decode(found.body, type=RequestFailure)
            if failure.when < oldest:
                await self._objects.remove(KIND, found.id, owner=found.owner)
            elif failure.server == self._instance.token:
                continue  # it runs here
            elif not self._instance.is_other_running(failure.server):
                if failure.server:
                    failure.envelope = _describe_failure(STOPPED)
                self._known[found.id] = failure
            elif self._instance.node:
                self._known[found.id] = failure

    async def raise_if_repeated(self, call: ApiCall, request: TurnRequest) -> None:
        """Raise the failure that this request has already met, at any node. A client's automatic
        retry does not run beside the first attempt either."""
        if self._instance.node:
            await self._read_failures(await self._objects.list_all(KIND, owner=call.principal.name))
        if not self._known:
            return
        request_hash = hash_request(call)
        failure = self._known.get(request_hash)
        if failure is None:
            return
        if not failure.envelope:
            if _count_retries(call):
                raise ApiError(409, _RUNNING, code="in_progress", headers={"Retry-After": "5"})
            return
        if failure.when < time.time() - KEPT_SECONDS:
            del self._known[request_hash]
            return
        if failure.retries_only and _count_retries(call) == 0:
            return
        headers = build_turn_headers(failure.session, request) | INCOMPLETE_HEADERS | NO_RETRY
        raise ApiError.from_fields(EFFECTS_STATUS, failure.envelope, headers)

    def describe_attempts(self, owner: str, request: TurnRequest) -> str:
        """What the model must know of failures that the conversation does not show: a client that
        asks again with a shorter history must not have everything done twice. Empty: nothing."""
        if not self._known or request.session:
            return ""
        said = {_hash_prompt(owner, m) for m in (*request.past, request.prompt) if m.role == "user"}
        oldest = time.time() - KEPT_SECONDS
        names = {
            name
            for failure in self._known.values()
            if failure.envelope and failure.when >= oldest and failure.prompt in said - {""}
            for name in failure.tools
        }
        return _EARLIER_ATTEMPT.format(", ".join(sorted(names))) if names else ""

    def watch_turn(
        self, call: ApiCall, request: TurnRequest, session: str, tools: Mapping[str, Tool[Any]]
    ) -> "TurnWatch":
        return TurnWatch(self, call, request, session, tools)

    def save_failure(self, owner: str, request_hash: str, failure: RequestFailure) -> None:
        failure.server = "" if failure.envelope else self._instance.token
        self._known[request_hash] = failure
        while len(self._known) > _MAX_FAILURES:
            del self._known[next(iter(self._known))]
        body = msgspec.msgpack.encode(failure)
        saving = self._objects.put(KIND, request_hash, body, owner=owner, keep_latest=_MAX_FAILURES)
        self._spawn(saving, f"failure {request_hash[:8]}")

    def forget_failure(self, owner: str, request_hash: str) -> None:
        if self._known.pop(request_hash, None) is not None:
            removing = self._remove(owner, request_hash)
            self._spawn(removing, f"failure {request_hash[:8]}")

    async def _remove(self, owner: str, request_hash: str) -> None:
        await self._objects.remove(KIND, request_hash, owner=owner)


class TurnWatch:
    """Follows one turn: records its first effect at once, and its end."""

    def __init__(
        self,
        failures: FailedRequests,
        call: ApiCall,
        request: TurnRequest,
        session: str,
        tools: Mapping[str, Tool[Any]],
    ) -> None:
        self._failures = failures
        self._owner = call.principal.name
        self._call = call
        self._request = request
        self._prompt = _hash_prompt(self._owner, request.prompt)
        self._session = session
        self._tools = tools
        self._hash = ""
        self._names: tuple[str, ...] = ()

    def note_event(self, event: TurnEvent) -> None:
        if not isinstance(event, ToolStarted) or event.call.name in self._names:
            return
        tool = self._tools.get(event.call.name)
        if tool is not None and not (tool.is_repeatable and tool.forward is None):
            self._names += (event.call.name,)
            if not self._hash:
                self._hash = hash_request(self._call)
                self._save({})

    def note_end(self, result: TurnResult, *, disconnected: bool = False) -> None:
        if not self._hash:
            return
        is_cut = is_truncated(result) and not is_unusable(result, self._request)
        if not result.effects or result.status == "completed" or is_cut:
            self._failures.forget_failure(self._owner, self._hash)
        elif disconnected:
            self._save(_describe_failure(_DISCONNECTED), retries_only=True)
        else:
            self._save(describe_final_error(build_error(result)))

    def _save(self, envelope: dict[str, Any], *, retries_only: bool = False) -> None:
        failure = RequestFailure(
            time.time(), "", envelope, self._session, retries_only, self._prompt, self._names
        )
        self._failures.save_failure(self._owner, self._hash, failure)


def _describe_failure(text: str) -> dict[str, Any]:
    return ApiError(EFFECTS_STATUS, text, code="agent_incomplete").describe()


def _count_retries(call: ApiCall) -> int:
    text = call.request.headers.get(_RETRY_HEADER, "0").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0


def _normalize_body(body: bytes, *, is_loose: bool) -> bytes:
    """The body with the fields of its objects in order: some clients write them in another order
    each time. `is_loose`: without what the assistant said last, because a client may repeat a
    request together with the part of its answer that it has, and without the way of sending,
    because some repeat a failed stream as a whole answer."""
    try:
        fields = orjson.loads(body)
    except ValueError:  # such as half a surrogate pair, which other parsers accept
        return body
    if is_loose and isinstance(fields, dict):
        for name in _SENDING_FIELDS:
            fields.pop(name, None)
        for items in (fields.get("messages"), fields.get("input")):
            while isinstance(items, list) and items and _is_answer(items[-1]):
                del items[-1]
    return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)


def _is_answer(item: Any) -> bool:
    return isinstance(item, dict) and (
        item.get("role") == "assistant" or item.get("type") in ("mcp_call", "reasoning")
    )


def _hash_prompt(owner: str, prompt: Message) -> str:
    """A hash of what a user said, empty for nothing; clients often change white space."""
    words = prompt.text.split()
    if not words:
        return ""
    text = "\0".join((owner, *words))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def hash_request(call: ApiCall, key: str = "") -> str:
    """A hash that differs for another body, path, session, principal or key."""
    digest = hashlib.sha256()
    names = [call.request.headers.get(f"X-Hermes-Session-{n}", "") for n in ("Id", "Key")]
    for part in (call.principal.name, call.request.path, key, *names):
        raw = part.encode("utf-8", "surrogateescape")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    digest.update(_normalize_body(call.body, is_loose=not key))
    return digest.hexdigest()
