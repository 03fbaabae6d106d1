"""API errors and the envelope that OpenAI clients expect."""

from typing import Any

import orjson

_ERROR_TYPES = {
    # Some clients repeat whatever has another type than this; 424 must not be repeated.
    **dict.fromkeys((400, 405, 413, 415, 421, 422, 424), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
}


RETRY_AFTER = "5"
"""Seconds after which to try again what cannot be done for now."""
_ANTHROPIC_TYPES = {413: "request_too_large", 424: "api_error", 503: "overloaded_error"}
_ANTHROPIC_NAMES = {
    "server_error": "api_error",
    "conflict_error": "invalid_request_error",
}


class ApiError(Exception):
    """Ends a request with this status; `extra` adds fields to the envelope."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.headers = headers or {}
        self.extra = extra or {}
        self.final = False
        """Whether a retry under the same idempotency key gets this error again: tools have run, and
        must not run twice."""

    @classmethod
    def from_fields(
        cls, status: int, fields: dict[str, Any], headers: dict[str, str]
    ) -> "ApiError":
        """The error with the fields that `describe` gave earlier."""
        extra = {name: fields[name] for name in fields if name not in ("message", "code", "param")}
        error = cls(
            status,
            str(fields.get("message")),
            code=fields.get("code"),
            param=fields.get("param"),
            headers=headers,
            extra=extra,
        )
        error.final = True
        return error

    def describe(self) -> dict[str, Any]:
        """The fields of the envelope."""
        return {
            "message": self.message,
            "type": _ERROR_TYPES.get(self.status, "server_error"),
            "param": self.param,
            "code": self.code,
            **self.extra,
        }

    def encode_envelope(self) -> bytes:
        return orjson.dumps({"error": self.describe()})


def describe_final_error(error: ApiError) -> dict[str, Any]:
    """The fields of an error after which nothing may run again: at `context_length_exceeded` in an
    answer without a stream, programs shorten the conversation and ask again."""
    fields = error.describe()
    if error.status == 424 and error.code == "context_length_exceeded":
        fields["code"] = "agent_incomplete"
    return fields


def describe_anthropic_error(error: ApiError) -> dict[str, Any]:
    """The fields of an error as clients of Anthropic know them."""
    fields = describe_final_error(error)
    kind = fields["type"]
    return {**fields, "type": _ANTHROPIC_TYPES.get(error.status, _ANTHROPIC_NAMES.get(kind, kind))}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400; `param` names the field of the body that is wrong."""
    return ApiError(400, message, param=param, code=code)


def unsupported_parameter(name: str, reason: str) -> ApiError:
    return bad_request(f"{name} is not supported: {reason}", name, "unsupported_parameter")


def not_found(kind: str, object_id: str) -> ApiError:
    return ApiError(404, f"No {kind} with the id {object_id}.", code=f"{kind}_not_found")
