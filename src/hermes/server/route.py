"""Routes: one row per endpoint, the services of its handler, and the router that finds it."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from hermes.app.control.messengers import Messengers
from hermes.app.runtime import Runtime
from hermes.config.api_server import ApiServer, Scope
from hermes.core.errors import StoreError
from hermes.server.http import web
from hermes.server.http.call import ApiCall
from hermes.server.http.errors import ApiError
from hermes.server.http.metrics import Metrics
from hermes.server.nodes.run_orders import RunOrders
from hermes.server.runs.runs import RunRegistry
from hermes.server.turns.stored_responses import ResponseStore
from hermes.server.turns.turn_runner import TurnRunner

if TYPE_CHECKING:
    from hermes.server.dashboard.dashboard import Dashboard

TURN_HEADERS = ("Idempotency-Key", "X-Hermes-Session-Id", "X-Hermes-Session-Key")
"""Request headers of routes that run a turn."""


class RouteServices(Struct, frozen=True):
    """The parts of the server that handlers use."""

    runtime: Runtime
    settings: ApiServer
    model: str
    """The model name to answer with when the request names none."""
    metrics: Metrics
    turns: TurnRunner
    responses: ResponseStore
    runs: RunRegistry
    list_routes: "Callable[[], tuple[Route, ...]]"
    """All routes of the server, for those that describe it."""
    describe_gateway: Callable[[], dict[str, Any] | None] = lambda: None
    """The state of the gateway that the server is part of; None: it is part of none."""
    open_messengers: Callable[[], Messengers] | None = None
    """Opens what the operator sees of the messengers; None: this server knows none."""
    dashboard: "Dashboard | None" = None
    """None: it is off."""
    run_orders: RunOrders | None = None
    """None: no other node works on runs of this store."""
    find_obstacle: Callable[[], str] = lambda: ""
    """Why clients should turn to another server; empty: nothing is in the way."""
    find_failure: Callable[[], StoreError | None] = lambda: None
    """Why nothing can be accepted: the database is away."""


def require_dashboard(services: RouteServices) -> "Dashboard":
    """The dashboard, whose routes exist only where it is on."""
    assert services.dashboard is not None
    return services.dashboard


Handler: TypeAlias = Callable[[ApiCall, RouteServices], Awaitable[web.StreamResponse]]


class Route(Struct, frozen=True):
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    handle: Handler
    """The docstring of the handler is the summary in the OpenAPI document."""
    name: str
    """The operationId in the OpenAPI document, and the label in metrics."""
    answer: type[Struct] | None = None
    """The type of the JSON answer; None: not described."""
    body: type[Struct] | None = None
    body_optional: bool = False
    """Whether a missing body means an empty object."""
    public: bool = False
    """Whether the route needs no key."""
    scope: Scope = "chat"
    status: int = 200
    errors: tuple[int, ...] = ()
    """Error statuses that do not follow from the other fields."""
    streams: bool = False
    media: str = "application/json"
    raw_body: bool = False
    """Whether the body is a file, of any type."""
    query: tuple[str, ...] = ()
    """The query parameters the handler reads."""
    headers: tuple[str, ...] = ()
    """The request headers the handler reads."""

    @property
    def summary(self) -> str:
        return self.handle.__doc__ or ""


turn_route = partial(Route, "POST", errors=(404, 424, 502), streams=True, headers=TURN_HEADERS)
"""The route of a protocol that runs one turn, as a single answer or as a stream."""


class Router:
    """Finds the route of a request: fixed paths by lookup, paths with parameters by pattern."""

    def __init__(
        self, routes: Iterable[Route], imports: Iterable[Callable[[], Iterable[Route]]] = ()
    ) -> None:
        """`imports`: give more routes, one after the other, until one has the path asked for."""
        self._fixed: dict[tuple[str, str], Route] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        self._imports = list(imports)
        self._add_routes(routes)

    def _add_routes(self, routes: Iterable[Route]) -> None:
        for route in routes:
            if "{" in route.path:
                self._patterns.append((_compile_path(route.path), route))
            else:
                self._fixed[route.method, route.path] = route

    async def load_route(self, method: str, path: str) -> tuple[Route | None, dict[str, str]]:
        """As `find_route`, among those too that are not imported yet."""
        found = self.find_route(method, path)
        while found[0] is None and self._imports:
            import_routes = self._imports[0]
            routes = await asyncio.to_thread(import_routes)
            if import_routes in self._imports:  # another request may have been faster
                self._imports.remove(import_routes)
                self._add_routes(routes)
            found = self.find_route(method, path)
        return found

    def find_route(self, method: str, path: str) -> tuple[Route | None, dict[str, str]]:
        """The route and the values of its path parameters; None when no route matches."""
        method = "GET" if method == "HEAD" else method
        if (route := self._fixed.get((method, path))) is not None:
            return route, {}
        for pattern, candidate in self._patterns:
            if candidate.method == method and (found := pattern.fullmatch(path)):
                return candidate, found.groupdict()
        return None, {}

    def explain_missing_route(self, method: str, path: str) -> ApiError:
        """A 405 for a path that has other methods, a 404 for an unknown path."""
        allowed = {known for known, fixed in self._fixed if fixed == path}
        allowed |= {r.method for pattern, r in self._patterns if pattern.fullmatch(path)}
        if not allowed:
            return ApiError(404, "Unknown path. GET /docs lists all endpoints.", code="not_found")
        methods = ", ".join(sorted(allowed))
        return ApiError(
            405,
            f"{method} is not allowed for this path; use {methods}.",
            code="method_not_allowed",
            headers={"Allow": methods},
        )


def _compile_path(path: str) -> re.Pattern[str]:
    """A pattern in which `{id}` matches the characters of ids and none that are special in URLs."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9._:-]{1,256})", path))
