"""An authenticated call of a route, and JSON responses to it."""

import re
from typing import Any, TypeVar
from unicodedata import category

import msgspec
from msgspec import Struct

from hermes.server.http import web
from hermes.server.http.errors import ApiError, bad_request
from hermes.server.http.json_body import decode_json, encode_json
from hermes.server.http.principals import Principal

T = TypeVar("T", bound=Struct)
MAX_NAME_LENGTH = 256
_FIELD_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_LISTED_FIELDS = 20
RESPONSE_STARTED = web.RequestKey("started", bool)
"""Set on a request once its response has started: an error response is no longer possible."""


class ApiCall(Struct, frozen=True):
    """One request, its caller, its path parameters and its body."""

    request: web.BaseRequest
    principal: Principal
    path_params: dict[str, str] = {}
    """Values of parameters such as {id} in the path."""
    body: bytes = b""
    is_browser: bool = False
    """Whether it comes from a signed-in browser."""

    def decode_body(self, kind: type[T]) -> T:
        return decode_json(self.body, kind)

    def decode_optional_body(self, kind: type[T]) -> T:
        """Like `decode_body`, but a missing body gives the Struct with its defaults."""
        return decode_json(self.body, kind) if self.body.strip() else kind()

    def read_session_headers(self) -> tuple[str, str]:
        """The session id and the session key, each empty when the request sends none."""
        return self._read_header("X-Hermes-Session-Id"), self._read_header("X-Hermes-Session-Key")

    def list_unknown_fields(self, kind: type[Struct]) -> tuple[str, ...]:
        """The fields of the body that this API does not read."""
        known = kind.__struct_fields__
        fields = msgspec.json.decode(self.body, type=dict[str, msgspec.Raw])
        return tuple(
            name
            for name, value in fields.items()
            if name not in known and bytes(value) != b"null" and _FIELD_NAME.fullmatch(name)
        )[:_MAX_LISTED_FIELDS]

    def _read_header(self, header: str) -> str:
        name = self.request.headers.get(header, "").strip()
        if name and not self.principal.has_key:
            raise ApiError(403, f"{header} requires a server with a key.", code="key_required")
        return check_name(name, header)


def check_name(name: str, field: str, param: str | None = None) -> str:
    """Return the name if it is short plain text; a 400 otherwise."""
    if len(name) > MAX_NAME_LENGTH or not is_plain_text(name):
        raise bad_request(
            f"{field} allows at most {MAX_NAME_LENGTH} characters, no control characters.", param
        )
    return name


def is_plain_text(name: str) -> bool:
    """Whether a name has no control characters and no invalid bytes; emoji joiners are fine."""
    return not any(category(c) in ("Cc", "Cs", "Zl", "Zp") for c in name)


def json_response(
    value: Any, status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    """A response whose body is this value: plain data, Structs, or both."""
    return web.json_reply(encode_json(value), status, headers)
