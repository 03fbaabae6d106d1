"""What the route handlers use of the server."""

from __future__ import annotations

from msgspec import Struct

from hermes.app.runtime import Runtime
from hermes.config.api_server import ApiServer
from hermes.server.http.idempotency import IdempotencyKeys
from hermes.server.http.metrics import Metrics
from hermes.server.turns.runs import RunRegistry
from hermes.server.turns.stored_responses import ResponseStore
from hermes.server.turns.turn_runner import TurnRunner


class RouteServices(Struct, frozen=True):
    runtime: Runtime
    settings: ApiServer
    model: str
    """The model name the server goes by, unless a request gives another."""
    metrics: Metrics
    idempotency: IdempotencyKeys
    turns: TurnRunner
    responses: ResponseStore
    runs: RunRegistry
