"""Runs the turns of clients, with a single answer or as a stream."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Protocol, TypeAlias

from msgspec import Struct, structs

from hermes.app.runtime import Runtime
from hermes.app.session import Session
from hermes.config.api_server import ApiServer
from hermes.core.events import TurnEnd, TurnEvent, TurnResult
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.metrics import Metrics
from hermes.server.http.tenant_access import TenantAccess
from hermes.server.requests.turn_request import TurnRequest, join_texts
from hermes.server.turns.client_events import ClientEvents
from hermes.server.turns.client_turn import ClientTurn
from hermes.server.turns.frame_log import FrameLog
from hermes.server.turns.idempotency import IdempotencyKeys, RecordedStream, read_key_header
from hermes.server.turns.image_links import choose_text_filter
from hermes.server.turns.outcome import (
    STOPPING_CODE,
    build_turn_headers,
    explain_turn,
    raise_if_unusable,
)
from hermes.server.turns.repeats import FailedRequests, TurnWatch
from hermes.server.turns.server_instance import ServerInstance
from hermes.server.turns.sessions import ClientSessions
from hermes.server.turns.slots import TurnSlots
from hermes.server.turns.sse import ClientGone, EventStream
from hermes.server.turns.stored_runs import CallMarks, StoredMarks

STOPPED = "The server stopped before the turn ended. The work so far is kept in the session."
HEAD_SECONDS = 10.0
"""How long the head of a stream waits for the first thing to send: a failure before that is
answered with its status."""
FIRST_WAIT_SECONDS = 4.0
"""A longer wait for a provider's rate limit is the client's: its answer would miss the head."""
SendFrames: TypeAlias = Callable[[bytes], Awaitable[None]]
OpenSink: TypeAlias = Callable[[dict[str, str]], Awaitable[SendFrames]]
"""Sends the head of a stream with these headers and returns what sends its frames."""


class StreamEncoder(Protocol):
    """Encodes the events of one turn in one protocol."""

    @property
    def log(self) -> FrameLog | None:
        """Where the frames are stored; None: nowhere."""

    async def encode_start(self, session: Session) -> bytes: ...

    def encode_event(self, event: TurnEvent) -> bytes: ...

    def encode_keepalive(self) -> bytes: ...

    async def encode_end(self, result: TurnResult) -> bytes:
        """Called exactly once, even if the client has disconnected."""


class TurnRunner:
    """Runs turns within the server's limits, each in a session of its principal."""

    def __init__(
        self,
        runtime: Runtime,
        settings: ApiServer,
        metrics: Metrics,
        instance: ServerInstance,
        redact: Callable[[str], str],
        tenants: TenantAccess | None = None,
    ) -> None:
        """`tenants`: of the cluster that this server is a node of."""
        self._spawn = runtime.spawn_task
        self._settings = settings
        self.metrics = metrics
        self.redact = redact
        """Removes what clients must not see from an error message."""
        objects = runtime.store.objects
        self.marks: CallMarks = StoredMarks(objects)
        self.tenants = tenants
        self.slots = TurnSlots(settings.concurrent_runs, tenants)
        self.sessions = ClientSessions(runtime, settings.toolsets, tenants)
        self.failures = FailedRequests(objects, self._spawn, instance)
        self.idempotency = IdempotencyKeys(objects, self._spawn, instance)

    async def run_turn(self, call: ApiCall, request: TurnRequest) -> tuple[TurnResult, Session]:
        """Run a turn to its end; cancelling stops the turn."""
        if not read_key_header(call):
            await self.failures.raise_if_repeated(call, request)
        async with (
            self.slots.reserve_slot(call.principal),
            self.sessions.open_session(call.principal, request) as session,
        ):
            watch = self.failures.watch_turn(call, request, session.id, session.agent.tools)
            turn = self._begin_turn(call, session, request)
            try:
                result = await turn.run_to_end(watch.note_event)
            except asyncio.CancelledError:
                lost = TurnResult("interrupted", effects=True)
                watch.note_end(lost, disconnected=not self.slots.closed)
                raise
            watch.note_end(result)
        self.metrics.count_turn(result)
        await self._note_answer(call, request, session.id, result)
        text = choose_text_filter(self._settings.images, session.transcript.taint)(result.text)
        return structs.replace(result, text=text), session

    async def answer_turn(
        self, call: ApiCall, request: TurnRequest, build: Callable[[TurnResult], Struct]
    ) -> web.Response:
        """Run a turn and respond with what `build` makes of its result."""
        result, session = await self.run_turn(call, request)
        headers = build_turn_headers(session.id, request, result)
        raise_if_unusable(result, request, headers)
        return json_response(build(result), headers=headers)

    async def stream_turn(
        self,
        call: ApiCall,
        request: TurnRequest,
        encoder: StreamEncoder,
        resources: AsyncExitStack | None = None,
    ) -> web.StreamResponse:
        """Run a turn and stream its events. If the client disconnects, the turn is stopped; if it
        stops reading, the turn continues. With an idempotency key it continues in any case.
        `resources` are released when the turn has ended."""
        async with resources or AsyncExitStack() as stack:
            if read_key_header(call):
                return await self._stream_recorded(call, request, encoder, stack.pop_all())
            await self.failures.raise_if_repeated(call, request)
            stream: EventStream | None = None

            async def open_sink(headers: dict[str, str]) -> SendFrames:
                nonlocal stream
                origins = self._settings.cors_origins
                stream = EventStream(call.request, origins, headers, streamed.encode_keepalive)
                await stream.open()
                return stream.send

            streamed = await self._open_turn(call, request, encoder, stack)
            is_slow = False
            try:
                await streamed.follow(open_sink)
            except ClientGone as gone:
                is_slow = gone.is_slow
            finally:
                if stream is not None:
                    stream.stop_keepalive()
                if not streamed.has_ended:
                    if not is_slow:
                        streamed.stop(disconnected=not self.slots.closed)
                    unread = _finish_unread(streamed, stack.pop_all())
                    self._spawn(unread, f"rest of {streamed.session_id}")
        assert stream is not None
        return await stream.close()

    async def _stream_recorded(
        self, call: ApiCall, request: TurnRequest, encoder: StreamEncoder, resources: AsyncExitStack
    ) -> web.StreamResponse:
        """Stream a turn that has an idempotency key, or replay it."""

        async def record_turn(recorded: RecordedStream) -> None:
            async def open_sink(headers: dict[str, str]) -> SendFrames:
                recorded.open(headers, streamed.encode_keepalive)
                return recorded.send

            async with resources.pop_all() as stack:
                streamed = await self._open_turn(call, request, encoder, stack)
                await streamed.follow(open_sink)

        async with resources:  # a replay needs none of them
            return await self.idempotency.stream_once(
                call, record_turn, self._settings.cors_origins
            )

    async def _open_turn(
        self, call: ApiCall, request: TurnRequest, encoder: StreamEncoder, stack: AsyncExitStack
    ) -> "_StreamedTurn":
        head_deadline = asyncio.get_running_loop().time() + HEAD_SECONDS
        await stack.enter_async_context(self.slots.reserve_slot(call.principal))
        opening = self.sessions.open_session(call.principal, request)
        session = await stack.enter_async_context(opening)
        watch = self.failures.watch_turn(call, request, session.id, session.agent.tools)
        turn = self._begin_turn(call, session, request)

        async def note_result(result: TurnResult) -> None:
            self.metrics.count_turn(result)
            await self._note_answer(call, request, session.id, result)

        return _StreamedTurn(turn, request, encoder, watch, note_result, head_deadline)

    async def _note_answer(
        self, call: ApiCall, request: TurnRequest, session_id: str, result: TurnResult
    ) -> None:
        conversations = self.sessions.conversations
        await conversations.note_answer(call.principal.name, request, session_id, result)

    def _begin_turn(self, call: ApiCall, session: Session, request: TurnRequest) -> ClientTurn:
        events = self.follow_events(session)
        attempts = self.failures.describe_attempts(call.principal.name, request)
        host = session.host
        host.instructions = join_texts(host.instructions, attempts)
        limits = structs.replace(host.agent.limits, first_wait=FIRST_WAIT_SECONDS)
        host.agent = structs.replace(host.agent, limits=limits)
        session.submit(request.prompt)
        return ClientTurn(session, events, request.answer_format, self._explain_result)

    def follow_events(self, session: Session) -> ClientEvents:
        """The events of the session from now on, as its client may see them."""
        return ClientEvents(session, keep_images=self._settings.images == "keep")

    def _explain_result(self, result: TurnResult) -> TurnResult:
        if result.status == "interrupted" and self.slots.closed:
            return structs.replace(result, error=STOPPED, error_code=STOPPING_CODE)
        if result.error:
            return structs.replace(result, error=self.redact(explain_turn(result)))
        return result


class _StreamedTurn:
    """A turn whose events are sent as frames. The head waits for the first of them."""

    def __init__(
        self,
        turn: ClientTurn,
        request: TurnRequest,
        encoder: StreamEncoder,
        watch: TurnWatch,
        note_result: Callable[[TurnResult], Awaitable[None]],
        head_deadline: float,
    ) -> None:
        self._turn = turn
        self._request = request
        self._encoder = encoder
        self._watch = watch
        self._note_result = note_result
        self._disconnected = False
        self._result: TurnResult | None = None
        self._head_deadline = head_deadline
        self._is_silent = False
        """Whether all frames are sent and the next event is waited for."""

    @property
    def session_id(self) -> str:
        return self._turn.session.id

    @property
    def has_ended(self) -> bool:
        return self._result is not None

    def stop(self, *, disconnected: bool) -> None:
        self._disconnected = disconnected
        self._turn.stop()

    async def follow(self, open_sink: OpenSink) -> None:
        """Send the turn to its end; an ApiError if it failed before there was anything to send."""
        data = self._record_frames(await self._encoder.encode_start(self._turn.session))
        data += await self._hold_head()
        if self._result is not None:
            headers = build_turn_headers(self.session_id, self._request, self._result)
            raise_if_unusable(self._result, self._request, headers)
        send = await open_sink(build_turn_headers(self.session_id, self._request))
        while data or self._result is None:
            if self._encoder.log is not None:  # a client sees nothing that a crash could take back
                await self._encoder.log.flush()
            await send(data)
            data = await self.encode_next() if self._result is None else b""

    async def encode_next(self) -> bytes:
        """The frames of the next event."""
        self._is_silent = True
        event = await anext(self._turn)
        self._is_silent = False
        return await self._encode_event(event)

    def encode_keepalive(self) -> bytes:
        """What fills a silence; nothing while frames are on their way, whose numbers come first."""
        return self._encoder.encode_keepalive() if self._is_silent else b""

    async def _hold_head(self) -> bytes:
        """The frames of the first event that has any, or of the end; nothing if it takes too
        long."""
        data = b""
        while not data and self._result is None:
            try:
                async with asyncio.timeout_at(self._head_deadline):
                    event = await anext(self._turn)
            except TimeoutError:
                break
            data = await self._encode_event(event)
        return data

    async def _encode_event(self, event: TurnEvent) -> bytes:
        if not isinstance(event, TurnEnd):
            self._watch.note_event(event)
            return self._record_frames(self._encoder.encode_event(event))
        self._result = event.result
        self._watch.note_end(event.result, disconnected=self._disconnected)
        await self._note_result(event.result)
        return self._record_frames(await self._encoder.encode_end(event.result))

    def _record_frames(self, data: bytes) -> bytes:
        if self._encoder.log is not None:
            self._encoder.log.put(data)
        return data


async def _finish_unread(streamed: _StreamedTurn, resources: AsyncExitStack) -> None:
    """Follow a turn to its end without its client, so that the encoder can store it."""
    async with resources:
        while not streamed.has_ended:
            await streamed.encode_next()
