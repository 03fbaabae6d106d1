"""The end of a turn as headers, fields and errors that all protocols share."""

from msgspec import structs

from hermes.core.events import TurnResult
from hermes.server.http.errors import ApiError
from hermes.server.http.response_schemas import IncompleteTurn
from hermes.server.turns.turn_request import TurnRequest


def build_turn_headers(
    session_id: str, request: TurnRequest, result: TurnResult | None = None
) -> dict[str, str]:
    """The headers of a turn's response; `result` when the turn has already ended."""
    headers = {"X-Hermes-Session-Id": session_id}
    if request.session_key:
        headers["X-Hermes-Session-Key"] = request.session_key
    if result is not None and result.status != "completed":
        headers |= {"X-Hermes-Completed": "false", "X-Hermes-Partial": "true"}
    return headers


def describe_incomplete(result: TurnResult) -> IncompleteTurn | None:
    """The `hermes` field of an incomplete turn; None for a complete one."""
    if result.status == "completed":
        return None
    return IncompleteTurn(False, True, result.status == "failed", result.error, result.error_code)


def is_unusable(result: TurnResult) -> bool:
    """Whether the turn ended early and without any text."""
    return result.status != "completed" and not result.text.strip()


def raise_if_unusable(result: TurnResult, headers: dict[str, str]) -> None:
    """Raise an error if the turn has no usable text: 500 for an internal error, otherwise 502."""
    if not is_unusable(result):
        return
    if result.error_code == "internal":
        error = ApiError(500, result.error, code="internal", headers=headers)
    else:
        incomplete = describe_incomplete(result)
        error = ApiError(
            502,
            result.error or "The agent did not finish.",
            code="agent_incomplete",
            headers=headers,
            extra={"hermes": structs.asdict(incomplete)} if incomplete else {},
        )
    error.final = any(message.role == "tool" for message in result.messages)
    raise error
