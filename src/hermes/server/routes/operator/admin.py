"""What the operator sees and changes: running turns, what waits, the configuration."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from msgspec import Struct, to_builtins

from hermes.app.live.usage import describe_usage, first_day, sum_usage
from hermes.config.instances import list_instances
from hermes.server.dashboard.config_editor import ConfigEdit, ConfigEditor
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import bad_request
from hermes.server.http.response_schemas import ObjectList
from hermes.server.route import Route, RouteServices, require_dashboard
from hermes.version import VERSION

_DAY = 86_400.0
_MAX_FAILED = 10


class ChangeConfigBody(Struct):
    version: str
    changes: dict[str, Any]
    dry_run: bool = False
    confirm: str = ""


class RestoreBody(Struct):
    version: str


async def get_overview(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get what runs, what waits for approval, today's cost and the last failures."""
    dashboard, runtime = require_dashboard(services), services.runtime
    running, waiting = [], []
    for live in dashboard.live.sessions:
        meta = live.session.transcript.meta
        row = {"session": live.id, "title": meta.title, "source": meta.source}
        if live.session.is_busy:
            running.append({**row, **live.describe_activity()})
        waiting += [{**row, "approval": asked.describe()} for asked in live.approvals]
    recent = await runtime.store.sessions.list_recent(limit=200)
    limit = time.time() - 7 * _DAY
    failed = [m for m in recent if m.state in ("failed", "interrupted") and m.updated > limit]
    rows = await runtime.store.ledger.sum_calls("day", first_day(time.time(), 1))
    today, budget = sum_usage(rows), runtime.setup.config.budget
    instances = to_builtins(list_instances(runtime.setup.home))
    return json_response(
        {
            "version": VERSION,
            "running": running,
            "waiting": waiting,
            "today": {**describe_usage(today), "daily_usd": budget.daily_usd},
            "servers": instances,
            "failures": [dashboard.describe_session(m) for m in failed[:_MAX_FAILED]],
        }
    )


def _open_editor(services: RouteServices) -> ConfigEditor:
    runtime = services.runtime
    setup = runtime.setup
    return ConfigEditor(
        setup.home, runtime.store.objects, services.turns.redact, setup.config, setup.secrets
    )


async def get_config(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the configuration with its schema, without secrets."""
    return json_response(await asyncio.to_thread(_open_editor(services).describe))


async def change_config(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Change keys of config.yaml, all or none; comments and order stay."""
    body = call.decode_body(ChangeConfigBody)
    if not body.changes:
        raise bad_request("changes is empty.", "changes")
    done = await _open_editor(services).change(
        body.version, body.changes, dry_run=body.dry_run, confirm=body.confirm
    )
    return json_response(done)


async def list_config_versions(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the earlier versions of config.yaml."""
    return json_response(ObjectList("list", await _open_editor(services).list_versions()))


async def restore_config(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Go back to an earlier version of config.yaml."""
    body = call.decode_body(RestoreBody)
    return json_response(await _open_editor(services).restore(body.version))


_CONFIG = "/api/config"
_get = partial(Route, "GET", scope="admin")
_post = partial(Route, "POST", scope="admin", errors=(409, 422))
ROUTES = (
    _get("/api/overview", get_overview, "overview"),
    _get(_CONFIG, get_config, "config"),
    Route(
        "PATCH",
        _CONFIG,
        change_config,
        "config_change",
        ConfigEdit,
        ChangeConfigBody,
        scope="admin",
        errors=(409, 422),
    ),
    _get(f"{_CONFIG}/versions", list_config_versions, "config_versions", ObjectList),
    _post(f"{_CONFIG}/restore", restore_config, "config_restore", ConfigEdit, RestoreBody),
)
