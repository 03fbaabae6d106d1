"""What the operator sees and changes: running turns, usage, configuration, keys, rules, logs."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Annotated, Any, cast, get_args

from msgspec import Meta, Struct, structs, to_builtins

from hermes.app.live.log_records import LEVELS, make_filter, read_tail
from hermes.app.live.usage import first_day, sum_usage
from hermes.config import paths
from hermes.config.dotenv import remove_variable, set_variable
from hermes.config.instances import list_instances
from hermes.config.schema import list_key_variables
from hermes.config.secrets import read_dotenv
from hermes.core.errors import ConfigError
from hermes.core.ledger import By, UsageRow
from hermes.server.dashboard.config_editor import ConfigEdit, ConfigEditor
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request
from hermes.server.http.response_schemas import ObjectList
from hermes.server.route import Route, RouteServices, require_dashboard
from hermes.version import VERSION

_DAY = 86_400.0
_MAX_FAILED = 10
_MAX_RECORDS = 500
_LOWEST_LEVEL = "info"


class ChangeConfigBody(Struct):
    version: str
    changes: dict[str, Any]
    dry_run: bool = False
    confirm: str = ""


class RestoreBody(Struct):
    version: str


class KeyBody(Struct):
    value: Annotated[str, Meta(min_length=1, max_length=4096)]


class CheckBody(Struct):
    command: Annotated[str, Meta(min_length=1, max_length=20_000)]


class CheckAnswer(Struct):
    decision: str
    reasons: list[str]


async def get_overview(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get what runs, what waits for approval, today's cost and the last failures."""
    dashboard, runtime = require_dashboard(services), services.runtime
    running, waiting = [], []
    for live in dashboard.live.sessions:
        meta = live.session.transcript.meta
        row = {"session": live.id, "title": meta.title, "source": meta.source}
        if live.session.is_busy:
            running.append({**row, "doing": live.activity})
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
            "today": {**_describe_usage(today), "daily_usd": budget.daily_usd},
            "servers": instances,
            "failures": [
                structs.asdict(dashboard.describe_session(m)) for m in failed[:_MAX_FAILED]
            ],
        }
    )


def _describe_usage(row: UsageRow) -> dict[str, Any]:
    names = ("calls", "failed", "input", "output", "cache_read", "unpriced")
    return {**{n: getattr(row, n) for n in names}, "cost_usd": round(row.cost, 6)}


async def get_usage(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the usage of models by day and by one other property."""
    query = call.request.query
    by, days = query.get("by", "model"), query.get("days", "30")
    if by not in get_args(By):
        raise bad_request(f"by must be one of {', '.join(get_args(By))}.", "by")
    if not days.isdecimal() or not 1 <= int(days) <= 366:
        raise bad_request("days must be a number from 1 to 366.", "days")
    ledger, since = services.runtime.store.ledger, first_day(time.time(), int(days))
    by_day = await ledger.sum_calls("day", since)
    groups = await ledger.sum_calls(cast(By, by), since)
    data = {
        "days": [{"key": row.key, **_describe_usage(row)} for row in by_day],
        "groups": [{"key": row.key, **_describe_usage(row)} for row in groups[:100]],
        "total": _describe_usage(sum_usage(by_day)),
        "budget": structs.asdict(services.runtime.setup.config.budget),
    }
    return json_response(data)


def _open_editor(services: RouteServices) -> ConfigEditor:
    runtime = services.runtime
    return ConfigEditor(runtime.setup.home, runtime.store.objects, services.turns.redact)


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


async def list_keys(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the variables that hold keys, and whether they are set; never their values."""
    setup = services.runtime.setup
    file = paths.env_file(setup.home)
    stored = await asyncio.to_thread(read_dotenv, file) if file.exists() else {}
    names = {*list_key_variables(setup.config), *stored, *_COMMON_KEYS}
    data = [
        {
            "name": name,
            "set": bool(stored.get(name) or setup.secrets.get(name)),
            "from": ".env" if stored.get(name) else setup.secrets.find_source(name),
        }
        for name in sorted(names)
    ]
    return json_response(ObjectList("list", data))


async def set_key(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Store a key in .env; it is never shown again."""
    body = call.decode_body(KeyBody)
    return await _change_key(call, services, body.value)


async def remove_key(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Remove a key from .env."""
    return await _change_key(call, services, "")


async def _change_key(call: ApiCall, services: RouteServices, value: str) -> web.StreamResponse:
    home, name = services.runtime.setup.home, call.path_params["name"]
    try:
        if value:
            await asyncio.to_thread(set_variable, home, name, value)
        else:
            await asyncio.to_thread(remove_variable, home, name)
    except ConfigError as error:
        raise ApiError(
            422, str(error).replace(value or "\0", "[redacted]"), param="value"
        ) from None
    return json_response({"name": name, "set": bool(value)})


async def check_command(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Say what the rules decide about a command; nothing is run."""
    from hermes.exec.command_policy import judge_command
    from hermes.exec.command_policy.rules import CommandRules

    body = call.decode_body(CheckBody)
    setup = services.runtime.setup
    rules = CommandRules.load_rules(list(setup.config.approvals.rules))
    judge = partial(
        judge_command,
        body.command,
        workspace=services.runtime.working_folder,
        home=setup.home,
        rules=rules,
        sandboxed=setup.config.sandbox.mode != "full-access",
    )
    judged = await asyncio.to_thread(judge)
    return json_response(CheckAnswer(judged.decision, list(judged.reasons)))


async def list_logs(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the last records of the log, the newest last."""
    query = call.request.query
    level, words = query.get("level", _LOWEST_LEVEL), query.get("q", "").lower()[:200]
    if level not in LEVELS:
        raise bad_request(f"level must be one of {', '.join(LEVELS)}.", "level")
    matches = make_filter(level, "")

    def is_wanted(record: dict[str, Any]) -> bool:
        return matches(record) and words in str(record.get("message", "")).lower()

    file = paths.log_file(services.runtime.setup.home)
    found, _ = await asyncio.to_thread(read_tail, file, _MAX_RECORDS, is_wanted)
    return json_response(ObjectList("list", found))


_COMMON_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY")
_CONFIG, _KEY = "/api/config", "/api/keys/{name}"
_get = partial(Route, "GET", scope="admin")
_post = partial(Route, "POST", scope="admin", errors=(409, 422))
ROUTES = (
    _get("/api/overview", get_overview, "overview"),
    _get("/api/usage", get_usage, "usage", query=("by", "days")),
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
    _get("/api/keys", list_keys, "keys", ObjectList),
    Route("PUT", _KEY, set_key, "key_set", body=KeyBody, scope="admin", errors=(422,)),
    Route("DELETE", _KEY, remove_key, "key_remove", scope="admin", errors=(422,)),
    _post("/api/approvals/check", check_command, "command_check", CheckAnswer, CheckBody),
    _get("/api/logs", list_logs, "logs", ObjectList, query=("level", "q")),
)
