"""The operator's rules about commands: listed, tried, added, removed."""

from __future__ import annotations

import asyncio
import hashlib
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hermes.config.yaml_edit import render_value
from hermes.core.errors import ConfigError
from hermes.exec.command_policy import judge_command
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError, bad_request, not_found
from hermes.server.http.response_schemas import DeletedObject, ObjectList
from hermes.server.route import Route, RouteServices


class CheckBody(Struct):
    command: Annotated[str, Meta(min_length=1, max_length=20_000)]


class CheckAnswer(Struct):
    decision: str
    reasons: list[str]


class RuleBody(Struct):
    decision: Literal["allow", "ask", "deny"]
    prefix: Annotated[str, Meta(min_length=1, max_length=1000)]
    """How the commands begin, as it would be typed."""
    reason: Annotated[str, Meta(max_length=200)] = ""


class RuleAnswer(Struct):
    id: str
    rule: dict[str, Any]
    text: str
    """As it stands in config.yaml."""


async def check_command(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Say what the rules decide about a command; nothing is run."""
    body, runtime = call.decode_body(CheckBody), services.runtime
    judge = partial(
        judge_command,
        body.command,
        workspace=runtime.working_folder,
        home=runtime.setup.home,
        rules=runtime.services.rulebook.rules,
        sandboxed=runtime.setup.config.sandbox.mode != "full-access",
    )
    judged = await asyncio.to_thread(judge)
    return json_response(CheckAnswer(judged.decision, list(judged.reasons)))


async def list_rules(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the rules in the order of config.yaml."""
    rules = services.runtime.services.rulebook.rule_data
    data = [msgspec.to_builtins(_describe_rule(rule)) for rule in rules]
    return json_response(ObjectList("list", data))


def _describe_rule(rule: dict[str, Any]) -> RuleAnswer:
    return RuleAnswer(_hash_rule(rule), rule, render_value(rule))


def _hash_rule(rule: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(rule, order="sorted")).hexdigest()[:16]


async def add_rule(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Add a rule; it counts at once."""
    body = call.decode_body(RuleBody)
    rule = {"decision": body.decision, "prefix": body.prefix}
    if body.reason:
        rule["reason"] = body.reason
    try:
        await services.runtime.services.rulebook.add_rule(rule)
    except ConfigError as error:
        raise ApiError(422, str(error), param="prefix", code="invalid") from None
    return json_response(_describe_rule(rule), 201)


async def remove_rule(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Remove a rule."""
    wanted, rulebook = call.request.query.get("id", ""), services.runtime.services.rulebook
    if not wanted:
        raise bad_request("id is required.", "id")
    rule = next((rule for rule in rulebook.rule_data if _hash_rule(rule) == wanted), None)
    if rule is None:
        raise not_found("rule", wanted)
    try:
        await rulebook.remove_rule(rule)
    except ConfigError as error:
        raise ApiError(422, str(error), param="id", code="invalid") from None
    return json_response(DeletedObject(wanted, "hermes.rule", True))


_RULES = "/api/approvals/rules"
_route = partial(Route, scope="admin")
ROUTES = (
    _route("POST", "/api/approvals/check", check_command, "command_check", CheckAnswer, CheckBody),
    _route("GET", _RULES, list_rules, "rules", ObjectList),
    _route("POST", _RULES, add_rule, "rule_add", RuleAnswer, RuleBody, status=201, errors=(422,)),
    _route(
        "DELETE",
        _RULES,
        remove_rule,
        "rule_remove",
        DeletedObject,
        query=("id",),
        errors=(404, 422),
    ),
)
