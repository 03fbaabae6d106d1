"""What the server says about itself: its document, its figures, its tools."""

from __future__ import annotations

from html import escape

from hermes.server.http import web
from hermes.server.http.metrics import CONTENT_TYPE
from hermes.server.http.openapi import document
from hermes.server.http.response_schemas import Listed
from hermes.server.http.route import Call, Route


async def openapi(call: Call) -> web.StreamResponse:
    return call.answer(document(call.server.routes))


async def docs(call: Call) -> web.StreamResponse:
    rows = "".join(
        f"<tr><td><code>{r.method}</code></td><td><code>{escape(r.path)}</code></td>"
        f"<td>{escape(r.summary)}</td><td>{'no' if r.open else r.scope}</td></tr>"
        for r in sorted(call.server.routes, key=lambda r: (r.path, r.method))
    )
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Hermes API</title>'
        "<h1>Hermes API</h1><p>The protocols of OpenAI and Anthropic, with an agent behind them. "
        'The whole description: <a href="/openapi.json">/openapi.json</a>.</p>'
        "<table><tr><th>Method<th>Path<th>What it does<th>Key (scope)</tr>"
        f"{rows}</table></html>"
    )
    return web.Response(text=page, content_type="text/html")


async def metrics(call: Call) -> web.StreamResponse:
    server = call.server
    gauges = {
        "active_turns": server.active,
        "active_runs": len(server.runs),
        "connections": server.connections,
    }
    text = server.metrics.text(gauges)
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


async def toolsets(call: Call) -> web.StreamResponse:
    groups: dict[str, list[dict[str, str]]] = {}
    for tool in call.server.tools().values():
        entry = {"name": tool.name, "description": tool.description, "risk": tool.risk}
        groups.setdefault(tool.toolset, []).append(entry)
    data = [{"name": name, "tools": tools} for name, tools in sorted(groups.items())]
    return call.answer({"object": "list", "data": data})


async def skills(call: Call) -> web.StreamResponse:
    """Skills are not there yet: none of them is."""
    return call.answer({"object": "list", "data": []})


ROUTES = (
    Route("GET", "/openapi.json", openapi, "openapi", "This description."),
    Route("GET", "/docs", docs, "docs", "The same for people.", media="text/html"),
    Route(
        "GET",
        "/metrics",
        metrics,
        "metrics",
        "Figures for Prometheus.",
        scope="metrics",
        media="text/plain",
    ),
    Route(
        "GET",
        "/v1/toolsets",
        toolsets,
        "toolsets",
        "The tools the agent has here.",
        answer=Listed,
    ),
    Route(
        "GET",
        "/v1/skills",
        skills,
        "skills",
        "The skills the agent has here.",
        answer=Listed,
    ),
)
