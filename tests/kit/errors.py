"""Errors as each wire words them: the body of a status, and a frame inside a stream."""

from __future__ import annotations

import json
from typing import Any

from tests.kit import frames
from tests.kit.render import Event, sse

_GEMINI = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
_BEDROCK = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}
_OPENAI = {
    400: "invalid_request_error",
    401: "invalid_request_error",
    429: "requests",
    500: "server_error",
}


def error_object(wire: str, status: int, message: str, code: Any, param: str) -> Any:
    """The parsed body. `code` is the provider's own word where the wire has room for one."""
    match wire:
        case "anthropic":
            error = {"type": code or _ANTHROPIC.get(status, "api_error"), "message": message}
            return {"type": "error", "error": error, "request_id": "req_kit"}
        case "gemini":
            status_word = code or _GEMINI.get(status, "UNKNOWN")
            return {"error": {"code": status, "message": message, "status": status_word}}
        case "bedrock":
            return {"message": message}
        case _:
            kind = _OPENAI.get(status, "error")
            error = {"message": message, "type": kind, "param": param or None, "code": code or None}
            return {"error": error}


def error_headers(wire: str, status: int, code: Any) -> dict[str, str]:
    if wire != "bedrock":
        return {}
    return {"x-amzn-errortype": str(code or _BEDROCK.get(status, "InternalServerException"))}


def error_body(wire: str, status: int, message: str, code: Any = "", param: str = "") -> bytes:
    value = error_object(wire, status, message, code, param)
    return json.dumps(value, ensure_ascii=False).encode()


def error_event(wire: str, status: int, message: str, code: Any = "") -> Event:
    """The same error, sent inside a stream that began with 200."""
    match wire:
        case "bedrock":
            kind = str(code or _BEDROCK.get(status, "InternalServerException"))
            return Event("error", frames.exception(kind[0].lower() + kind[1:], message))
        case "anthropic":
            return sse("error", error_object(wire, status, message, code, ""), name="error")
        case "responses":
            value = {"type": "error", "code": code or str(status), "message": message}
            return sse("error", value, name="error")
        case "gemini":
            return sse("error", error_object(wire, status, message, code, ""))
        case _:
            return sse("error", error_object(wire, status, message, code or status, ""))
