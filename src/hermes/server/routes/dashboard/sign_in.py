"""The page itself, its files, and signing in and out."""

from __future__ import annotations

import time
from typing import Annotated

from msgspec import Meta, Struct

from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request, not_found
from hermes.server.http.response_schemas import ObjectList
from hermes.server.route import Route, RouteServices, require_dashboard

_NO_STORE = {"Cache-Control": "no-store"}


class LoginRequest(Struct):
    code: Annotated[str, Meta(max_length=64)] = ""
    key: Annotated[str, Meta(max_length=1024)] = ""


class WebSession(Struct, omit_defaults=True):
    principal: str | None
    """None: not signed in; empty: the operator."""
    scopes: list[str]
    expires_at: float | None
    page_token: str = ""


class TicketRequest(Struct):
    path: Annotated[str, Meta(max_length=1000, pattern=r"^/api/[^#\s\\]*$")]


class TicketAnswer(Struct):
    href: str


class SignOutAnswer(Struct):
    ended: int


async def get_asset(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a static file of the dashboard."""
    assets = require_dashboard(services).assets
    found = assets.find_asset(call.path_params["name"])
    if found is None:
        raise not_found("file", call.path_params["name"])
    is_current = call.path_params["hash"] == assets.hash
    cache = "public, max-age=31536000, immutable" if is_current else "no-cache"
    return found.build_response(call.request, cache)


async def sign_in(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Sign a browser in with a code or a key."""
    dashboard = require_dashboard(services)
    body = call.decode_body(LoginRequest)
    if bool(body.code) == bool(body.key):
        raise bad_request("Send a code or a key.", "code")
    request = call.request
    is_secure = dashboard.is_secure(request)
    cookie, page_token, principal, expires = await dashboard.sign_in.sign_in(
        body.code,
        body.key,
        address=request.remote or "",
        agent=request.headers.get("User-Agent", ""),
        is_secure=is_secure,
    )
    scopes = sorted(principal.scopes)
    answer = WebSession(principal.name, list(scopes), expires, page_token)
    response = json_response(answer, headers=_NO_STORE)
    _set_cookie(response, dashboard.cookie_name, cookie, dashboard.sign_in.max_age, is_secure)
    return response


def _set_cookie(
    response: web.Response, name: str, value: str, max_age: int, is_secure: bool
) -> None:
    response.set_cookie(
        name,
        value,
        max_age=max_age,
        path="/",
        httponly=True,
        samesite="Strict",
        secure=is_secure,
    )


async def get_web_session(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get who is signed in; nobody is no error. The cookie then lasts as long as the session."""
    dashboard, request = require_dashboard(services), call.request
    try:
        visit = await dashboard.identify(request)
    except ApiError as error:
        if error.status != 401:
            raise
        return json_response(WebSession(None, [], None), headers=_NO_STORE)
    principal = visit.principal
    answer = WebSession(principal.name, list(sorted(principal.scopes)), visit.expires)
    response = json_response(answer, headers=_NO_STORE)
    name, left = dashboard.cookie_name, int(visit.expires - time.time())
    _set_cookie(response, name, request.cookies[name], left, visit.is_secure)
    return response


async def sign_out(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Sign this browser out."""
    dashboard = require_dashboard(services)
    name, is_secure = dashboard.cookie_name, dashboard.is_secure(call.request)
    await dashboard.sign_in.end_session(call.request.cookies.get(name, ""))
    dashboard.check_feeds()
    response = json_response(SignOutAnswer(1), headers=_NO_STORE)
    _set_cookie(response, name, "", 0, is_secure)
    return response


async def create_ticket(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get an address for one download, good once and for 30 seconds."""
    body = call.decode_body(TicketRequest)
    token = require_dashboard(services).issue_ticket(body.path, call.principal)
    mark = "&" if "?" in body.path else "?"
    href = f"{body.path.removeprefix('/')}{mark}ticket={token}"
    return json_response(TicketAnswer(href))


async def list_browsers(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the browsers that are signed in."""
    dashboard = require_dashboard(services)
    cookie = call.request.cookies.get(dashboard.cookie_name, "")
    data = await dashboard.sign_in.list_browsers(cookie)
    return json_response(ObjectList("list", data))


async def end_browsers(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Sign out one browser, or all of them."""
    dashboard, browser = require_dashboard(services), call.request.query.get("id", "")
    ended = await dashboard.sign_in.sign_out(browser)
    dashboard.check_feeds()
    return json_response(SignOutAnswer(ended))


_browsers = "/api/web/browsers"
ROUTES = (
    Route("GET", "/assets/{hash}/{name}", get_asset, "asset", public=True, media="text/javascript"),
    Route("POST", "/api/web/login", sign_in, "web_login", WebSession, LoginRequest, public=True),
    Route("GET", "/api/web/session", get_web_session, "web_session", WebSession, public=True),
    Route("POST", "/api/web/logout", sign_out, "web_logout", SignOutAnswer, scope="sessions"),
    Route(
        "POST",
        "/api/web/ticket",
        create_ticket,
        "web_ticket",
        TicketAnswer,
        TicketRequest,
        scope="sessions",
    ),
    Route("GET", _browsers, list_browsers, "web_browsers", ObjectList, scope="admin"),
    Route(
        "DELETE",
        _browsers,
        end_browsers,
        "web_sign_out",
        SignOutAnswer,
        scope="admin",
        query=("id",),
    ),
)
