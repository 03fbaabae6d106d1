"""What goes wrong with a request, as the envelope every client of this protocol understands."""

from __future__ import annotations

from typing import Any

import orjson

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    421: "invalid_request_error",
    429: "rate_limit_error",
}


class ApiError(Exception):
    """Ends a request. `extra` goes into the envelope beside the four fields."""

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
        """Tools have run: the same request under the same key must not do it all again."""

    def body(self) -> bytes:
        error = {
            "message": self.message,
            "type": TYPES.get(self.status, "server_error"),
            "param": self.param,
            "code": self.code,
            **self.extra,
        }
        return orjson.dumps({"error": error})


def bad(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code=code)


def missing(what: str, identity: str) -> ApiError:
    return ApiError(404, f"There is no {what} {identity}.", code=f"{what}_not_found")
