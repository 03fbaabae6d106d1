"""/v1/runs: start, read, follow, approve, steer and stop runs."""

import secrets
from functools import partial
from typing import Annotated, Literal, get_args

from msgspec import Meta, Struct

from hermes.core.events import Answer
from hermes.server.http import web
from hermes.server.http.call import ApiCall, check_name, json_response
from hermes.server.http.errors import ApiError, bad_request, not_found
from hermes.server.http.request_schemas import HistoryItems, TurnInput
from hermes.server.nodes.run_orders import OrderResult, RunOrder
from hermes.server.requests.turn_input import parse_history, parse_input
from hermes.server.requests.turn_request import TurnRequest, join_texts
from hermes.server.route import TURN_HEADERS, Route, RouteServices
from hermes.server.runs.runs import Run, RunRegistry
from hermes.server.turns.idempotency import read_key_header
from hermes.server.turns.repeats import hash_request
from hermes.server.turns.sse import send_frames
from hermes.server.turns.stored_runs import ApprovalAnswer, RunObject, StoredRun

_CHOICES: tuple[Answer, ...] = get_args(Answer)
_PASSED_ON = ("Authorization", "x-api-key", "X-Hermes-Node")
"""Headers with which this node may ask the one that works on a run."""


class RunRequest(Struct):
    input: TurnInput
    instructions: str | None = None
    session_id: str | None = None
    conversation_history: HistoryItems | None = None
    previous_response_id: str | None = None
    model: str | None = None


class ApprovalRequest(Struct):
    choice: Annotated[str, Meta(extra_json_schema={"enum": list(_CHOICES)})]
    approval_id: str | None = None


class SteerRequest(Struct):
    text: Annotated[str, Meta(min_length=1, max_length=100_000)]


class RunStarted(Struct):
    run_id: str
    status: Literal["started"]


class RunStatusAnswer(Struct):
    run_id: str
    status: str


async def start_run(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Start a run, which needs no open connection."""

    async def start() -> web.Response:
        body = call.decode_body(RunRequest)
        request = await _parse_request(call, services, body)
        model = body.model or services.model
        run_id = await services.runs.start_run(call.principal, request, model, key_hash)
        return json_response(RunStarted(run_id, "started"), 202)

    key = read_key_header(call)
    key_hash = hash_request(call, key) if key else ""
    return await services.turns.idempotency.run_once(call, start, repeatable=True)


async def _parse_request(call: ApiCall, services: RouteServices, body: RunRequest) -> TurnRequest:
    input_system, before, prompt = parse_input(body.input)
    history = body.conversation_history or []
    history_system, past = parse_history(history, "conversation_history")
    past += before
    instructions = body.instructions or ""
    session, session_key = call.read_session_headers()
    session = check_name(body.session_id or "", "session_id", "session_id") or session
    if session:
        await services.turns.sessions.load_past(call.principal, session)  # 404 if not owned
    new_session = f"api-{secrets.token_hex(16)}"
    if body.previous_response_id:
        previous = await services.responses.load(call.principal.name, body.previous_response_id)
        if previous is None:
            raise not_found("response", body.previous_response_id[:80])
        past = (*previous.transcript, *past)
        instructions = instructions or previous.instructions
        new_session = previous.session or new_session
    if past and session:  # the history in the request replaces the stored one
        new_session, session = session, ""
    return TurnRequest(
        prompt,
        past,
        join_texts(instructions, history_system, input_system),
        session=session,
        session_key=session_key,
        new_session=new_session,
    )


async def get_run(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the state of a run."""
    return json_response((await _find_run(call, services.runs)).build_run_object())


async def stream_run_events(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Stream the events of a run, from the start or after Last-Event-ID."""
    state = await _find_run(call, services.runs)
    after = call.request.headers.get("Last-Event-ID", "0").strip() or "0"
    if not after.isascii() or not after.isdigit():
        raise bad_request("Last-Event-ID must be the id of an event.")
    sent = call.request.headers
    headers = {name: sent[name] for name in _PASSED_ON if name in sent}
    frames = services.runs.read_frames(call.principal.name, state.run_id, int(after[:18]), headers)
    return await send_frames(call.request, services.settings.cors_origins, frames)


async def stop_run(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Stop a run."""
    state = await _find_run(call, services.runs)
    orders, owner = services.run_orders, call.principal.name
    if orders is not None and not state.has_ended and await orders.cancel_waiting(owner, state):
        return json_response(RunStatusAnswer(state.run_id, state.status))
    if result := await _send_order(call, services, state, RunOrder(state.run_id, "stop")):
        return json_response(RunStatusAnswer(state.run_id, result.run_status))
    if run := _find_active(services.runs, state):
        await run.cancel()
        state = run.saved
    return json_response(RunStatusAnswer(state.run_id, state.status))


async def answer_approval(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Answer an approval that a run is waiting for."""
    body = call.decode_body(ApprovalRequest)
    state = await _find_run(call, services.runs)
    choice = next((c for c in _CHOICES if c == body.choice), None)
    if choice is None:
        raise bad_request(f"choice must be one of {', '.join(_CHOICES)}.", "choice")
    saves, approval_id = call.principal.may_save_rules, body.approval_id or ""
    order = RunOrder(state.run_id, "approve", choice=choice, approval_id=approval_id, saves=saves)
    if result := await _send_order(call, services, state, order):
        return json_response(result.approval)
    run = _require_active(services.runs, state, "nothing_to_approve")
    return json_response(await run.answer_approval(choice, approval_id, saves=saves))


async def steer_run(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Send a run guidance while it is running."""
    body = call.decode_body(SteerRequest)
    state = await _find_run(call, services.runs)
    order = RunOrder(state.run_id, "steer", text=body.text)
    if result := await _send_order(call, services, state, order):
        return json_response(RunStatusAnswer(state.run_id, result.run_status))
    await _require_active(services.runs, state, "not_running").steer(body.text)
    return json_response(RunStatusAnswer(state.run_id, state.status))


async def _find_run(call: ApiCall, runs: RunRegistry) -> StoredRun:
    run_id = call.path_params["run_id"]
    state = await runs.find_run(call.principal.name, run_id)
    if state is None:
        raise not_found("run", run_id)
    return state


async def _send_order(
    call: ApiCall, services: RouteServices, state: StoredRun, order: RunOrder
) -> OrderResult | None:
    """Have the order carried out by the node that works on the run; None: that is this one, or the
    run has ended."""
    orders, is_ours = services.run_orders, state.run_id in services.runs.active
    if orders is None or is_ours or state.has_ended:
        return None
    return await orders.send_order(call.principal.name, state, order)


def _find_active(runs: RunRegistry, state: StoredRun) -> Run | None:
    """The run, or None if it has ended; 409 if another server works on it."""
    run = runs.active.get(state.run_id)
    if run is None and not state.has_ended:
        text = "This run belongs to another server of this home; send the request there."
        raise ApiError(409, text, code="elsewhere")
    return run


def _require_active(runs: RunRegistry, state: StoredRun, code: str) -> Run:
    run = _find_active(runs, state)
    if run is None:
        raise ApiError(409, "This run has ended.", code=code)
    return run


_PATH = "/v1/runs/{run_id}"
_route = partial(Route, scope="runs")
ROUTES = (
    _route(
        "POST",
        "/v1/runs",
        start_run,
        "runs",
        RunStarted,
        RunRequest,
        status=202,
        errors=(404,),
        headers=TURN_HEADERS,
    ),
    _route("GET", _PATH, get_run, "run_status", RunObject),
    _route(
        "GET",
        f"{_PATH}/events",
        stream_run_events,
        "run_events",
        streams=True,
        media="text/event-stream",
        headers=("Last-Event-ID",),
    ),
    _route("POST", f"{_PATH}/stop", stop_run, "run_stop", RunStatusAnswer, errors=(409,)),
    Route(
        "POST",
        f"{_PATH}/approval",
        answer_approval,
        "run_approval",
        ApprovalAnswer,
        ApprovalRequest,
        scope="approve",
        errors=(409,),
    ),
    _route(
        "POST",
        f"{_PATH}/steer",
        steer_run,
        "run_steer",
        RunStatusAnswer,
        SteerRequest,
        errors=(409,),
    ),
)
