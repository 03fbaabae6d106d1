"""The OpenAPI document, built from the routes and their request and answer Structs."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from hermes.server.route import Route
from hermes.version import VERSION

_REF = "#/components/schemas/{name}"
_STATUS_TEXTS = {
    400: "The request is invalid.",
    401: "The key is missing or invalid.",
    403: "The origin or the key is not allowed to do this.",
    404: "Not found, or owned by another key.",
    408: "The body did not arrive in time.",
    409: "Not possible in the current state.",
    413: "The request is too large.",
    415: "The body is not JSON.",
    421: "Unknown host name.",
    424: "The turn failed after a tool had changed something; do not repeat it.",
    429: "Too many requests or runs; see Retry-After.",
    500: "Internal error.",
    502: "The agent did not finish.",
    503: "The server is stopping.",
}
_ID_SCHEMA = {"type": "string", "pattern": "^[A-Za-z0-9._:-]{1,256}$"}
_NUMBER = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
_QUERY_SCHEMAS: dict[str, Any] = {
    "q": {"type": "string", "minLength": 1},
    "limit": _NUMBER,
    "offset": _NUMBER,
    "cursor": _NUMBER,
    "source": {"type": "string"},
    "state": {"enum": ["idle", "running", "interrupted", "partial", "failed"]},
    "archived": {"enum": ["true", "false"]},
    "after": {"anyOf": [{**_NUMBER, "minimum": -1}, {"type": "string"}]},
    "before": {**_NUMBER, "minimum": -1},
    "around": {**_NUMBER, "minimum": -1},
    "starting_after": {**_NUMBER, "minimum": -1},
    "watch": {"type": "string"},
    "format": {"enum": ["markdown", "jsonl"]},
    "by": {"type": "string"},
    "days": _NUMBER,
    "level": {"type": "string"},
    "id": {"type": "string"},
    "order": {"enum": ["asc", "desc"]},
    "stream": {"enum": ["true", "false"]},
}
_HEADER_SCHEMAS: dict[str, Any] = {
    "Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": 255},
    "X-Hermes-Session-Id": {"type": "string", "maxLength": 256},
    "X-Hermes-Session-Key": {"type": "string", "maxLength": 256},
    "X-File-Name": {"type": "string"},
    "Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,18}$"},
}
_ERROR_SCHEMA = {
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


def build_document(routes: Sequence[Route]) -> dict[str, Any]:
    structs = {t for route in routes for t in (route.body, route.answer) if t is not None}
    ordered = sorted(structs, key=lambda t: t.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=_REF)
    schemas["Error"] = _ERROR_SCHEMA
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route)
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


def _describe_operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "parameters": _list_params(route),
        "responses": {str(route.status): _describe_answer(route), **_describe_errors(route)},
    }
    if route.public:
        operation["security"] = []
    if route.body is not None:
        reference = _REF.format(name=route.body.__name__)
        operation["requestBody"] = {
            "required": not route.body_optional,
            "content": {"application/json": {"schema": {"$ref": reference}}},
        }
    return operation


def _list_params(route: Route) -> list[dict[str, Any]]:
    in_path = [("path", name, _ID_SCHEMA) for name in re.findall(r"\{(\w+)\}", route.path)]
    in_query = [("query", name, _QUERY_SCHEMAS[name]) for name in route.query]
    in_headers = [("header", name, _HEADER_SCHEMAS[name]) for name in route.headers]
    return [
        {"name": name, "in": kind, "required": kind == "path" or name == "q", "schema": schema}
        for kind, name, schema in (*in_path, *in_query, *in_headers)
    ]


def _describe_answer(route: Route) -> dict[str, Any]:
    content: dict[str, Any] = {route.media: {}}
    if route.answer is not None:
        content[route.media] = {"schema": {"$ref": _REF.format(name=route.answer.__name__)}}
    if route.streams:
        content["text/event-stream"] = {}
    return {"description": "Success.", "content": content}


def _describe_errors(route: Route) -> dict[str, Any]:
    codes = {400, 403, 421, 500, *route.errors}
    if not route.public:
        codes |= {401, 429}
    if route.method in ("POST", "PATCH"):
        codes |= {408, 413, 415}
    if route.scope == "chat" and not route.public:
        codes.add(503)
    if "{" in route.path:
        codes.add(404)
    schema = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
    return {str(c): {"description": _STATUS_TEXTS[c], "content": schema} for c in sorted(codes)}
