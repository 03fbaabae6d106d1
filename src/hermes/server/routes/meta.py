"""The API document, metrics and tools of the server."""

from html import escape

from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.metrics import CONTENT_TYPE
from hermes.server.http.response_schemas import ObjectList
from hermes.server.openapi import build_document
from hermes.server.route import Route, RouteServices
from hermes.server.turns.sessions import SOURCE
from hermes.tools.registry import select_tools


async def get_openapi(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get this OpenAPI document."""
    return json_response(build_document(services.list_routes()))


async def get_docs(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get a readable list of all endpoints."""
    rows = "".join(
        f"<tr><td><code>{r.method}</code></td><td><code>{escape(r.path)}</code></td>"
        f"<td>{escape(r.summary)}</td><td>{'no' if r.public else r.scope}</td></tr>"
        for r in sorted(services.list_routes(), key=lambda r: (r.path, r.method))
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Hermes API</title>'
        "<h1>Hermes API</h1><p>An agent behind the protocols of OpenAI and Anthropic. "
        'Full description: <a href="/openapi.json">/openapi.json</a>.</p>'
        "<table><tr><th>Method<th>Path<th>What it does<th>Key (scope)</tr>"
        f"{rows}</table></html>"
    )
    return web.Response(text=page, content_type="text/html")


async def get_metrics(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get metrics in the text format of Prometheus."""
    if services.metrics.measure is not None:
        await services.metrics.measure()
    text = services.metrics.render()
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


async def list_toolsets(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the tools of the agent by toolset."""
    config = services.runtime.setup.config
    tools = select_tools(services.settings.toolsets, platform=SOURCE, settings=config.tools)
    groups: dict[str, list[dict[str, str]]] = {}
    for tool in tools.values():
        entry = {"name": tool.name, "description": tool.description, "risk": tool.risk}
        groups.setdefault(tool.toolset, []).append(entry)
    data = [{"name": name, "tools": entries} for name, entries in sorted(groups.items())]
    return json_response(ObjectList("list", data))


async def list_skills(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the skills of the agent; there are none yet."""
    return json_response(ObjectList("list", []))


ROUTES = (
    Route("GET", "/openapi.json", get_openapi, "openapi"),
    Route("GET", "/docs", get_docs, "docs", media="text/html"),
    Route("GET", "/metrics", get_metrics, "metrics", scope="metrics", media="text/plain"),
    Route("GET", "/v1/toolsets", list_toolsets, "toolsets", ObjectList),
    Route("GET", "/v1/skills", list_skills, "skills", ObjectList),
)
