"""Idempotency keys: the same request with the same key runs once, also across crashes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TypeAlias

import msgspec
import orjson
from msgspec import Struct, structs

from hermes.app.knowledge.titles import SpawnTask
from hermes.core.errors import HermesError
from hermes.core.store import Objects
from hermes.server.http import web
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError, bad_request
from hermes.server.turns.frame_log import FrameLog
from hermes.server.turns.outcome import EFFECTS_STATUS, NO_RETRY
from hermes.server.turns.repeats import hash_request
from hermes.server.turns.server_instance import ServerInstance
from hermes.server.turns.sse import send_frames

HEADER = "Idempotency-Key"
KIND = "replay"
MAX_KEY_LENGTH = 255
MAX_ANSWERS = 2000
KEPT_SECONDS = 24 * 3600.0
LOST = (
    "The server stopped during this request, and it is not run again: tools may have run. The work "
    "so far is kept in the session. Check what was done, then send it with another Idempotency-Key."
)
_LOOK_SECONDS = 0.2
"""How often a node looks whether the answer of another one is there."""
_TEMPORARY = frozenset({408, 429})
"""Statuses that a retry may not get again."""
Work: TypeAlias = Callable[[], Awaitable[web.Response]]


class StoredAnswer(Struct):
    """The answer to a request with an idempotency key, as retries get it."""

    status: int
    """0: the request is being worked on."""
    headers: dict[str, str]
    body: bytes
    final: bool = True
    """Whether the answer is stored for retries."""
    streams: bool = False
    """Whether the body is in the stored frames."""
    server: str = ""
    """The token of the server that works on it."""

    def raise_if_failed(self) -> None:
        """Raise the error that the work ended with."""
        if self.status >= 400:
            fields = orjson.loads(self.body)["error"]
            raise ApiError.from_fields(self.status, fields, self.headers)


class RecordedStream:
    """A stream that runs once and is read by all requests with its key."""

    def __init__(self, log: FrameLog) -> None:
        self.log = log
        self._encode_keepalive: Callable[[], bytes] = bytes
        self._head: asyncio.Future[StoredAnswer] = asyncio.get_running_loop().create_future()

    def open(self, headers: dict[str, str], encode_keepalive: Callable[[], bytes]) -> None:
        """Let the readers begin."""
        self._encode_keepalive = encode_keepalive
        self.set_head(StoredAnswer(200, headers, b"", streams=True))

    async def send(self, data: bytes) -> None:
        self.log.put(data)

    def put_keepalive(self) -> bytes:
        """Fill a silence for all readers; each gets it in order with the other frames."""
        self.log.put(self._encode_keepalive())
        return b""

    def set_head(self, head: StoredAnswer) -> None:
        if not self._head.done():
            self._head.set_result(head)

    async def wait_for_head(self) -> StoredAnswer:
        return await asyncio.shield(self._head)


StreamWork: TypeAlias = Callable[[RecordedStream], Awaitable[None]]


class IdempotencyKeys:
    """Runs requests once per key; answers are stored for a day. What a server had begun when it
    died has failed, and is not begun again."""

    def __init__(self, objects: Objects, spawn: SpawnTask, instance: ServerInstance) -> None:
        self._objects = objects
        self._spawn = spawn
        self._instance = instance
        self.pending: dict[str, asyncio.Future[StoredAnswer]] = {}
        self._streams: dict[str, RecordedStream] = {}

    async def run_once(
        self, call: ApiCall, work: Work, *, repeatable: bool = False
    ) -> web.Response:
        """Do the work, or repeat its earlier answer. With a key, the work continues when its client
        disconnects. `repeatable`: the work itself finds what it did before a crash."""
        key = read_key_header(call)
        if not key:
            return await work()
        request_hash = hash_request(call, key)
        pending = self.pending.get(request_hash)
        if pending is None:  # no await before it is there: the next request must find it
            pending = self.pending[request_hash] = asyncio.get_running_loop().create_future()
            task = self._answer_pending(
                call.principal.name, request_hash, work, pending, repeatable=repeatable
            )
            self._spawn(task, f"request {request_hash[:8]}")
        answer = await asyncio.shield(pending)
        answer.raise_if_failed()
        return web.json_reply(answer.body, answer.status, answer.headers)

    async def stream_once(
        self, call: ApiCall, work: StreamWork, allowed_origins: Collection[str]
    ) -> web.StreamResponse:
        """Stream what the work records, or what it recorded earlier. It continues when its client
        disconnects."""
        owner, request_hash = call.principal.name, hash_request(call, read_key_header(call))
        stream = self._streams.get(request_hash)
        if stream is None:
            stream = RecordedStream(FrameLog(self._objects, request_hash, self._spawn))
            self._streams[request_hash] = stream
            task = self._record_stream(owner, request_hash, work, stream)
            self._spawn(task, f"stream {request_hash[:8]}")
        head = await stream.wait_for_head()
        head.raise_if_failed()
        frames = stream.log.read_new_frames()
        keepalive = stream.put_keepalive
        return await send_frames(call.request, allowed_origins, frames, head.headers, keepalive)

    async def _record_stream(
        self, owner: str, request_hash: str, work: StreamWork, stream: RecordedStream
    ) -> None:
        try:
            answer = await self._begin(owner, request_hash)
            if answer is not None:
                stream.set_head(answer)
                return
            await work(stream)
            await self._end(owner, request_hash, await stream.wait_for_head())
        except ApiError as error:
            answer = _encode_error(error)
            await self._end(owner, request_hash, answer)
            stream.set_head(answer)
        except BaseException as error:
            stream.set_head(_encode_error(_explain_crash(error)))
            raise
        finally:
            await asyncio.shield(stream.log.end())
            self._streams.pop(request_hash, None)

    async def _begin(
        self, owner: str, request_hash: str, *, repeatable: bool = False
    ) -> StoredAnswer | None:
        """The stored answer, for which a node waits while another one works on it; without one, it
        is recorded that the work begins."""
        begun = msgspec.msgpack.encode(StoredAnswer(0, {}, b"", server=self._instance.token))
        while True:
            # Who adds the row does the work: of all nodes that get the request, one.
            if not repeatable and await self._objects.add(KIND, request_hash, begun, owner=owner):
                return None
            found = await self._objects.get(KIND, request_hash, owner=owner)
            if found is None and repeatable:
                return None
            if found is None or found.created <= time.time() - KEPT_SECONDS:
                # `put` would keep the age of the old answer.
                await self._objects.remove(KIND, request_hash, owner=owner)
                continue
            answer = msgspec.msgpack.decode(found.body, type=StoredAnswer)
            if answer.status:
                return answer
            if not await asyncio.to_thread(self._instance.is_other_running, answer.server):
                break
            if not self._instance.node:
                text = "Another server of this home is working on this request. Try again later."
                error = ApiError(409, text, code="in_progress", headers={"Retry-After": "5"})
                return _encode_error(error)
            await asyncio.sleep(_LOOK_SECONDS)
        lost = ApiError(EFFECTS_STATUS, LOST, code="agent_incomplete", headers=dict(NO_RETRY))
        answer = structs.replace(_encode_error(lost), final=True)
        await self._save(owner, request_hash, answer)
        return answer

    async def _end(self, owner: str, request_hash: str, answer: StoredAnswer) -> None:
        """Store the answer; a failure that may be repeated is forgotten."""
        if answer.final:
            await self._save(owner, request_hash, answer)
        else:
            await self._objects.remove(KIND, request_hash, owner=owner)

    async def _save(self, owner: str, request_hash: str, answer: StoredAnswer) -> None:
        body = msgspec.msgpack.encode(answer)
        await self._objects.put(KIND, request_hash, body, owner=owner, keep_latest=MAX_ANSWERS)

    async def _answer_pending(
        self,
        owner: str,
        request_hash: str,
        work: Work,
        pending: asyncio.Future[StoredAnswer],
        *,
        repeatable: bool,
    ) -> None:
        try:
            answer = await self._begin(owner, request_hash, repeatable=repeatable)
            if answer is None:
                answer = await _collect_answer(work)
                await self._end(owner, request_hash, answer)
            pending.set_result(answer)
        except HermesError as error:  # the work could not begin
            pending.set_exception(error)
            with suppress(HermesError):
                await self._objects.remove(KIND, request_hash, owner=owner)
        except BaseException as error:
            if not pending.done():
                pending.set_exception(_explain_crash(error))
                with suppress(Exception):
                    pending.exception()
            raise
        finally:
            del self.pending[request_hash]


def read_key_header(call: ApiCall) -> str:
    """The idempotency key of a request; empty when it has none."""
    keys = call.request.headers.getall(HEADER, [])
    if not keys:
        return ""
    if len(keys) > 1:
        raise bad_request(f"Send only one {HEADER} header.")
    if not 0 < len(keys[0]) <= MAX_KEY_LENGTH or not keys[0].isprintable():
        raise bad_request(f"{HEADER} allows 1 to {MAX_KEY_LENGTH} printable characters.")
    return keys[0]


async def _collect_answer(work: Work) -> StoredAnswer:
    try:
        response = await work()
    except ApiError as error:
        return _encode_error(error)
    headers = {name: value for name, value in response.headers.items() if name.startswith("X-")}
    body = response.body
    return StoredAnswer(response.status, headers, body if isinstance(body, bytes) else b"")


def _explain_crash(error: BaseException) -> ApiError:
    if isinstance(error, Exception):
        return ApiError(
            500, "The request failed unexpectedly. The log has details.", code="internal"
        )
    return ApiError(503, "The server is stopping.", code="stopping")


def _encode_error(error: ApiError) -> StoredAnswer:
    final = error.final or (error.status < 500 and error.status not in _TEMPORARY)
    return StoredAnswer(error.status, error.headers, error.encode_envelope(), final)
