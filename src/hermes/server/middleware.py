"""Checks before every handler, and error envelopes, headers, metrics and logs after it."""

import asyncio
import logging
import time

from hermes.core.errors import ConfigError, HermesError, StoreError
from hermes.server.http import web
from hermes.server.http.call import RESPONSE_STARTED, ApiCall
from hermes.server.http.errors import RETRY_AFTER, ApiError, describe_anthropic_error
from hermes.server.http.headers import add_common_headers, get_request_id
from hermes.server.http.json_body import encode_json
from hermes.server.http.listener import HealthCheck, is_known_host
from hermes.server.http.principals import Principal, Principals
from hermes.server.route import Route, Router, RouteServices
from hermes.store.tables.tenancy import enter_tenant

log = logging.getLogger("hermes.server")
access = logging.getLogger("hermes.server.access")

BODY_SECONDS = 60.0
PRINCIPAL_NAME = web.RequestKey("principal", str)
_ANONYMOUS = Principal()
_FORM_TYPES = frozenset({"text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
"""Content types that any web page can send without a preflight."""
_MESSAGES_PATH = "/v1/messages"
_LINKED_ROUTES = ("root", "asset")
_SIGN_IN_PATH = "/api/web/"
_REFUSED_METHODS = frozenset({"TRACE", "CONNECT"})


class Middleware:
    """Checks host, origin, key, scope, rate and body, then calls the handler of the route."""

    def __init__(
        self,
        router: Router,
        services: RouteServices,
        principals: Principals,
        host_names: frozenset[str],
    ) -> None:
        self._router = router
        self._services = services
        self._principals = principals
        self._host_names = host_names
        self._settings = services.settings
        self._redact = services.turns.redact

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a request. Failures become error responses, except a cancellation or a lost
        client."""
        began = time.monotonic()
        route, path_params = await self._router.load_route(request.method, request.path)
        try:
            response = await self._dispatch_request(request, route, path_params)
        except ApiError as error:
            response = _error_response(request, error)
        except web.HTTPException as error:
            response = _error_response(request, ApiError(error.status, error.reason))
        except ConfigError as error:
            failure = ApiError(500, self._redact(str(error)), code="config")
            response = _error_response(request, failure)
        except HermesError as error:
            text = self._redact(str(error))
            log.warning("%s failed: %s", request.path, text)
            response = _error_response(request, _explain_failure(error, text))
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("%s %s crashed", request.method, request.path)
            text = self._redact(str(error)) or type(error).__name__
            failure = ApiError(500, f"Internal error: {text[:300]}", code="internal")
            response = _error_response(request, failure)
        if not response.prepared:
            if RESPONSE_STARTED in request:
                raise ConnectionResetError("the request failed after its response had started")
            add_common_headers(request, response, self._settings.cors_origins)
            if self._services.dashboard is not None and request.path.startswith("/api/"):
                response.headers.setdefault("Cache-Control", "no-store")
        seconds = time.monotonic() - began
        self._services.metrics.count_request(route.name if route else "", response.status, seconds)
        if access.isEnabledFor(logging.INFO):
            caller = {"from": request.remote, "key": request.get(PRINCIPAL_NAME, "")}
            _log_access(request.method, request.path[:500], response.status, seconds, caller)
        return response

    def record_health_check(self, check: HealthCheck) -> None:
        """Count and log a health check that a connection answered without the middleware."""
        route, _ = self._router.find_route("GET", check.path)
        self._services.metrics.count_request(route.name if route else "", 200, check.seconds)
        if access.isEnabledFor(logging.INFO):
            _log_access("GET", check.path, 200, check.seconds, {"from": check.remote, "key": ""})

    async def _dispatch_request(
        self, request: web.BaseRequest, route: Route | None, path_params: dict[str, str]
    ) -> web.StreamResponse:
        self._check_host(request)
        _check_protocol(request)
        self._check_origin(request, route)
        if request.method == "OPTIONS" and "Origin" in request.headers:
            return web.Response(status=200)
        if route is not None and route.public:
            body = await self._read_route_body(request, route)
            call = ApiCall(request, _ANONYMOUS, path_params, body)
            return await route.handle(call, self._services)
        if route is None and not request.path.startswith(("/v1/", "/api/")):
            raise self._router.explain_missing_route(request.method, request.path)
        if route is None or route.scope != "metrics":
            self._raise_if_away()
        tenants = self._services.turns.tenants
        principal, is_browser = await self._identify(request)
        request[PRINCIPAL_NAME] = principal.name
        if route is None:
            raise self._router.explain_missing_route(request.method, request.path)
        if route.scope not in principal.scopes:
            raise ApiError(403, f"This key does not have the scope {route.scope}.", code="scope")
        if tenants is not None:
            await tenants.count_request(principal)
        else:
            self._principals.count_request(principal)
        body = await self._read_route_body(request, route)
        call = ApiCall(request, principal, path_params, body, is_browser)
        with enter_tenant(principal.tenant):
            return await route.handle(call, self._services)

    def _raise_if_away(self) -> None:
        """Refuse new work while it is known that the database is away: turns that run wait."""
        if (failure := self._services.find_failure()) is not None:
            raise StoreError(str(failure), failure.code)

    def _check_origin(self, request: web.BaseRequest, route: Route | None) -> None:
        """403 for a foreign page. Links of any page lead to the dashboard's own page and files."""
        dashboard, origin = self._services.dashboard, request.headers.get("Origin")
        if dashboard is not None:
            if route is not None and route.name in _LINKED_ROUTES:
                return
            if request.path.startswith(_SIGN_IN_PATH) or dashboard.has_credentials(request):
                dashboard.check_site(request)
                return
            if origin is not None and dashboard.is_own_origin(request):
                return
        if origin is not None and origin not in self._settings.cors_origins:
            raise ApiError(403, "This origin is not allowed.", code="origin_not_allowed")

    async def _identify(self, request: web.BaseRequest) -> tuple[Principal, bool]:
        """Who calls, and whether from a signed-in browser; 401 when nobody can be told."""
        dashboard = self._services.dashboard
        if dashboard is not None:
            if request.method == "GET" and (ticket := request.query.get("ticket")):
                owner = dashboard.take_ticket(request, ticket)
                if owner is None:
                    raise ApiError(401, "This download link was used or is too old.", code="ticket")
                return owner, True
            if dashboard.has_credentials(request):
                return (await dashboard.identify(request)).principal, True
        headers, tenants = _list_key_headers(request), self._services.turns.tenants
        if tenants is not None and (found := await tenants.identify(headers)) is not None:
            return found, False
        return self._principals.identify(headers, request.transport), False

    async def _read_route_body(self, request: web.BaseRequest, route: Route) -> bytes:
        if request.method not in ("POST", "PUT", "PATCH"):
            return b""
        limit = self._settings.max_request_bytes
        if route.raw_body and self._services.dashboard is not None:
            limit = self._services.dashboard.settings.max_upload_mb * 1_000_000
        else:
            _check_content_type(request, route)
        return await _read_body(request, limit)

    def _check_host(self, request: web.BaseRequest) -> None:
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1 or not is_known_host(self._host_names, hosts[0]):
            text = "Unknown host name. Add it to platforms.api_server.allowed_hosts in config.yaml."
            raise ApiError(421, text, code="misdirected_request")
        if request.raw_path[:1] != "/" and request.method != "OPTIONS":
            raise _protocol_error("The request line must contain a path.")


def _list_key_headers(request: web.BaseRequest) -> list[str]:
    keys = request.headers.getall("Authorization", [])
    return keys or [f"Bearer {key}" for key in request.headers.getall("X-Api-Key", [])]


def _check_protocol(request: web.BaseRequest) -> None:
    if request.version != web.HttpVersion11:
        raise _protocol_error("HTTP/1.1 is required (nginx: proxy_http_version 1.1;).")
    if request.method in _REFUSED_METHODS:
        raise _protocol_error(f"The method {request.method} is not supported.")


def _protocol_error(message: str) -> ApiError:
    return _closing_error(400, message, "bad_request")


def _closing_error(status: int, message: str, code: str) -> ApiError:
    """An error that also closes the connection: what follows on it cannot be parsed."""
    return ApiError(status, message, code=code, headers={"Connection": "close"})


def _check_content_type(request: web.BaseRequest, route: Route) -> None:
    """Accept JSON or no content type; without a body, any type except those of forms."""
    types = request.headers.getall("Content-Type", [])
    media_type = types[0].partition(";")[0].strip().lower() if types else ""
    needed = request.can_read_body or (route.body is not None and not route.body_optional)
    is_wrong = needed and media_type not in ("", "application/json")
    if len(types) > 1 or media_type in _FORM_TYPES or is_wrong:
        raise ApiError(415, "Send the body as application/json.", code="unsupported_media_type")
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ApiError(415, "Compressed bodies are not supported.", code="unsupported_media_type")


async def _read_body(request: web.BaseRequest, limit: int) -> bytes:
    """Read the whole body, up to `limit` bytes and within BODY_SECONDS."""
    if not request.can_read_body:
        return b""
    if request.content_length is not None and request.content_length > limit:
        raise _body_size_error(limit)
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.content.iter_any():
                size += len(piece)
                if size > limit:
                    raise _body_size_error(limit)
                pieces.append(piece)
    except TimeoutError:
        raise _closing_error(408, "The body did not arrive in time.", "timeout") from None
    except (web.PayloadEncodingError, web.RequestPayloadError):
        raise _protocol_error("The body could not be decoded.") from None
    return b"".join(pieces)


def _body_size_error(limit: int) -> ApiError:
    return _closing_error(413, f"The request is larger than {limit:,} bytes.", "request_too_large")


def _explain_failure(error: HermesError, text: str) -> ApiError:
    """A database that is away is a reason to try again, here or elsewhere."""
    if isinstance(error, StoreError) and error.code in ("away", "busy"):
        return ApiError(503, text, code="unavailable", headers={"Retry-After": RETRY_AFTER})
    return ApiError(500, text, code="internal")


def _error_response(request: web.BaseRequest, error: ApiError) -> web.Response:
    body = error.encode_envelope()
    if request.path.startswith(_MESSAGES_PATH):
        fields = describe_anthropic_error(error)
        body = encode_json(
            {"type": "error", "error": fields, "request_id": get_request_id(request)}
        )
    response = web.Response(
        body=body,
        status=error.status,
        headers=error.headers,
        content_type="application/json",
    )
    if error.headers.get("Connection") == "close":
        response.force_close()
    return response


def _log_access(
    method: str, path: str, status: int, seconds: float, caller: dict[str, str | None]
) -> None:
    """Log one record per request, without query, headers or body."""
    milliseconds = round(seconds * 1000, 1)
    fields = {"method": method, "path": path, "status": status, "ms": milliseconds, **caller}
    access.info("%s %s %d", method, path, status, extra={"fields": fields})
