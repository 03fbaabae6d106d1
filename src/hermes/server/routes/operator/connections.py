"""Connections: messengers, the people who are let in, MCP servers, plugins."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct

from hermes.app.control import mcp_registry, plugin_registry
from hermes.app.control.bundle_source import review_bundle
from hermes.app.control.messengers import Messengers
from hermes.config.load import reload_setup
from hermes.core.errors import ConfigError, HermesError
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request
from hermes.server.http.response_schemas import ActionAnswer, ObjectList
from hermes.server.route import Route, RouteServices

Name: TypeAlias = Annotated[str, Meta(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")]
Word: TypeAlias = Annotated[str, Meta(max_length=1000)]


class PlatformList(ObjectList):
    gateway: dict[str, Any] | None
    """The state of the gateway; None: it never ran."""


class PairingBody(Struct):
    verb: Literal["approve", "revoke"]
    platform: Annotated[str, Meta(min_length=1, max_length=40)]
    code: Annotated[str, Meta(max_length=40)] = ""
    """approve: what the person got."""
    user: Annotated[str, Meta(max_length=200)] = ""
    """revoke: who."""


class McpBody(Struct):
    verb: Literal["add", "test", "review", "agree", "enable", "disable", "remove"]
    name: Name
    url: Word = ""
    command: Annotated[list[Word], Meta(max_length=100)] = []
    """add: the program and its arguments."""
    env: dict[str, Word] = {}
    headers: dict[str, Word] = {}
    transport: Literal["http", "sse"] | None = None
    oauth: bool = False


class PluginBody(Struct):
    verb: Literal["enable", "disable", "remove", "install", "update"]
    name: Name | None = None
    source: Word = ""
    """install: a folder, a git address, owner/repo, or an archive."""
    confirm: Annotated[str, Meta(max_length=100)] = ""
    """install, update: the digest of what was shown; empty: show it."""


def _require_messengers(services: RouteServices) -> Messengers:
    if services.open_messengers is None:
        raise ApiError(404, "This server has no messengers.", code="not_found")
    return services.open_messengers()


async def list_platforms(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the messengers: whether they are on, and how their connections are."""
    desk = _require_messengers(services)
    rows = await asyncio.to_thread(desk.describe_platforms)
    return json_response(PlatformList("list", rows, desk.describe_gateway()))


async def list_people(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the people who were let into the messengers, and those who wait."""
    return json_response(ObjectList("list", await _require_messengers(services).list_people()))


async def change_pairing(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Let the owner of a code in, or take the permission back."""
    body, desk = call.decode_body(PairingBody), _require_messengers(services)
    needed = "code" if body.verb == "approve" else "user"
    if not getattr(body, needed):
        raise bad_request(f"{body.verb} needs {needed}.", needed)
    try:
        if body.verb == "approve":
            line = await desk.approve_code(body.platform, body.code)
        else:
            line = await desk.revoke_user(body.platform, body.user)
    except ConfigError as error:
        raise ApiError(422, str(error), param=needed, code="invalid") from None
    return json_response(ActionAnswer([line]))


async def list_mcp(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the MCP servers and what is known about them; none is started."""
    servers, folder = services.runtime.mcp_servers, services.runtime.working_folder
    await servers.refresh()
    known = await asyncio.to_thread(servers.read_servers, folder)
    rows = [mcp_registry.describe_known(servers, config) for config in known.values()]
    redact = services.turns.redact
    data = [{**row, "state": redact(row["state"]), "url": redact(row["url"])} for row in rows]
    return json_response(ObjectList("list", data))


async def change_mcp(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Add, try, review, agree to, switch or remove an MCP server."""
    body = call.decode_body(McpBody)
    redact = services.turns.redact
    try:
        found = await _run_mcp_verb(body, services)
    except HermesError as error:
        raise ApiError(422, redact(str(error)), param="name", code="invalid") from None
    return json_response(found)


async def _run_mcp_verb(body: McpBody, services: RouteServices) -> dict[str, Any]:
    runtime = services.runtime
    servers, setup = runtime.mcp_servers, await asyncio.to_thread(reload_setup, runtime.setup)
    if body.verb == "add":
        await asyncio.to_thread(mcp_registry.add_server, setup, body.name, _read_entry(body))
        await servers.reload()
        return {"lines": [f"added {body.name}"]}
    known = await asyncio.to_thread(servers.read_servers, runtime.working_folder)
    config = mcp_registry.require_server(known, body.name)
    match body.verb:
        case "test":
            return await mcp_registry.try_server(servers.get_link(config))
        case "review":
            return {"changes": await mcp_registry.list_changes(servers.get_link(config))}
        case "agree":
            await servers.get_link(config).agree()
            return {"lines": [f"agreed to the tools of {body.name}"]}
        case "remove":
            await asyncio.to_thread(mcp_registry.remove_server, setup, config)
            line = f"removed {body.name}"
        case verb:
            enabled = verb == "enable"
            switch = partial(mcp_registry.switch_server, setup, config, enabled=enabled)
            await asyncio.to_thread(switch)
            line = f"{body.name} is {verb}d"
    await servers.reload()
    return {"lines": [line]}


def _read_entry(body: McpBody) -> dict[str, Any]:
    if bool(body.url) == bool(body.command):
        raise bad_request("add needs either url or command.", "url")
    entry: dict[str, Any] = {"url": body.url} if body.url else {"command": body.command[0]}
    parts = {
        "args": body.command[1:],
        "transport": body.transport,
        "env": body.env,
        "headers": body.headers,
        "auth": "oauth" if body.oauth else "",
    }
    return entry | {key: value for key, value in parts.items() if value}


async def list_plugins(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the plugins with their states."""
    setup = await asyncio.to_thread(reload_setup, services.runtime.setup)
    rows = await plugin_registry.describe_plugins(setup)
    return json_response(ObjectList("list", [dict(row) for row in rows]))


async def change_plugin(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Install, update, enable, disable or remove a plugin; it counts from the next start on."""
    body = call.decode_body(PluginBody)
    try:
        return json_response(await _run_plugin_verb(body, services))
    except ConfigError as error:
        text = services.turns.redact(str(error))
        raise ApiError(422, text, param="name", code="invalid") from None


async def _run_plugin_verb(body: PluginBody, services: RouteServices) -> dict[str, Any]:
    setup = await asyncio.to_thread(reload_setup, services.runtime.setup)
    installer = plugin_registry.open_plugin_installer(setup)
    name = body.name or ""
    if body.verb != "install" and not name:
        raise bad_request(f"{body.verb} needs name.", "name")
    if body.verb == "install" and not body.source:
        raise bad_request("install needs source.", "source")
    match body.verb:
        case "remove":
            await asyncio.to_thread(plugin_registry.remove_plugin, setup, name)
            return {"lines": [f"removed {name}"]}
        case "enable" | "disable" as verb:
            switch = partial(plugin_registry.switch_plugins, setup, [name])
            await asyncio.to_thread(partial(switch, enabled=verb == "enable"))
            return {
                "lines": [f"{name} is {'on from the next start' if verb == 'enable' else 'off'}"]
            }
        case verb:
            source = body.source if verb == "install" else ""
            return await review_bundle(setup, installer, source, name, body.confirm)


_get = partial(Route, "GET", scope="admin")
_post = partial(Route, "POST", scope="admin", errors=(404, 422))
ROUTES = (
    _get("/api/platforms", list_platforms, "platforms", PlatformList, errors=(404,)),
    _get("/api/pairing", list_people, "pairing", ObjectList, errors=(404,)),
    _post("/api/pairing", change_pairing, "pairing_change", ActionAnswer, PairingBody),
    _get("/api/mcp", list_mcp, "mcp_servers", ObjectList),
    _post("/api/mcp", change_mcp, "mcp_change", body=McpBody),
    _get("/api/plugins", list_plugins, "plugins", ObjectList),
    _post("/api/plugins", change_plugin, "plugin_change", body=PluginBody),
)
