"""Health, models and capabilities of the server."""

import os
import time
from typing import Any, Literal

from msgspec import Struct, structs

from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import not_found
from hermes.server.http.listener import HEALTH
from hermes.server.route import Route, RouteServices
from hermes.version import VERSION

_STARTED = int(time.time())
_GATEWAY_FIELDS = (
    "gateway_state platforms exit_reason updated_at started_at crash_loop inbox outbox sessions "
    "profiles"
).split()


class HealthAnswer(Struct):
    status: Literal["ok"]
    platform: str


class Readiness(Struct):
    status: Literal["ready", "draining", "cut_off"]
    """`draining`: the server is about to end; `cut_off`: it cannot reach its database."""


class DetailedHealth(Struct):
    status: Literal["ok", "degraded"]
    platform: str
    problem: str | None
    """The code of the error that keeps conversations from being stored at this moment."""
    gateway_state: str | None
    platforms: dict[str, dict[str, Any]]
    active_agents: int
    exit_reason: str | None
    updated_at: float
    pid: int
    started_at: float | None = None
    crash_loop: bool = False
    inbox: dict[str, int] = {}
    outbox: dict[str, int] = {}
    sessions: dict[str, int] = {}
    profiles: list[str] = []
    """These describe the gateway, where the server runs in its process."""


class ModelEntry(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    permission: list[Any]
    root: str
    parent: None


class ModelList(Struct):
    object: Literal["list"]
    data: list[ModelEntry]


class RootAnswer(Struct):
    name: str
    version: str
    base_path: str
    protocols: list[str]
    docs: str
    openapi: str


class EndpointEntry(Struct):
    method: str
    path: str


class Capabilities(Struct):
    object: Literal["hermes.api_server.capabilities"]
    platform: str
    model: str
    auth: dict[str, Any]
    runtime: dict[str, Any]
    features: dict[str, bool | str]
    endpoints: dict[str, EndpointEntry]


async def get_health(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Check that the server is alive."""
    return json_response(HEALTH)


async def get_readiness(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Check whether the server takes new work; 503 if clients should turn to another one."""
    obstacle = services.find_obstacle()
    return json_response({"status": obstacle or "ready"}, 503 if obstacle else 200)


async def get_detailed_health(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the health of the server with details."""
    problem = services.find_failure() or services.runtime.store.maintenance.find_problem()
    health = DetailedHealth(
        status="ok" if problem is None else "degraded",
        platform=HEALTH["platform"],
        problem=None if problem is None else problem.code,
        gateway_state=None,
        platforms={},
        active_agents=services.turns.slots.active_turns,
        exit_reason=None,
        updated_at=time.time(),
        pid=os.getpid(),
    )
    gateway = services.describe_gateway()
    if gateway is not None:
        known = {field: gateway[field] for field in _GATEWAY_FIELDS if field in gateway}
        turns = health.active_agents + int(gateway.get("active_agents", 0))
        health = structs.replace(health, **known, active_agents=turns)
    return json_response(health)


async def list_models(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the one model this server offers."""
    return json_response(ModelList("list", [_describe_model(services.model)]))


async def get_model(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the model this server offers."""
    if call.path_params["id"] != services.model:
        raise not_found("model", call.path_params["id"])
    return json_response(_describe_model(services.model))


def _describe_model(name: str) -> ModelEntry:
    return ModelEntry(name, "model", _STARTED, "hermes", [], name, None)


async def get_root(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Say what this server is and where its documents are; for a browser, the dashboard."""
    if services.dashboard is not None and "text/html" in call.request.headers.get("Accept", ""):
        return services.dashboard.assets.page.build_response(call.request, "no-cache")
    base, protocols = "/v1", ["chat/completions", "responses", "messages", "runs"]
    return json_response(RootAnswer("Hermes", VERSION, base, protocols, "/docs", "/openapi.json"))


async def get_capabilities(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the features and endpoints of this server."""
    routes = {route.name: route for route in services.list_routes()}
    features: dict[str, bool | str] = {name: route in routes for name, route in _FEATURES.items()}
    features["tool_progress_events"] = True
    features["cors"] = bool(services.settings.cors_origins)
    features["session_continuity_header"] = "X-Hermes-Session-Id"
    features["session_key_header"] = "X-Hermes-Session-Key"
    capabilities = Capabilities(
        object="hermes.api_server.capabilities",
        platform=HEALTH["platform"],
        model=services.model,
        auth={"type": "bearer", "required": call.principal.has_key},
        runtime={
            "mode": "server_agent",
            "tool_execution": services.settings.tool_execution or "server",
            "split_runtime": False,
            "description": "The agent and its tools run on the API-server host.",
        },
        features=features,
        endpoints={n: EndpointEntry(r.method, r.path) for n, r in routes.items()},
    )
    return json_response(capabilities)


_FEATURES = {
    "chat_completions": "chat_completions",
    "chat_completions_streaming": "chat_completions",
    "responses_api": "responses",
    "responses_streaming": "responses",
    "run_submission": "runs",
    "run_status": "run_status",
    "run_events_sse": "run_events",
    "run_stop": "run_stop",
}
"""The name of the route that each feature needs."""

ROUTES = (
    Route("GET", "/health", get_health, "health", HealthAnswer, public=True),
    Route("GET", "/v1/health", get_health, "health_v1", HealthAnswer, public=True),
    Route(
        "GET",
        "/health/ready",
        get_readiness,
        "health_ready",
        Readiness,
        public=True,
        errors=(503,),
    ),
    Route(
        "GET",
        "/health/detailed",
        get_detailed_health,
        "health_detailed",
        DetailedHealth,
        public=True,
    ),
    Route("GET", "/", get_root, "root", RootAnswer, public=True),
    Route("GET", "/v1/models", list_models, "models", ModelList),
    Route("GET", "/v1/models/{id}", get_model, "model", ModelEntry),
    Route("GET", "/v1/capabilities", get_capabilities, "capabilities", Capabilities),
)
