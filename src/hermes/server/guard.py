"""What every request passes before its handler, and every response before it leaves."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from aiohttp import web

from hermes.core.errors import ConfigError, HermesError
from hermes.server.errors import ApiError
from hermes.server.principals import Principal
from hermes.server.route import Call, Route, wrong_route

if TYPE_CHECKING:
    from hermes.server.app import Server

log = logging.getLogger("hermes.server")
access = logging.getLogger("hermes.server.access")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-XSS-Protection": "0",
    "Referrer-Policy": "no-referrer",
}
CORS_METHODS = "GET, POST, PATCH, DELETE, OPTIONS"
CORS_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Hermes-Session-Id, "
    "X-Hermes-Session-Key"
)
CORS_EXPOSED = "X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial"
BODY_SECONDS = 60.0
_NOBODY = Principal()


async def respond(server: Server, request: web.BaseRequest) -> web.StreamResponse:
    """The whole way of a request; nothing raised below gets past here but a cancellation."""
    began = time.monotonic()
    route, names = server.find(request.method, request.path)
    try:
        response = await _answered(server, request, route, names)
    except ApiError as error:
        response = _failed(error)
    except web.HTTPException as error:
        response = _failed(ApiError(error.status, error.reason))
    except ConfigError as error:
        response = _failed(ApiError(500, server.redact(str(error)), code="config"))
    except HermesError as error:
        log.warning("%s failed: %s", request.path, server.redact(str(error)))
        response = _failed(ApiError(500, server.redact(str(error)), code="internal"))
    except Exception as error:
        log.exception("%s %s crashed", request.method, request.path)
        response = _failed(ApiError(500, f"Internal error: {type(error).__name__}."))
    if not response.prepared:
        dress(server, request, response)
    server.metrics.request(route.name if route else "", response.status, time.monotonic() - began)
    if access.isEnabledFor(logging.INFO):
        took = (time.monotonic() - began) * 1000
        access.info("%s %s %d %.0f ms", request.method, request.path, response.status, took)
    return response


async def _answered(
    server: Server, request: web.BaseRequest, route: Route | None, names: dict[str, str]
) -> web.StreamResponse:
    _check_host(server, request)
    origin = request.headers.get("Origin")
    if origin is not None and origin not in server.settings.cors_origins:
        raise ApiError(403, "This origin is not allowed.", code="origin_not_allowed")
    if request.method == "OPTIONS" and origin is not None:
        return web.Response(status=200)
    principal = _NOBODY
    if route is None or not route.open:
        principal = server.principals.identify(_keys(request, route))
    if route is None:
        raise wrong_route(request, server.methods_at(request.path))
    if route.open:
        return await route.handle(Call(server, request, principal, names))
    if route.scope not in principal.scopes:
        raise ApiError(403, f"This key lacks the scope {route.scope}.", code="scope")
    server.principals.admit(principal)
    raw = await _body(server, request) if request.method in ("POST", "PATCH") else b""
    return await route.handle(Call(server, request, principal, names, raw))


def _keys(request: web.BaseRequest, route: Route | None) -> list[str]:
    given = request.headers.getall("Authorization", [])
    if not given and route is not None and route.x_api_key:
        given = [f"Bearer {key}" for key in request.headers.getall("X-Api-Key", [])]
    return given


def _check_host(server: Server, request: web.BaseRequest) -> None:
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1 or not server.known_host(hosts[0]):
        raise ApiError(421, "This server does not go by that name.", code="misdirected_request")
    if request.raw_path[:1] != "/" and request.method != "OPTIONS":
        raise ApiError(400, "The request line must hold a path.")


async def _body(server: Server, request: web.BaseRequest) -> bytes:
    """All of it, within the limit and in time."""
    if not request.can_read_body:
        return b""
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError(415, "A compressed body is not accepted.", code="unsupported_media_type")
    kind = request.headers.get("Content-Type")
    if kind and kind.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "Send the body as application/json.", code="unsupported_media_type")
    limit = server.settings.max_request_bytes
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > limit:
                    raise _too_large(limit)
                pieces.append(piece)
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="timeout") from None
    return b"".join(pieces)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"The request is larger than {limit:,} bytes.",
        code="request_too_large",
        headers={"Connection": "close"},
    )


def _failed(error: ApiError) -> web.Response:
    return web.Response(
        body=error.body(),
        status=error.status,
        headers=error.headers,
        content_type="application/json",
    )


def dress(server: Server, request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Headers of every response, before its first byte."""
    headers = response.headers
    headers.update(HEADERS)
    origin = request.headers.get("Origin")
    if origin is None or origin not in server.settings.cors_origins:
        return
    headers["Access-Control-Allow-Origin"] = origin
    headers["Access-Control-Allow-Methods"] = CORS_METHODS
    headers["Access-Control-Allow-Headers"] = CORS_HEADERS
    headers["Access-Control-Expose-Headers"] = CORS_EXPOSED
    headers["Vary"] = "Origin"
    if request.method == "OPTIONS":
        headers["Access-Control-Max-Age"] = "600"
