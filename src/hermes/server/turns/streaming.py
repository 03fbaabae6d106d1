"""A turn whose client reads along: told as it happens, and brought to its end without it too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from hermes.app.session import Session
from hermes.core.events import TurnEnd, TurnEvent, TurnResult
from hermes.server.http import web
from hermes.server.http.route import Call
from hermes.server.turns.image_links import Shown, shown, shown_as
from hermes.server.turns.sessions import Ask, opened
from hermes.server.turns.sse import ClientGone, Stream

if TYPE_CHECKING:
    from hermes.server.app import Server

STOPPED = "The server stopped before this was done. What there is so far is kept in the session."


NEVER = TurnResult("interrupted", error="Interrupted.", error_code="interrupted")


class Teller(Protocol):
    """One protocol's way to tell a turn: events in, bytes out."""

    @property
    def headers(self) -> dict[str, str]: ...

    async def begin(self) -> bytes: ...

    def tell(self, happened: TurnEvent) -> bytes: ...

    async def end(self, result: TurnResult) -> bytes:
        """Called exactly once, whether anybody listens or not."""
        ...


async def follow(
    call: Call, ask: Ask, told_by: Callable[[Session], Teller], held: AsyncExitStack | None = None
) -> web.StreamResponse:
    """`held` is released when the turn has ended, be that after the client has left."""
    async with held or AsyncExitStack() as stack:
        stack.enter_context(call.server.running(call.principal))
        session = await stack.enter_async_context(opened(call.server, call.principal, ask))
        teller = told_by(session)
        events = shown(call.server, session)
        session.submit(ask.prompt)
        stream = Stream(call, teller.headers)
        slow = ended = False
        try:
            first = await teller.begin()
            await stream.open()
            await stream.send(first)
            async for happened in events:
                if isinstance(happened, TurnEnd):
                    ended = True
                    await stream.send(await teller.end(_explained(call.server, happened.result)))
                    break
                if data := teller.tell(happened):
                    await stream.send(data)
        except ClientGone as gone:
            slow = gone.slow
        finally:
            stream.quiet()
            if not ended:
                if not slow:
                    stop(session, events)
                rest = _rest(call.server, events, teller, stack.pop_all())
                call.server.runtime.spawn_task(rest, f"rest of {session.id}")
    return await stream.close()


def stop(session: Session, events: Shown) -> None:
    """Also a turn that is about to begin ends with a TurnEnd."""
    if session.is_starting:
        events.put(TurnEnd(NEVER))
    session.stop()


async def whatever_comes(server: Server, work: Coroutine[None, None, None]) -> None:
    """Done to its end, also when whoever waits for it is cancelled."""
    await asyncio.shield(server.runtime.spawn_task(work, "end of a turn"))


async def _rest(server: Server, events: Shown, teller: Teller, held: AsyncExitStack) -> None:
    """Nobody listens any more."""
    async with held:
        async for happened in events:
            if isinstance(happened, TurnEnd):
                await teller.end(_explained(server, happened.result))
                break
            teller.tell(happened)


async def to_the_end(
    call: Call, ask: Ask, begun: Callable[[Session], None] = lambda _: None
) -> tuple[TurnResult, Session]:
    """A turn whose client waits for the whole of it; cancelling ends the turn."""
    with call.server.running(call.principal):
        async with opened(call.server, call.principal, ask) as session:
            begun(session)
            result = await session.submit(ask.prompt)
    call.server.metrics.turn(result)
    text = shown_as(call.server, session.transcript.taint)(result.text)
    result = structs.replace(result, text=text)
    return _explained(call.server, result), session


def _explained(server: Server, result: TurnResult) -> TurnResult:
    if result.status == "interrupted" and server.stopping.is_set():
        return structs.replace(result, error=STOPPED, error_code="server_stopping")
    if result.error:
        return structs.replace(result, error=server.redact(result.error))
    return result
