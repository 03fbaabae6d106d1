"""One row per endpoint, what its handler gets, and the router that finds it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.app.runtime import Runtime
from hermes.config.api_server import ApiServer, Scope
from hermes.server.http import web
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError
from hermes.server.http.idempotency import IdempotencyKeys
from hermes.server.http.metrics import Metrics
from hermes.server.turns.runs import RunRegistry
from hermes.server.turns.stored_responses import ResponseStore
from hermes.server.turns.turn_runner import TurnRunner

TURN_HEADERS = ("Idempotency-Key", "X-Hermes-Session-Id", "X-Hermes-Session-Key")
"""Request headers of routes that run a turn."""


class RouteServices(Struct, frozen=True):
    """What handlers use of the server."""

    runtime: Runtime
    settings: ApiServer
    model: str
    """The model name the server goes by, unless a request gives another."""
    metrics: Metrics
    idempotency: IdempotencyKeys
    turns: TurnRunner
    responses: ResponseStore
    runs: RunRegistry


Handler: TypeAlias = Callable[[ApiCall, RouteServices], Awaitable[web.StreamResponse]]


class Route(Struct, frozen=True):
    method: Literal["GET", "POST", "PATCH", "DELETE"]
    path: str
    handle: Handler
    """Its docstring is the summary in the OpenAPI document."""
    name: str
    """Also the operationId."""
    answer: type[Struct] | None = None
    """Type of the JSON answer; None: anything."""
    body: type[Struct] | None = None
    body_optional: bool = False
    """No body means the same as an empty object."""
    public: bool = False
    """Needs no key."""
    scope: Scope = "chat"
    x_api_key: bool = False
    """The key may also come in X-Api-Key, as Anthropic clients send it."""
    status: int = 200
    errors: tuple[int, ...] = ()
    """Statuses that do not follow from the other fields."""
    streams: bool = False
    media: str = "application/json"
    query: tuple[str, ...] = ()
    """The query parameters it reads."""
    headers: tuple[str, ...] = ()
    """The request headers it reads."""

    @property
    def summary(self) -> str:
        return self.handle.__doc__ or ""


class Router:
    def __init__(self, routes: Iterable[Route]) -> None:
        self._fixed: dict[tuple[str, str], Route] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append((_compile_path(route.path), route))
            else:
                self._fixed[route.method, route.path] = route

    def find_route(self, method: str, path: str) -> tuple[Route | None, dict[str, str]]:
        """The route, and the values of the parameters in its path."""
        method = "GET" if method == "HEAD" else method
        if (route := self._fixed.get((method, path))) is not None:
            return route, {}
        for pattern, candidate in self._patterns:
            if candidate.method == method and (found := pattern.fullmatch(path)):
                return candidate, found.groupdict()
        return None, {}

    def explain_missing_route(self, method: str, path: str) -> ApiError:
        """405 where the path has other methods, 404 where it has none."""
        allowed = {known for known, fixed in self._fixed if fixed == path}
        allowed |= {r.method for pattern, r in self._patterns if pattern.fullmatch(path)}
        if not allowed:
            return ApiError(404, "There is nothing at this address.", code="not_found")
        methods = ", ".join(sorted(allowed))
        return ApiError(
            405,
            f"{method} is not possible here; use {methods}.",
            code="method_not_allowed",
            headers={"Allow": methods},
        )


def _compile_path(path: str) -> re.Pattern[str]:
    """`{id}` matches the characters of our ids, and none with a meaning elsewhere."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9._:-]{1,256})", path))
