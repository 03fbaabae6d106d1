"""S6: every route without a key, and with a wrong, a foreign, a limited and the right one.

A route without an entry fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from hermes.server.routes import list_routes
from tests.kit import say
from tests.kit.api import Api, api
from tests.server.key_owners import ANN, BOB, ENV, LOW, SETTINGS

pytestmark = pytest.mark.asyncio(loop_scope="module")

HI = [{"role": "user", "content": "hi"}]
OPEN = (200, 200, 200, 200, 200)
LISTED = (401, 401, 200, 403, 200)
"""Statuses without a key, with a wrong key, another owner's, one without the scope, the right one;
for objects without an owner."""
OWN = (401, 401, 404, 403, 200)
"""The same for objects with an owner."""

TABLE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "GET /health": (None, OPEN),
    "GET /v1/health": (None, OPEN),
    "GET /health/detailed": (None, OPEN),
    "GET /health/ready": (None, OPEN),
    "GET /": (None, OPEN),
    "GET /v1/models": (None, LISTED),
    "GET /v1/models/{id}": (None, LISTED),
    "GET /v1/capabilities": (None, LISTED),
    "GET /v1/toolsets": (None, LISTED),
    "GET /v1/skills": (None, LISTED),
    "GET /openapi.json": (None, LISTED),
    "GET /docs": (None, LISTED),
    "GET /metrics": (None, LISTED),
    "POST /v1/chat/completions": ({"messages": HI}, LISTED),
    "POST /v1/messages": ({"messages": HI, "max_tokens": 9}, LISTED),
    "POST /v1/responses": ({"input": "hi", "previous_response_id": "{response}"}, OWN),
    "POST /v1/messages/count_tokens": ({"messages": HI}, LISTED),
    "POST /v1/responses/input_tokens": ({"input": "hi"}, LISTED),
    "GET /v1/responses/{id}": (None, OWN),
    "GET /v1/responses/{id}/input_items": (None, OWN),
    "POST /v1/responses/{id}/cancel": (None, OWN),
    "DELETE /v1/responses/{id}": (None, OWN),
    "POST /v1/runs": (
        {"input": "hi", "session_id": "{session}"},
        (401, 401, 404, 403, 202),
    ),
    "GET /v1/runs/{run_id}": (None, OWN),
    "GET /v1/runs/{run_id}/events": (None, OWN),
    "POST /v1/runs/{run_id}/stop": (None, OWN),
    "POST /v1/runs/{run_id}/approval": ({"choice": "once"}, (401, 401, 404, 403, 409)),
    "POST /v1/runs/{run_id}/steer": ({"text": "x"}, (401, 401, 404, 403, 409)),
    "GET /api/sessions": (None, LISTED),
    "POST /api/sessions": ({}, (401, 401, 201, 403, 201)),
    "GET /api/sessions/search": ("?q=hi", LISTED),
    "GET /api/sessions/{id}": (None, OWN),
    "PATCH /api/sessions/{id}": ({"title": "t"}, OWN),
    "GET /api/sessions/{id}/messages": (None, OWN),
    "POST /api/sessions/{id}/fork": ({}, (401, 401, 404, 403, 201)),
    "POST /api/sessions/{id}/chat": ({"message": "hi"}, OWN),
    "POST /api/sessions/{id}/chat/stream": ({"message": "hi"}, OWN),
    "DELETE /api/sessions/{id}": (None, OWN),
}
WHO = ("no key", "a wrong key", "another principal", "too small a scope", "the right key")
KEYS = ("", "wrong", BOB, LOW, ANN)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def with_owners(folder: Path) -> AsyncIterator[Api]:
    async with api(
        folder / "with_owners", then=say("Yes."), key="", settings=SETTINGS, env=ENV
    ) as a:
        yield a


async def test_every_route_has_an_entry() -> None:
    there = {f"{route.method} {route.path}" for route in list_routes()}
    assert there == TABLE.keys()


async def _create_objects(a: Api) -> dict[str, str]:
    """Create an object of each kind, owned by ann."""
    response = (await a.ask(key=ANN)).json["id"]
    run = (await a.post("/v1/runs", {"input": "x"}, key=ANN)).json["run_id"]
    await a.get(f"/v1/runs/{run}/events", key=ANN)
    session = (await a.post("/api/sessions", {"title": "mine"}, key=ANN)).json["id"]
    return {"response": response, "run": run, "session": session}


@pytest.mark.parametrize("entry", TABLE, ids=str)
async def test_every_route_with_every_key(with_owners: Api, entry: str) -> None:
    method, path = entry.split(" ")
    given, expected = TABLE[entry]
    own = await _create_objects(with_owners)
    path = path.replace("{run_id}", own["run"])
    path = path.replace("models/{id}", "models/hermes-agent")
    path = path.replace("{id}", own["response" if "responses" in path else "session"])
    body = given
    if isinstance(given, str):
        path, body = path + given, None
    if isinstance(given, dict):
        body = {k: v.format(**own) if isinstance(v, str) else v for k, v in given.items()}
    for who, key, status in zip(WHO, KEYS, expected, strict=True):
        made = len(with_owners.provider.requests)
        answer = await with_owners.call(method, path, body, key=key)
        assert answer.status == status, who
        if status >= 400:
            assert answer.error["message"]
            assert ANN not in answer.body.decode()
        if status in (401, 403, 404):
            assert len(with_owners.provider.requests) == made, f"{who}: work was started"


async def test_unknown_and_foreign_ids_get_the_same_answer(with_owners: Api) -> None:
    own = await _create_objects(with_owners)
    for path, mine in (
        ("/v1/responses/{}", own["response"]),
        ("/v1/runs/{}", own["run"]),
        ("/api/sessions/{}", own["session"]),
    ):
        unknown = mine[:-4] + "zzzz"
        foreign = await with_owners.get(path.format(mine), key=BOB)
        nothing = await with_owners.get(path.format(unknown), key=BOB)
        assert foreign.status == nothing.status == 404
        assert foreign.body.replace(mine.encode(), b"") == nothing.body.replace(
            unknown.encode(), b""
        )
