"""Health: the doctor with its repairs, and the log."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from msgspec import Struct, to_builtins

from hermes.app.control.doctor import home
from hermes.app.control.doctor.check import Check
from hermes.app.control.doctor.examination import REPAIRABLE, run_checks
from hermes.app.live.log_records import LEVELS, make_filter, read_tail
from hermes.config import paths
from hermes.config.load import reload_setup
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request
from hermes.server.http.response_schemas import ObjectList
from hermes.server.route import Route, RouteServices

_MAX_RECORDS = 500
_LOWEST_LEVEL = "info"


class DoctorBody(Struct):
    online: bool = False
    """Whether to test the key at the provider, too."""


class RepairAnswer(Struct):
    lines: list[str]
    """What was done."""
    check: dict[str, Any]
    """The check, made again."""


async def examine_home(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Check this installation."""
    body, setup = call.decode_optional_body(DoctorBody), services.runtime.setup
    desk = services.open_messengers() if services.open_messengers else None
    checks = await run_checks(
        setup.home,
        partial(reload_setup, setup),
        desk.check_connections if desk else None,
        online=body.online,
    )
    rows = [_describe_check(check, services) for check in checks]
    return json_response(ObjectList("list", rows))


def _describe_check(check: Check, services: RouteServices) -> dict[str, Any]:
    redact = services.turns.redact
    row: dict[str, Any] = to_builtins(check)
    row |= {"text": redact(check.text), "details": [redact(line) for line in check.details]}
    return {**row, "fixable": check.state != "ok" and check.name in REPAIRABLE}


async def repair_check(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Repair what a check found."""
    name, folder = call.path_params["check"], services.runtime.setup.home
    if name not in REPAIRABLE:
        text = f"{name} cannot be repaired from here. Nothing was changed. Run: hermes doctor --fix"
        raise ApiError(409, text, code="not_fixable")
    done = await asyncio.to_thread(home.repair_home, folder)
    again = home.check_leftovers if name == "leftovers" else partial(_check_home, services)
    check = await asyncio.to_thread(again, folder)
    redact = services.turns.redact
    lines = [redact(line) for line in (done.text, *done.details)]
    return json_response(RepairAnswer(lines, _describe_check(check, services)))


def _check_home(services: RouteServices, folder: Any) -> Check:
    return home.check_permissions(folder, ())


async def list_logs(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the last records of the log, or those before a time; the newest last."""
    query = call.request.query
    level, words = query.get("level", _LOWEST_LEVEL), query.get("q", "").lower()[:200]
    before = query.get("before", "")[:40]
    if level not in LEVELS:
        raise bad_request(f"level must be one of {', '.join(LEVELS)}.", "level")
    matches = make_filter(level, "")

    def is_wanted(record: dict[str, Any]) -> bool:
        if before and str(record.get("time", "")) >= before:
            return False
        return matches(record) and words in str(record.get("message", "")).lower()

    file = paths.log_file(services.runtime.setup.home)
    found, _ = await asyncio.to_thread(read_tail, file, _MAX_RECORDS, is_wanted)
    return json_response(ObjectList("list", found))


_post = partial(Route, "POST", scope="admin")
ROUTES = (
    _post("/api/doctor", examine_home, "doctor", ObjectList, DoctorBody, body_optional=True),
    _post("/api/doctor/{check}/fix", repair_check, "doctor_fix", RepairAnswer, errors=(409,)),
    Route(
        "GET",
        "/api/logs",
        list_logs,
        "logs",
        ObjectList,
        scope="admin",
        query=("level", "q", "before"),
    ),
)
