"""The OpenAPI document: made of the routes and of the Structs that validate their requests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from hermes.server.http.route import Route
from hermes.version import VERSION

_REF = "#/components/schemas/{name}"
_WORDS = {
    400: "The request is wrong.",
    401: "The key is missing or wrong.",
    403: "Not allowed.",
    404: "It is not there, or not yours.",
    408: "The body did not arrive in time.",
    409: "Not possible now.",
    413: "The request is too large.",
    415: "The body is not JSON.",
    421: "The server does not go by that name.",
    429: "Too many requests or runs; see Retry-After.",
    500: "A bug.",
    502: "The agent did not finish.",
    503: "The server is stopping.",
}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
_QUERY: dict[str, Any] = {
    "q": {"type": "string", "minLength": 1},
    "limit": _NUMBER,
    "offset": _NUMBER,
    "after": {**_NUMBER, "minimum": -1},
}
_HEADERS: dict[str, Any] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": 255},
    "X-Hermes-Session-Id": {"type": "string", "maxLength": 256},
    "X-Hermes-Session-Key": {"type": "string", "maxLength": 256},
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}
_ALWAYS = (400, 403, 421)
_GUARDED = (401, 429)
_WITH_BODY = (408, 413, 415)
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    types = {t for route in routes for t in (route.body, route.answer) if t is not None}
    named = sorted(types, key=lambda t: t.__name__)
    _, schemas = msgspec.json.schema_components(named, ref_template=_REF)
    schemas["Error"] = _ERROR
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hermes",
            "version": VERSION,
            "description": "An agent behind the protocols of OpenAI and Anthropic.",
        },
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": [*_in_path(route), *_in_query(route), *_in_headers(route)],
        "responses": {str(route.status): _answer(route), **_errors(route)},
    }
    if route.open:
        found["security"] = []
    if route.body is not None:
        reference = _REF.format(name=route.body.__name__)
        found["requestBody"] = {
            "required": not route.bodiless,
            "content": {"application/json": {"schema": {"$ref": reference}}},
        }
    return found


def _in_path(route: Route) -> list[dict[str, Any]]:
    shape = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,256}$"}
    return [
        {"name": name, "in": "path", "required": True, "schema": shape}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]


def _in_query(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": name == "q", "schema": _QUERY[name]}
        for name in route.query
    ]


def _in_headers(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "header", "required": False, "schema": _HEADERS[name]}
        for name in route.headers
    ]


def _answer(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {route.media: {}}
    if route.answer is not None:
        content[route.media] = {"schema": {"$ref": _REF.format(name=route.answer.__name__)}}
    if route.streams:
        content["text/event-stream"] = {}
    return {"description": "It is done.", "content": content}


def _errors(route: Route) -> dict[str, Any]:
    codes = {*route.errors, *_ALWAYS, 500}
    if not route.open:
        codes |= {*_GUARDED}
    if route.method in ("POST", "PATCH"):
        codes |= {*_WITH_BODY}
    if route.scope == "chat" and not route.open:
        codes.add(503)
    schema = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {str(c): {"description": _WORDS[c], "content": schema} for c in sorted(codes)}
