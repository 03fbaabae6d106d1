"""How a turn ended, as the headers, fields and errors that say so in every protocol."""

from __future__ import annotations

from typing import Any

from hermes.core.events import TurnResult
from hermes.server.http.errors import ApiError
from hermes.server.turns.sessions import Ask


def turn_headers(session: str, ask: Ask) -> dict[str, str]:
    headers = {"X-Hermes-Session-Id": session}
    if ask.session_key:
        headers["X-Hermes-Session-Key"] = ask.session_key
    return headers


def incomplete_headers(result: TurnResult) -> dict[str, str]:
    if result.status == "completed":
        return {}
    return {"X-Hermes-Completed": "false", "X-Hermes-Partial": "true"}


def ending(result: TurnResult) -> dict[str, Any]:
    """Of a turn that is not complete."""
    return {
        "completed": False,
        "partial": True,
        "failed": result.status == "failed",
        "error": result.error,
        "error_code": result.error_code,
    }


def incomplete(result: TurnResult, headers: dict[str, str]) -> ApiError:
    """There is nothing usable to answer with. A bug of ours is not the provider's failure."""
    if result.error_code == "internal":
        error = ApiError(500, result.error, code="internal", headers=headers)
    else:
        error = ApiError(
            502,
            result.error or "The agent did not finish.",
            code="agent_incomplete",
            headers=headers,
            extra={"hermes": ending(result)},
        )
    error.final = any(message.role == "tool" for message in result.messages)
    return error
