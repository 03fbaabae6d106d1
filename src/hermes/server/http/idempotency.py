"""Idempotency keys: the same request under the same key is done once, also after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from msgspec import Struct

from hermes.server.http import web
from hermes.server.http.errors import ApiError, bad
from hermes.server.http.route import Call

HEADER = "Idempotency-Key"
KIND = "replay"
LONGEST = 255
MOST = 2000
_PASSING = frozenset({408, 429})
"""What says nothing about the request itself: the next try may go better."""
KEPT_SECONDS = 24 * 3600.0


class Answered(Struct):
    status: int
    headers: dict[str, str]
    body: bytes
    final: bool = True
    """Kept, and handed out again."""

    def response(self) -> web.Response:
        return web.Response(
            body=self.body,
            status=self.status,
            headers=self.headers,
            content_type="application/json",
        )


async def once(call: Call, work: Callable[[], Awaitable[web.Response]]) -> web.Response:
    """Do the work, or hand out what it gave before. It outlives a client that leaves."""
    keys = call.request.headers.getall(HEADER, [])
    if not keys:
        return await work()
    key = keys[0]
    if len(keys) > 1:
        raise bad(f"More than one {HEADER} header.")
    if not 0 < len(key) <= LONGEST or not key.isprintable():
        raise bad(f"{HEADER} has 1 to {LONGEST} characters, no control characters.")
    identity = _identity(call, key)
    pending = call.server.replays.get(identity)
    if pending is None:
        objects = call.server.runtime.store.objects
        found = await objects.get(KIND, identity, owner=call.principal.name)
        if found is not None and found.created > time.time() - KEPT_SECONDS:
            return msgspec.msgpack.decode(found.body, type=Answered).response()
        if found is not None:  # else the next answer would count as old as this one
            await objects.remove(KIND, identity, owner=call.principal.name)
        pending = call.server.replays.get(identity)  # somebody may have been quicker
    if pending is None:
        pending = asyncio.get_running_loop().create_future()
        call.server.replays[identity] = pending
        call.server.runtime.spawn_task(
            _work(call, identity, work, pending), f"request {identity[:8]}"
        )
    return (await asyncio.shield(pending)).response()


async def _work(
    call: Call,
    identity: str,
    work: Callable[[], Awaitable[web.Response]],
    pending: asyncio.Future[Answered],
) -> None:
    try:
        answered = await _answered(work)
        if answered.final:
            await call.server.runtime.store.objects.put(
                KIND,
                identity,
                msgspec.msgpack.encode(answered),
                owner=call.principal.name,
                keep_latest=MOST,
            )
        pending.set_result(answered)
    except BaseException as error:
        if not pending.done():
            pending.set_exception(error if isinstance(error, Exception) else _stopped())
            with suppress(Exception):
                pending.exception()
        raise
    finally:
        del call.server.replays[identity]


async def _answered(work: Callable[[], Awaitable[web.Response]]) -> Answered:
    try:
        response = await work()
    except ApiError as error:
        final = error.final or (error.status < 500 and error.status not in _PASSING)
        return Answered(error.status, error.headers, error.body(), final)
    headers = {name: value for name, value in response.headers.items() if name.startswith("X-")}
    body = response.body
    return Answered(response.status, headers, body if isinstance(body, bytes) else b"")


def _identity(call: Call, key: str) -> str:
    """Another body under the same key is another request."""
    digest = hashlib.sha256()
    names = [call.request.headers.get(f"X-Hermes-Session-{n}", "") for n in ("Id", "Key")]
    for part in (call.principal.name, call.request.path, key, *names):
        raw = part.encode("utf-8", "surrogateescape")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    digest.update(call.raw)
    return digest.hexdigest()


def _stopped() -> ApiError:
    return ApiError(503, "The server is stopping.", code="stopping")
