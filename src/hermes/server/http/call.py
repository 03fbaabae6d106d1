"""One authenticated request to a route, and the JSON that answers it."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec import Struct

from hermes.server.http import web
from hermes.server.http.json_body import decode_json, encode_json
from hermes.server.http.principals import Principal

T = TypeVar("T", bound=Struct)
RESPONSE_STARTED = web.RequestKey("started", bool)
"""Set on a request as soon as a part of its response is sent: an error can no longer be."""


class ApiCall(Struct, frozen=True):
    request: web.BaseRequest
    principal: Principal
    path_params: dict[str, str] = {}
    """The values of {id} and the like in the path."""
    body: bytes = b""

    def decode_body(self, kind: type[T]) -> T:
        return decode_json(self.body, kind)

    def decode_optional(self, kind: type[T]) -> T:
        """Like `decode_body`; without a body, the Struct with its defaults."""
        return decode_json(self.body, kind) if self.body.strip() else kind()


def json_response(
    value: Any, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """Plain data or Structs."""
    return web.Response(
        body=encode_json(value), status=status, headers=headers, content_type="application/json"
    )
