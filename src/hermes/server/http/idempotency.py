"""Idempotency keys: the same request with the same key runs once, also across restarts."""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec
from msgspec import Struct

from hermes.app.titles import SpawnTask
from hermes.core.store import Objects
from hermes.server.http import web
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError, bad_request

HEADER = "Idempotency-Key"
KIND = "replay"
MAX_KEY_LENGTH = 255
MAX_ANSWERS = 2000
KEPT_SECONDS = 24 * 3600.0
_TEMPORARY = frozenset({408, 429})
"""Statuses that a retry may not get again."""
Work: TypeAlias = Callable[[], Awaitable[web.Response]]


class StoredAnswer(Struct):
    """The answer to a request with an idempotency key, as retries get it."""

    status: int
    headers: dict[str, str]
    body: bytes
    final: bool = True
    """Whether the answer is stored for retries."""


class IdempotencyKeys:
    """Runs requests once per key; answers are stored for a day."""

    def __init__(self, objects: Objects, spawn: SpawnTask) -> None:
        self._objects = objects
        self._spawn = spawn
        self.pending: dict[str, asyncio.Future[StoredAnswer]] = {}

    async def run_once(self, call: ApiCall, work: Work) -> web.Response:
        """Do the work, or repeat its earlier answer. With a key, the work continues when its client
        disconnects."""
        key = _read_key_header(call)
        if not key:
            return await work()
        request_hash = _hash_request(call, key)
        pending = self.pending.get(request_hash)
        if pending is None:  # no await before it is there: the next request must find it
            pending = self.pending[request_hash] = asyncio.get_running_loop().create_future()
            task = self._answer_pending(call.principal.name, request_hash, work, pending)
            self._spawn(task, f"request {request_hash[:8]}")
        answer = await asyncio.shield(pending)
        return web.json_reply(answer.body, answer.status, answer.headers)

    async def _find_answer(self, owner: str, request_hash: str) -> StoredAnswer | None:
        found = await self._objects.get(KIND, request_hash, owner=owner)
        if found is None:
            return None
        if found.created > time.time() - KEPT_SECONDS:
            return msgspec.msgpack.decode(found.body, type=StoredAnswer)
        # `put` would keep the age of the old answer.
        await self._objects.remove(KIND, request_hash, owner=owner)
        return None

    async def _answer_pending(
        self, owner: str, request_hash: str, work: Work, pending: asyncio.Future[StoredAnswer]
    ) -> None:
        try:
            answer = await self._find_answer(owner, request_hash)
            if answer is None:
                answer = await _collect_answer(work)
                if answer.final:
                    body = msgspec.msgpack.encode(answer)
                    await self._objects.put(
                        KIND, request_hash, body, owner=owner, keep_latest=MAX_ANSWERS
                    )
            pending.set_result(answer)
        except BaseException as error:
            if not pending.done():
                stopping = ApiError(503, "The server is stopping.", code="stopping")
                pending.set_exception(error if isinstance(error, Exception) else stopping)
                with suppress(Exception):
                    pending.exception()
            raise
        finally:
            del self.pending[request_hash]


def _read_key_header(call: ApiCall) -> str:
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
        final = error.final or (error.status < 500 and error.status not in _TEMPORARY)
        return StoredAnswer(error.status, error.headers, error.encode_envelope(), final)
    headers = {name: value for name, value in response.headers.items() if name.startswith("X-")}
    body = response.body
    return StoredAnswer(response.status, headers, body if isinstance(body, bytes) else b"")


def _hash_request(call: ApiCall, key: str) -> str:
    """A hash that differs for another body, path, session or principal."""
    digest = hashlib.sha256()
    names = [call.request.headers.get(f"X-Hermes-Session-{n}", "") for n in ("Id", "Key")]
    for part in (call.principal.name, call.request.path, key, *names):
        raw = part.encode("utf-8", "surrogateescape")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    digest.update(call.body)
    return digest.hexdigest()
