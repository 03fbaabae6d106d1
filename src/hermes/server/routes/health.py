"""Whether the server lives, and what it can do."""

from __future__ import annotations

import os
import time
from typing import Any

from hermes.server.http import web
from hermes.server.http.early_listener import ALIVE
from hermes.server.http.response_schemas import Capabilities, DetailedHealth, Health, Models
from hermes.server.http.route import Call, Route

_STARTED = int(time.time())


async def health(call: Call) -> web.StreamResponse:
    return call.answer(ALIVE)


async def detailed(call: Call) -> web.StreamResponse:
    return call.answer(
        {
            **ALIVE,
            "gateway_state": None,
            "platforms": {},
            "active_agents": call.server.active,
            "exit_reason": None,
            "updated_at": time.time(),
            "pid": os.getpid(),
        }
    )


async def models(call: Call) -> web.StreamResponse:
    name = call.server.model
    entry = {
        "id": name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "hermes",
        "permission": [],
        "root": name,
        "parent": None,
    }
    return call.answer({"object": "list", "data": [entry]})


async def capabilities(call: Call) -> web.StreamResponse:
    server = call.server
    names = {route.name: route for route in server.routes}
    features: dict[str, Any] = {feature: route in names for feature, route in _FEATURES.items()}
    features["tool_progress_events"] = True
    features["cors"] = bool(server.settings.cors_origins)
    features["session_continuity_header"] = "X-Hermes-Session-Id"
    features["session_key_header"] = "X-Hermes-Session-Key"
    return call.answer(
        {
            "object": "hermes.api_server.capabilities",
            "platform": ALIVE["platform"],
            "model": server.model,
            "auth": {"type": "bearer", "required": not server.principals.open},
            "runtime": {
                "mode": "server_agent",
                "tool_execution": "server",
                "split_runtime": False,
                "description": "The agent and its tools run on the API-server host.",
            },
            "features": features,
            "endpoints": {n: {"method": r.method, "path": r.path} for n, r in names.items()},
        }
    )


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
"""Feature -> the route that has to be there for it."""

ROUTES = (
    Route(
        "GET",
        "/health",
        health,
        "health",
        "Whether the server lives.",
        open=True,
        answer=Health,
    ),
    Route(
        "GET",
        "/v1/health",
        health,
        "health_v1",
        "Whether the server lives.",
        open=True,
        answer=Health,
    ),
    Route(
        "GET",
        "/health/detailed",
        detailed,
        "health_detailed",
        "What is running.",
        open=True,
        answer=DetailedHealth,
    ),
    Route(
        "GET",
        "/v1/models",
        models,
        "models",
        "The one model this server is.",
        answer=Models,
    ),
    Route(
        "GET",
        "/v1/capabilities",
        capabilities,
        "capabilities",
        "What this server can do.",
        answer=Capabilities,
    ),
)
