"""Skills: what there is, which are on, and changes that the agent proposes."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.app.control import skill_registry
from hermes.app.control.bundle_source import describe_bundle, review_bundle
from hermes.config.load import Setup, reload_setup
from hermes.core.errors import ConfigError
from hermes.core.untrusted_text import reveal_hidden
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request, not_found
from hermes.server.http.response_schemas import ObjectList
from hermes.server.route import Route, RouteServices
from hermes.skills.bundle import SkillBundle, read_folder
from hermes.skills.proposals import SkillProposals, show_change

_MAX_SHOWN = 200_000


class SkillList(ObjectList):
    pending: list[dict[str, Any]]
    """What the agent proposes, each with its difference."""


class SkillBody(Struct):
    verb: Literal[
        "enable", "disable", "remove", "restore", "approve", "reject", "install", "update"
    ]
    name: Annotated[str, Meta(max_length=100, pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$")] | None = (
        None
    )
    """The name of a skill; approve, reject: the id of a proposed change."""
    source: Annotated[str, Meta(max_length=1000)] = ""
    """install: a folder, a git address, owner/repo, or an archive."""
    confirm: Annotated[str, Meta(max_length=100)] = ""
    """install, update: the digest of what was shown; empty: show it."""


async def list_skills(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the skills, where they are from, and changes that wait for approval."""
    runtime = services.runtime
    setup = await asyncio.to_thread(reload_setup, runtime.setup)
    words = call.request.query.get("q", "")[:200]
    rows = await asyncio.to_thread(
        skill_registry.describe_skills, setup, runtime.working_folder, words
    )
    installer = skill_registry.open_skill_installer(setup)
    records = await asyncio.to_thread(installer.read_records)
    for row in rows:
        row["disabled"] = "disabled" in row
        record = records.get(row["name"])
        row["installed_from"] = record.source if record else ""
        row["changed"] = installer.find_changes(row["name"]) if record else []
    proposals = SkillProposals(runtime.store.objects, installer)
    pending = [
        {**row, "diff": show_change(await proposals.take_change(row["id"]))[:_MAX_SHOWN]}
        for row in await skill_registry.describe_proposals(proposals)
    ]
    return json_response(SkillList("list", rows, pending))


async def get_skill(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Get the text of a skill, its files, and what a scan finds in them."""
    name, runtime = call.path_params["name"], services.runtime
    setup = await asyncio.to_thread(reload_setup, runtime.setup)
    found = await asyncio.to_thread(skill_registry.list_skills, setup, runtime.working_folder)
    skill = next((skill for skill in found if skill.name == name), None)
    if skill is None:
        raise not_found("skill", name)
    files = await asyncio.to_thread(read_folder, Path(skill.folder))
    bundle = SkillBundle(skill.name, files, skill.folder)
    shown = describe_bundle(skill_registry.open_skill_installer(setup), bundle)
    text = files.get("SKILL.md", b"").decode("utf-8", "replace")
    return json_response({**shown, "diff": "", "text": reveal_hidden(text)[:_MAX_SHOWN]})


async def change_skill(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Install, update, switch, remove or restore a skill, or decide about a proposed change."""
    body = call.decode_body(SkillBody)
    if body.verb != "install" and not body.name:
        raise bad_request(f"{body.verb} needs name.", "name")
    if body.verb == "install" and not body.source:
        raise bad_request("install needs source.", "source")
    setup = await asyncio.to_thread(reload_setup, services.runtime.setup)
    try:
        return json_response(await _run_verb(body, services, setup))
    except ConfigError as error:
        text = services.turns.redact(str(error))
        raise ApiError(422, text, param="name", code="invalid") from None


async def _run_verb(body: SkillBody, services: RouteServices, setup: Setup) -> dict[str, Any]:
    runtime, name = services.runtime, body.name or ""
    installer = skill_registry.open_skill_installer(setup)
    match body.verb:
        case "enable" | "disable" as verb:
            switch = partial(skill_registry.switch_skills, setup, runtime.working_folder, [name])
            await asyncio.to_thread(partial(switch, enabled=verb == "enable"))
            return {"lines": [f"{name} is {'on' if verb == 'enable' else 'off'}"]}
        case "remove":
            await asyncio.to_thread(installer.remove_skill, name)
            return {"lines": [f"removed {name}"]}
        case "restore":
            await asyncio.to_thread(installer.restore_skill, name)
            return {"lines": [f"restored {name}"]}
        case "approve" | "reject" as verb:
            proposals = SkillProposals(runtime.store.objects, installer)
            await skill_registry.decide_proposal(proposals, name, approved=verb == "approve")
            return {"lines": [f"{'approved' if verb == 'approve' else 'rejected'} {name}"]}
        case verb:
            source = body.source if verb == "install" else ""
            return await review_bundle(setup, installer, source, name, body.confirm)


_ALL = "/api/skills"
ROUTES = (
    Route("GET", _ALL, list_skills, "skills", SkillList, scope="admin", query=("q",)),
    Route("GET", f"{_ALL}/{{name}}", get_skill, "skill", scope="admin", errors=(404,)),
    Route(
        "POST", _ALL, change_skill, "skill_change", body=SkillBody, scope="admin", errors=(404, 422)
    ),
)
