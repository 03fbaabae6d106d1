"""Response headers: the security headers of every response, and CORS."""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes.server.http import web

COMMON_HEADERS = {
    "Server": "hermes",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-XSS-Protection": "0",
    "Referrer-Policy": "no-referrer",
}
_CORS_METHODS = "GET, POST, PATCH, DELETE, OPTIONS"
_CORS_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Hermes-Session-Id, "
    "X-Hermes-Session-Key, X-Hermes-Tool-Execution, X-Hermes-Tool-Items"
)
_CORS_EXPOSED = (
    "X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial, "
    "X-Hermes-Ignored, X-Request-Id, X-Should-Retry, Retry-After"
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_MAX_REQUESTED_HEADERS = 40


def create_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


def get_request_id(request: web.BaseRequest) -> str:
    """The id of a request, the same at every call."""
    from hermes.server.http.web import REQUEST_ID  # not before the port is open: it takes long

    found = request.get(REQUEST_ID)
    if found is None:
        found = request[REQUEST_ID] = create_request_id()
    return found


def add_common_headers(
    request: web.BaseRequest, response: web.StreamResponse, allowed_origins: Collection[str]
) -> None:
    """Set the security and CORS headers; call this before the response starts."""
    headers = response.headers
    for name, value in COMMON_HEADERS.items():
        headers.setdefault(name, value)
    headers["X-Request-Id"] = get_request_id(request)
    origin = request.headers.get("Origin")
    if origin is None or origin not in allowed_origins:
        return
    headers["Access-Control-Allow-Origin"] = origin
    headers["Access-Control-Allow-Methods"] = _CORS_METHODS
    headers["Access-Control-Allow-Headers"] = _CORS_HEADERS
    headers["Access-Control-Expose-Headers"] = _CORS_EXPOSED
    headers["Vary"] = "Origin"
    if request.method == "OPTIONS":
        headers["Access-Control-Max-Age"] = "600"
        headers["Access-Control-Allow-Headers"] = _list_allowed_headers(request)


def _list_allowed_headers(request: web.BaseRequest) -> str:
    """The headers this API reads and those the page asks for: browser SDKs add their own."""
    allowed = _CORS_HEADERS.split(", ")
    seen = {name.lower() for name in allowed}
    limit = _MAX_REQUESTED_HEADERS
    requested = request.headers.get("Access-Control-Request-Headers", "").split(",", limit)
    for name in (name.strip() for name in requested[:limit]):
        if _HEADER_NAME.fullmatch(name) and name.lower() not in seen:
            seen.add(name.lower())
            allowed.append(name)
    return ", ".join(allowed)
