"""The end of a turn as statuses, headers, fields and errors that all protocols share."""

from msgspec import structs

from hermes.core.events import TurnResult
from hermes.server.http.errors import RETRY_AFTER, ApiError
from hermes.server.http.response_schemas import IncompleteTurn
from hermes.server.requests.turn_request import TurnRequest

_INCOMPLETE = (502, "agent_incomplete")
_STATUSES = {
    "rate_limited": (429, "rate_limit_exceeded"),
    "context_overflow": (400, "context_length_exceeded"),
    "payload_too_large": (400, "context_length_exceeded"),
    "billing": (429, "insufficient_quota"),
    "budget": (429, "insufficient_quota"),
    "invalid_output": (502, "invalid_output"),
    "internal": (500, "internal"),
    "unavailable": (503, "unavailable"),
}
"""The status and the code of a failure that clients can act on."""
_FINAL = frozenset(
    "auth billing budget model_not_found content_policy context_overflow payload_too_large "
    "bad_request tls".split()
)
"""Failures that the same request meets again."""
_INVALID_PROMPT = frozenset({"auth", "bad_request", "content_policy", "model_not_found", "tls"})
_TOO_LONG = frozenset({"context_overflow", "payload_too_large"})
_OUTGROWN = "The conversation became too long for the model after tools had run."
"""Not in the provider's words, in which programs recognise that they shall shorten the conversation
and ask again."""
_TRUNCATED = frozenset({"output_truncated", "thinking_exhausted"})
STOPPING_CODE = "server_stopping"
"""The error code of a turn that the end of the server interrupted."""
CHECK_EFFECTS = "The work so far is kept in the session. Check what was done before you ask again."
"""What to do after a failed turn whose tools have changed something."""
EFFECTS_STATUS = 424
"""The status of a failed turn that must not be repeated: its tools have changed something."""
DEFAULT_RETRY_SECONDS = 30.0
INCOMPLETE_HEADERS = {"X-Hermes-Completed": "false", "X-Hermes-Partial": "true"}
NO_RETRY = {"X-Should-Retry": "false"}
"""Official SDKs obey this header; other clients go by the status."""


def explain_failure(result: TurnResult, advice: str) -> str:
    """The error as the client's user needs it: where tools have changed something, `advice` takes
    the place of sending the message again."""
    return f"{result.cause} {advice}" if result.effects and result.cause else result.error


def explain_turn(result: TurnResult) -> str:
    """The error of a turn whose client waits for it, and may ask again by itself."""
    if result.effects and result.error_code in _TOO_LONG:
        return f"{_OUTGROWN} {CHECK_EFFECTS}"
    return explain_failure(result, CHECK_EFFECTS)


def build_turn_headers(
    session_id: str, request: TurnRequest, result: TurnResult | None = None
) -> dict[str, str]:
    """The headers of a turn's response; `result` when the turn has already ended."""
    headers = {"X-Hermes-Session-Id": session_id}
    if request.session_key:
        headers["X-Hermes-Session-Key"] = request.session_key
    if request.ignored:
        headers["X-Hermes-Ignored"] = ", ".join(request.ignored)
    if result is not None and result.status != "completed":
        headers |= INCOMPLETE_HEADERS
    return headers


def describe_incomplete(result: TurnResult) -> IncompleteTurn | None:
    """The `hermes` field of an incomplete turn; None for a complete one."""
    if result.status == "completed":
        return None
    return IncompleteTurn(False, True, result.status == "failed", result.error, result.error_code)


def is_truncated(result: TurnResult) -> bool:
    """Whether the answer ended at the output limit."""
    return result.status != "completed" and result.error_code in _TRUNCATED


def is_unusable(result: TurnResult, request: TurnRequest) -> bool:
    """Whether a turn ended early and without a part of its answer: what was said before its tools
    ran is none. An answer that ends at the limit its client set is what the client asked for."""
    if result.status == "completed" or (is_truncated(result) and request.has_own_limit):
        return False
    if not result.text.strip():
        return True
    last = result.messages[-1]
    return last.role != "assistant" or not last.text.strip()


def raise_if_unusable(
    result: TurnResult, request: TurnRequest, headers: dict[str, str] | None = None
) -> None:
    """Raise the error of a turn that has no usable text."""
    if is_unusable(result, request):
        raise build_error(result, headers)


def build_error(result: TurnResult, headers: dict[str, str] | None = None) -> ApiError:
    """The error of a turn that failed."""
    status, code = _STATUSES.get(result.error_code, _INCOMPLETE)
    headers = dict(headers or {})
    if result.effects or result.error_code in _FINAL:
        headers |= NO_RETRY
    elif result.error_code == "rate_limited":
        wait = result.retry_after if result.retry_after is not None else DEFAULT_RETRY_SECONDS
        headers["Retry-After"] = str(max(1, round(wait)))
    elif result.error_code == "unavailable":
        headers["Retry-After"] = RETRY_AFTER
    incomplete = describe_incomplete(result)
    error = ApiError(
        EFFECTS_STATUS if result.effects else status,
        result.error or "The agent did not finish.",
        code=code,
        headers=headers,
        extra={"hermes": structs.asdict(incomplete)} if incomplete else {},
    )
    error.final = result.effects
    return error


def build_stream_error(result: TurnResult) -> ApiError:
    """The error of a turn that failed in its stream: no header can say any more that repeating is
    pointless, but its type can."""
    error = build_error(result)
    if NO_RETRY.items() <= error.headers.items():
        error.extra["type"] = "invalid_request_error"
    return error


def choose_response_code(result: TurnResult) -> str:
    """The code of a failed response: one of those that OpenAI's clients know."""
    is_outgrown = result.effects and result.error_code in _TOO_LONG
    if is_outgrown or result.error_code in _INVALID_PROMPT:
        return "invalid_prompt"
    _, code = _STATUSES.get(result.error_code, _INCOMPLETE)
    return code if code in _RESPONSE_CODES else "server_error"


_RESPONSE_CODES = frozenset(
    {"rate_limit_exceeded", "context_length_exceeded", "insufficient_quota"}
)
