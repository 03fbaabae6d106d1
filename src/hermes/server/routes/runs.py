"""/v1/runs: start work, look at it, follow it, answer it, stop it."""

from __future__ import annotations

import secrets
import time
from asyncio import gather
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated

from msgspec import Meta, Struct

from hermes.server.http import web
from hermes.server.http.errors import ApiError, bad, missing
from hermes.server.http.idempotency import once
from hermes.server.http.request_schemas import Input, Items
from hermes.server.http.response_schemas import RunAnswered, RunStarted, RunState, RunTold
from hermes.server.http.route import Call, Route
from hermes.server.turns import runs
from hermes.server.turns.response_input import read_history, read_input
from hermes.server.turns.runs import CHOICES, Run, State
from hermes.server.turns.sessions import LONGEST_NAME, Ask, session_headers, speakable, stored
from hermes.server.turns.sse import ClientGone, Stream
from hermes.server.turns.stored_responses import load_kept


class RunRequest(Struct):
    input: Input
    instructions: str | None = None
    session_id: str | None = None
    conversation_history: Items | None = None
    previous_response_id: str | None = None
    model: str | None = None


class ApprovalRequest(Struct):
    choice: Annotated[str, Meta(extra_json_schema={"enum": list(CHOICES)})]
    approval_id: str | None = None


class SteerRequest(Struct):
    text: Annotated[str, Meta(min_length=1, max_length=100_000)]


async def start(call: Call) -> web.StreamResponse:
    return await once(call, lambda: _start(call))


async def _start(call: Call) -> web.Response:
    body = call.json(RunRequest)
    given = read_input(body.input)
    told = read_history(body.conversation_history or [], "conversation_history")
    before = (*told.before, *given.before)
    instructions = body.instructions or ""
    headers = session_headers(call)
    session = _session(body.session_id or "") or headers.session
    if session:
        await stored(call.server, call.principal, session)
    chain = f"api-{secrets.token_hex(16)}"
    if body.previous_response_id:
        kept = await load_kept(call, body.previous_response_id)
        if kept is None:
            raise missing("response", body.previous_response_id[:80])
        before = (*kept.transcript, *before)
        instructions = instructions or kept.instructions
        chain = kept.session or chain
    if before and session:  # the past that is told is the one that counts
        chain, session = session, ""
    ask = Ask(
        given.prompt,
        before,
        "\n\n".join(filter(None, (instructions, told.system, given.system))),
        session=session,
        session_key=headers.key,
        chain=chain,
    )
    now = time.time()
    state = State(
        f"run_{secrets.token_hex(16)}",
        ask.session or chain,
        body.model or call.server.model,
        now,
        now,
        server=call.server.token,
    )
    run = Run(call.server, call.principal, ask, state)
    async with AsyncExitStack() as held:
        held.enter_context(call.server.running(call.principal))
        await gather(
            runs.save(call.server, run.owner, state), runs.forget_old(call.server, run.owner)
        )
        call.server.runs[state.run_id] = run
        call.server.runtime.spawn_task(run.work(held.pop_all()), f"run {state.run_id}")
    return call.answer({"run_id": state.run_id, "status": "started"}, 202)


def _session(identity: str) -> str:
    if len(identity) > LONGEST_NAME or not speakable(identity):
        raise bad(
            f"session_id has at most {LONGEST_NAME} characters, no control characters.",
            "session_id",
        )
    return identity


async def status(call: Call) -> web.StreamResponse:
    return call.answer((await _found(call)).shown())


async def events(call: Call) -> web.StreamResponse:
    state = await _found(call)
    after = call.request.headers.get("Last-Event-ID", "0").strip() or "0"
    if not after.isascii() or not after.isdigit():
        raise bad("Last-Event-ID must be the id of an event of this run.")
    stream = Stream(call)
    await stream.open()
    try:
        async for data in _told(call, state.run_id, after):
            await stream.send(data)
    except ClientGone:
        pass
    finally:
        stream.quiet()
    return await stream.close()


async def stop(call: Call) -> web.StreamResponse:
    state = await _found(call)
    run = _going(call, state)
    if run is not None:
        await run.stop()
        state = run.shown
    return call.answer({"run_id": state.run_id, "status": state.status})


async def approve(call: Call) -> web.StreamResponse:
    body = call.json(ApprovalRequest)
    state = await _found(call)
    choice = next((c for c in CHOICES if c == body.choice), None)
    if choice is None:
        raise bad(f"choice must be one of {', '.join(CHOICES)}.", "choice")
    run = _going(call, state)
    if run is None:
        raise ApiError(409, "This run has ended.", code="nothing_to_approve")
    told = await run.answer(choice, body.approval_id or "")
    return call.answer({"run_id": state.run_id, **told})


async def steer(call: Call) -> web.StreamResponse:
    body = call.json(SteerRequest)
    state = await _found(call)
    run = _going(call, state)
    if run is None:
        raise ApiError(409, "This run has ended.", code="not_running")
    await run.steer(body.text)
    return call.answer({"run_id": state.run_id, "status": state.status})


def _going(call: Call, state: State) -> Run | None:
    """None: it has ended."""
    run = call.server.runs.get(state.run_id)
    if run is None and state.status not in runs.ENDED:
        raise ApiError(409, "Another server of this home runs it: ask there.", code="elsewhere")
    return run


def _told(call: Call, run_id: str, after: str) -> AsyncIterator[bytes]:
    return runs.events(call.server, call.principal.name, run_id, int(after[:18]))


async def _found(call: Call) -> State:
    identity = call.names["run_id"]
    state = await runs.find(call.server, call.principal.name, identity)
    if state is None:
        raise missing("run", identity)
    return state


_ONE = "/v1/runs/{run_id}"
_THERE = (400, 404)
ROUTES = (
    Route(
        "POST",
        "/v1/runs",
        start,
        "runs",
        "Start work that goes on without a connection.",
        scope="runs",
        body=RunRequest,
        status=202,
        errors=(400, 403, 404, 413, 415, 429),
        answer=RunStarted,
        headers=("Idempotency-Key", "X-Hermes-Session-Id", "X-Hermes-Session-Key"),
    ),
    Route(
        "GET",
        _ONE,
        status,
        "run_status",
        "How it goes.",
        scope="runs",
        errors=_THERE,
        answer=RunState,
    ),
    Route(
        "GET",
        f"{_ONE}/events",
        events,
        "run_events",
        "What happens in it, from the beginning or from Last-Event-ID on.",
        scope="runs",
        errors=_THERE,
        streams=True,
        media="text/event-stream",
        headers=("Last-Event-ID",),
    ),
    Route(
        "POST",
        f"{_ONE}/stop",
        stop,
        "run_stop",
        "Interrupt it.",
        scope="runs",
        errors=(*_THERE, 409),
        answer=RunTold,
    ),
    Route(
        "POST",
        f"{_ONE}/approval",
        approve,
        "run_approval",
        "Answer the approval it waits for.",
        scope="approve",
        body=ApprovalRequest,
        errors=(400, 404, 409, 413, 415),
        answer=RunAnswered,
    ),
    Route(
        "POST",
        f"{_ONE}/steer",
        steer,
        "run_steer",
        "Give it guidance while it works.",
        scope="runs",
        body=SteerRequest,
        errors=(400, 404, 409, 413, 415),
        answer=RunTold,
    ),
)
