"""What every request passes before its handler, and every response before it leaves."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiohttp.http_exceptions import PayloadEncodingError

from hermes.core.errors import ConfigError, HermesError
from hermes.server.http import web
from hermes.server.http.early_listener import HEADERS, Answered
from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principal
from hermes.server.http.route import Call, Route, wrong_route

if TYPE_CHECKING:
    from hermes.server.app import Server

log = logging.getLogger("hermes.server")
access = logging.getLogger("hermes.server.access")

CORS_METHODS = "GET, POST, PATCH, DELETE, OPTIONS"
CORS_HEADERS = (
    "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Hermes-Session-Id, "
    "X-Hermes-Session-Key, X-Hermes-Tool-Items"
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")
_MOST_ASKED = 40
CORS_EXPOSED = "X-Hermes-Session-Id, X-Hermes-Session-Key, X-Hermes-Completed, X-Hermes-Partial"
BODY_SECONDS = 60.0
WHO = web.RequestKey("principal", str)
STARTED = web.RequestKey("started", bool)
"""Set on a request whose response has begun: nothing else can be said any more."""
_NOBODY = Principal()
_FORMS = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""What a page of anybody can send without asking first."""
_UNSAID = frozenset({"TRACE", "CONNECT"})


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
    except ConnectionError:
        raise
    except Exception as error:
        log.exception("%s %s crashed", request.method, request.path)
        said = server.redact(str(error)) or type(error).__name__
        response = _failed(ApiError(500, f"Internal error: {said[:300]}", code="internal"))
    if not response.prepared:
        if STARTED in request:
            raise ConnectionResetError("failed after the response had begun")
        dress(server, request, response)
    took = time.monotonic() - began
    server.metrics.request(route.name if route else "", response.status, took)
    if access.isEnabledFor(logging.INFO):
        fields = {"from": request.remote, "key": request.get(WHO, "")}
        _log(request.method, request.path[:500], response.status, took, fields)
    return response


def note(server: Server, answered: Answered) -> None:
    """A request that was answered before the server was there to count it."""
    route, _ = server.find("GET", answered.path)
    server.metrics.request(route.name if route else "", 200, answered.seconds)
    if access.isEnabledFor(logging.INFO):
        fields = {"from": answered.remote, "key": ""}
        _log("GET", answered.path, 200, answered.seconds, fields)


def _log(method: str, path: str, status: int, took: float, rest: Mapping[str, str | None]) -> None:
    """One record per request: never its query, its headers or its body."""
    fields = {
        "method": method,
        "path": path,
        "status": status,
        "ms": round(took * 1000, 1),
        **rest,
    }
    access.info("%s %s %d", method, path, status, extra={"fields": fields})


async def _answered(
    server: Server, request: web.BaseRequest, route: Route | None, names: dict[str, str]
) -> web.StreamResponse:
    _check_host(server, request)
    _check_protocol(request)
    origin = request.headers.get("Origin")
    if origin is not None and origin not in server.settings.cors_origins:
        raise ApiError(403, "This origin is not allowed.", code="origin_not_allowed")
    if request.method == "OPTIONS" and origin is not None:
        return web.Response(status=200)
    if route is not None and route.open:
        return await route.handle(Call(server, request, _NOBODY, names))
    if route is None and not request.path.startswith(("/v1/", "/api/")):
        raise wrong_route(request, server.methods_at(request.path))
    principal = server.principals.identify(_keys(request, route))
    request[WHO] = principal.name
    if route is None:
        raise wrong_route(request, server.methods_at(request.path))
    if route.scope not in principal.scopes:
        raise ApiError(403, f"This key lacks the scope {route.scope}.", code="scope")
    server.principals.admit(principal)
    raw = b""
    if request.method in ("POST", "PATCH"):
        _check_type(request, route)
        raw = await _body(server, request)
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
        raise _refused("The request line must hold a path.")


def _check_protocol(request: web.BaseRequest) -> None:
    if request.version != web.HttpVersion11:
        raise _refused("HTTP/1.1 is needed (nginx: proxy_http_version 1.1;).")
    if request.method in _UNSAID:
        raise _refused(f"{request.method} is not possible here.")


def _refused(why: str) -> ApiError:
    return ApiError(400, why, code="bad_request", headers={"Connection": "close"})


def _check_type(request: web.BaseRequest, route: Route) -> None:
    """JSON or nothing said. Who has no body to send may have any type but a form's."""
    kinds = request.headers.getall("Content-Type", [])
    kind = kinds[0].partition(";")[0].strip().lower() if kinds else ""
    needed = request.can_read_body or (route.body is not None and not route.bodiless)
    if len(kinds) > 1 or (kind in _FORMS) or (needed and kind not in ("", "application/json")):
        raise ApiError(415, "Send the body as application/json.", code="unsupported_media_type")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError(415, "A compressed body is not accepted.", code="unsupported_media_type")


async def _body(server: Server, request: web.BaseRequest) -> bytes:
    """All of it, within the limit and in time."""
    if not request.can_read_body:
        return b""
    limit = server.settings.max_request_bytes
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
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
        raise ApiError(
            408,
            "The body did not arrive in time.",
            code="timeout",
            headers={"Connection": "close"},
        ) from None
    except (PayloadEncodingError, web.RequestPayloadError):
        raise _refused("The body could not be understood.") from None
    return b"".join(pieces)


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"The request is larger than {limit:,} bytes.",
        code="request_too_large",
        headers={"Connection": "close"},
    )


def _failed(error: ApiError) -> web.Response:
    response = web.Response(
        body=error.body(),
        status=error.status,
        headers=error.headers,
        content_type="application/json",
    )
    if error.headers.get("Connection") == "close":
        response.force_close()
    return response


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
        headers["Access-Control-Allow-Headers"] = _allowed(request)


def _allowed(request: web.BaseRequest) -> str:
    """SDKs in a page send headers of their own; a page that is let in may send any of them."""
    known = CORS_HEADERS.split(", ")
    seen = {name.lower() for name in known}
    asked = request.headers.get("Access-Control-Request-Headers", "").split(",", _MOST_ASKED)
    for name in (name.strip() for name in asked[:_MOST_ASKED]):
        if _HEADER_NAME.fullmatch(name) and name.lower() not in seen:
            seen.add(name.lower())
            known.append(name)
    return ", ".join(known)
