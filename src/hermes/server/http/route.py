"""One row per endpoint: what the router, the guard, the OpenAPI document and the tests read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import msgspec
import orjson
from msgspec import Struct

from hermes.config.api_server import Scope
from hermes.server.http import web
from hermes.server.http.errors import ApiError, bad
from hermes.server.http.principals import Principal

if TYPE_CHECKING:
    from hermes.server.app import Server

T = TypeVar("T", bound=Struct)
DEEPEST = 64
_MOST_NESTED = 200_000
_MOST_VALUES = 1_000_000
_SMALL = 256 * 1024
_PLAIN = frozenset({str, bool, float, type(None)})
Method: TypeAlias = Literal["GET", "POST", "PATCH", "DELETE"]
Handler: TypeAlias = "Callable[[Call], Awaitable[web.StreamResponse]]"
_DUPLICATES_UP_TO = 64 * 1024
"""Bytes: looking for keys that are there twice is slow, and larger bodies are histories."""


class Route(Struct, frozen=True):
    method: Method
    path: str
    handle: Handler
    name: str
    """Also the operation's id."""
    summary: str
    open: bool = False
    """Needs no key."""
    scope: Scope = "chat"
    x_api_key: bool = False
    """The key may also come as clients of Anthropic send it."""
    body: type[Struct] | None = None
    bodiless: bool = False
    """No body at all means the same as an empty one."""
    answer: type[Struct] | None = None
    """Type of the JSON answer; None: anything."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """Beside those every route has."""
    streams: bool = False
    media: str = "application/json"
    query: tuple[str, ...] = ()
    """Names of the parameters it reads from the address."""
    headers: tuple[str, ...] = ()
    """Names of those it reads."""


class Call(Struct, frozen=True):
    """One request to one route."""

    server: Server
    request: web.BaseRequest
    principal: Principal
    names: dict[str, str] = {}
    """What stands in the address for {id} and the like."""
    raw: bytes = b""

    def json(self, kind: type[T]) -> T:
        """The body as that Struct. 400 says what is wrong with it."""
        return decode(self.raw, kind)

    def answer(
        self, value: Any, status: int = 200, headers: dict[str, str] | None = None
    ) -> web.Response:
        """A Struct or plain data, as JSON."""
        raw = msgspec.json.encode(value) if isinstance(value, Struct) else orjson.dumps(value)
        return web.Response(
            body=raw, status=status, headers=headers, content_type="application/json"
        )


def decode(raw: bytes, kind: type[T]) -> T:
    if not raw.strip():
        raise bad("Invalid JSON: the body is empty.")
    if len(raw) > _SMALL:
        _refuse_bombs(raw)
    try:
        value = msgspec.json.decode(raw, type=kind)
        _check(value)
        if len(raw) <= _DUPLICATES_UP_TO:
            _refuse_duplicates(raw)
    except msgspec.ValidationError as error:
        _decodes(raw)
        raise bad(*_described(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(f"Invalid JSON: {error}.") from None
    except RecursionError:
        raise bad("Invalid JSON: nested too deeply.") from None
    return value


def _decodes(raw: bytes) -> None:
    """What is no JSON at all is said to be that, whatever else is wrong with it."""
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad(f"Invalid JSON: {error}.") from None
    except RecursionError:
        raise bad("Invalid JSON: nested too deeply.") from None


def _refuse_bombs(raw: bytes) -> None:
    """A value of three bytes takes a hundred in memory: looked at before any is made."""
    nested = raw.count(b"{") + raw.count(b"[")
    if nested > _MOST_NESTED or nested + raw.count(b",") > _MOST_VALUES:
        raise bad("Invalid JSON: too many values.")


def _check(value: Struct) -> None:
    """What was decoded can be encoded again: neither too deep nor with endless numbers."""
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [x for each in level for x in _inside(each) if type(x) not in _PLAIN]
        if not level:
            return
    raise bad("Invalid JSON: nested too deeply.")


def _inside(value: Any) -> Iterable[Any]:
    match value:
        case list():
            return value
        case dict():
            return value.values()
        case Struct():
            return msgspec.structs.astuple(value)
        case int() if value.bit_length() > 63:
            raise bad("Invalid JSON: a number is too large.")
        case _:
            return ()


def _refuse_duplicates(raw: bytes) -> None:
    """Two programs that read such a body may read different things in it."""
    import json

    def unique(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise bad(f"Invalid JSON: the key {name[:80]!r} is there twice.")
            seen.add(name)

    try:
        json.loads(raw, object_pairs_hook=unique)
    except ValueError as error:
        raise bad(f"Invalid JSON: {error}.") from None


def _described(error: str) -> tuple[str, str]:
    """(sentence, the parameter at fault) of a validation error."""
    said, _, where = error.partition(" - at ")
    param = where.strip("`").removeprefix("$").removeprefix(".")
    if not param and said.startswith("Object missing required field"):
        param = said.rpartition("`")[0].rpartition("`")[2]
        return f"{param} is required.", param
    return (f"{param}: {said}." if param else f"The body is of the wrong shape: {said}."), param


def flag(value: bool | str | None, name: str, *, default: bool = False) -> bool:
    """A JSON boolean, or one of the words clients send for it."""
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    word = value.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    raise bad(f"{name} must be true or false.", name)


def wrong_route(request: web.BaseRequest, allowed: frozenset[str]) -> ApiError:
    if allowed:
        methods = ", ".join(sorted(allowed))
        return ApiError(
            405,
            f"{request.method} is not possible here; use {methods}.",
            code="method_not_allowed",
            headers={"Allow": methods},
        )
    return ApiError(404, "There is nothing at this address.", code="not_found")
