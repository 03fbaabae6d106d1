"""Runs the turns of clients, with a single answer or as a stream."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Protocol

from msgspec import Struct, structs

from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.config.api_server import ApiServer
from hermes.core.events import TurnEnd, TurnEvent, TurnResult
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.metrics import Metrics
from hermes.server.http.principals import Principal
from hermes.server.turns.client_events import ClientEvents
from hermes.server.turns.image_links import choose_text_filter
from hermes.server.turns.outcome import build_turn_headers, raise_if_unusable
from hermes.server.turns.sessions import ClientSessions
from hermes.server.turns.slots import TurnSlots
from hermes.server.turns.sse import ClientGone, EventStream
from hermes.server.turns.turn_request import TurnRequest

STOPPED = "The server stopped before the turn ended. The work so far is kept in the session."


class StreamEncoder(Protocol):
    """Encodes the events of one turn in one protocol."""

    async def encode_start(self, session: Session) -> bytes: ...

    def encode_event(self, event: TurnEvent) -> bytes: ...

    async def encode_end(self, result: TurnResult) -> bytes:
        """Called exactly once, even if the client has disconnected."""


class TurnRunner:
    """Runs turns within the server's limits, each in a session of its principal."""

    def __init__(
        self, runtime: Runtime, settings: ApiServer, metrics: Metrics, redact: Callable[[str], str]
    ) -> None:
        self._spawn = runtime.spawn_task
        self._settings = settings
        self.metrics = metrics
        self.redact = redact
        """Removes what clients must not see from an error message."""
        self.slots = TurnSlots(settings.concurrent_runs)
        self.sessions = ClientSessions(runtime, settings.toolsets)

    async def run_turn(
        self, principal: Principal, request: TurnRequest
    ) -> tuple[TurnResult, Session]:
        """Run a turn to its end; cancelling stops the turn."""
        with self.slots.reserve_slot(principal):
            async with self.sessions.open_session(principal, request) as session:
                result = await session.submit(request.prompt)
        self.metrics.count_turn(result)
        text = choose_text_filter(self._settings.images, session.transcript.taint)(result.text)
        return self._explain_result(structs.replace(result, text=text)), session

    async def answer_turn(
        self, call: ApiCall, request: TurnRequest, build: Callable[[TurnResult], Struct]
    ) -> web.Response:
        """Run a turn and respond with what `build` makes of its result."""
        result, session = await self.run_turn(call.principal, request)
        headers = build_turn_headers(session.id, request, result)
        raise_if_unusable(result, headers)
        return json_response(build(result), headers=headers)

    async def stream_turn(
        self,
        call: ApiCall,
        request: TurnRequest,
        encoder: StreamEncoder,
        resources: AsyncExitStack | None = None,
    ) -> web.StreamResponse:
        """Run a turn and stream its events. If the client disconnects, the turn is stopped; if it
        stops reading, the turn continues. `resources` are released when the turn has ended."""
        async with resources or AsyncExitStack() as stack:
            stack.enter_context(self.slots.reserve_slot(call.principal))
            opening = self.sessions.open_session(call.principal, request)
            session = await stack.enter_async_context(opening)
            events = self.follow_events(session)
            session.submit(request.prompt)
            headers = build_turn_headers(session.id, request)
            stream = EventStream(call.request, self._settings.cors_origins, headers)
            is_slow = ended = False
            try:
                first = await encoder.encode_start(session)
                await stream.open()
                await stream.send(first)
                async for event in events:
                    if isinstance(event, TurnEnd):
                        ended = True
                        await stream.send(await self._encode_end(encoder, event.result))
                        break
                    if data := encoder.encode_event(event):
                        await stream.send(data)
            except ClientGone as gone:
                is_slow = gone.is_slow
            finally:
                stream.stop_keepalive()
                if not ended:
                    if not is_slow:
                        events.stop_turn()
                    unread = self._finish_unread(events, encoder, stack.pop_all())
                    self._spawn(unread, f"rest of {session.id}")
        return await stream.close()

    def follow_events(self, session: Session) -> ClientEvents:
        """The events of the session from now on, as its client may see them."""
        return ClientEvents(session, keep_images=self._settings.images == "keep")

    async def _finish_unread(
        self, events: ClientEvents, encoder: StreamEncoder, resources: AsyncExitStack
    ) -> None:
        """Follow a turn to its end without its client, so that the encoder can store it."""
        async with resources:
            async for event in events:
                if isinstance(event, TurnEnd):
                    await self._encode_end(encoder, event.result)
                    break
                encoder.encode_event(event)

    async def _encode_end(self, encoder: StreamEncoder, result: TurnResult) -> bytes:
        self.metrics.count_turn(result)
        return await encoder.encode_end(self._explain_result(result))

    def _explain_result(self, result: TurnResult) -> TurnResult:
        if result.status == "interrupted" and self.slots.closed:
            return structs.replace(result, error=STOPPED, error_code="server_stopping")
        if result.error:
            return structs.replace(result, error=self.redact(result.error))
        return result
