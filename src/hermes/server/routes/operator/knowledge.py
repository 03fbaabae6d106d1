"""What the agent remembers: the facts of each scope, and changes that wait for approval."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hermes.core.errors import ConfigError
from hermes.core.store import Fact
from hermes.memory.commands import run_verb
from hermes.memory.notebook import Notebook
from hermes.memory.scope import PROFILE, MemoryScope
from hermes.server.http import web
from hermes.server.http.call import ApiCall, json_response
from hermes.server.http.errors import ApiError
from hermes.server.http.response_schemas import ObjectList
from hermes.server.route import Route, RouteServices


class MemoryBody(Struct):
    verb: Literal["add", "remove", "restore", "approve", "reject"]
    words: Annotated[str, Meta(min_length=1, max_length=2000)]
    """The text of a new fact, or the id of one."""
    target: Literal["memory", "user"] | None = None
    scope: str = PROFILE


class MemoryAnswer(Struct):
    lines: list[str]


def _open_notebook(services: RouteServices, scope: str) -> Notebook:
    runtime = services.runtime
    setup, chosen = runtime.setup, MemoryScope(scope, scope)
    redact = services.turns.redact
    return Notebook(runtime.store.facts, setup.home, setup.config.memory, chosen, redact)


async def list_memory(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """List the scopes of the memory with their facts and pending changes."""
    facts = services.runtime.store.facts
    names = [name for name, _ in await facts.read(lambda table: table.list_scopes())]
    data: list[dict[str, Any]] = []
    for scope in dict.fromkeys((PROFILE, *names)):
        book = _open_notebook(services, scope)
        known = [_describe_fact(fact) for fact in await book.list_facts(limit=500)]
        pending = [_describe_fact(fact) for fact in await book.list_pending()]
        data.append({"scope": scope, "facts": known, "pending": pending})
    return json_response(ObjectList("list", data))


def _describe_fact(fact: Fact) -> dict[str, Any]:
    shown = ("name", "target", "text", "state", "created", "session", "origin", "action")
    return {name: getattr(fact, name) for name in shown}


async def change_memory(call: ApiCall, services: RouteServices) -> web.StreamResponse:
    """Add, remove or restore a fact, approve or reject a pending change."""
    body = call.decode_body(MemoryBody)
    book = _open_notebook(services, body.scope)
    try:
        lines = await run_verb(book, body.verb, [body.words], body.target)
    except ConfigError as error:
        raise ApiError(422, str(error), param="words", code="invalid") from None
    return json_response(MemoryAnswer(lines))


_PATH = "/api/memory"
ROUTES = (
    Route("GET", _PATH, list_memory, "memory", ObjectList, scope="admin"),
    Route(
        "POST",
        _PATH,
        change_memory,
        "memory_change",
        MemoryAnswer,
        MemoryBody,
        scope="admin",
        errors=(422,),
    ),
)
