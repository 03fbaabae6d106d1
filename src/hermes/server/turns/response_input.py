"""The input of a response or a run: a string, or items of which the last said to us is the turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from hermes.core.message import Message, Text, ToolCall
from hermes.server.http.errors import bad
from hermes.server.turns.client_tools import returned
from hermes.server.turns.content import parts_of, visible

_IGNORED = frozenset({"tool", "function"})


class Given(Struct, frozen=True):
    system: str
    """For this turn only."""
    before: tuple[Message, ...]
    prompt: Message


def read_input(given: Any, made: dict[str, str] | None = None) -> Given:
    """`made`: the calls so far, by id, when the client runs them; else they are left out."""
    if isinstance(given, str):
        if not given.strip():
            raise bad("input must not be empty.", "input")
        return Given("", (), Message("user", (Text(given),)))
    if not isinstance(given, list) or not given:
        raise bad("input must be a string or a list of items.", "input")
    system, spoken = _spoken(given, made, "input")
    last = len(spoken) - 1
    while last >= 0 and spoken[last].role == "assistant":
        last -= 1
    if last < 0 or not (spoken[last].role == "tool" or visible(spoken[last])):
        raise bad("input: there is no user item with visible content.", "input")
    before = tuple(m for m in spoken[:last] if m.role == "tool" or m.calls or visible(m))
    return Given(system, before, spoken[last])


def read_history(given: Sequence[Any], where: str) -> Given:
    """Items of which none is the turn."""
    system, spoken = _spoken(given, None, where)
    return Given(system, tuple(m for m in spoken if visible(m)), Message("user", ()))


def _spoken(
    given: Sequence[Any], made: dict[str, str] | None, name: str
) -> tuple[str, list[Message]]:
    system: list[str] = []
    spoken: list[Message] = []
    for n, item in enumerate(given):
        where = f"{name}[{n}]"
        if not isinstance(item, dict):
            raise bad(f"{where} must be an object.", where)
        role = item.get("role")
        if role in ("user", "assistant"):
            spoken.append(Message(role, parts_of(item.get("content"), f"{where}.content")))
        elif role in ("system", "developer"):
            system.append(Message("user", parts_of(item.get("content"), f"{where}.content")).text)
        elif role in _IGNORED:
            continue
        elif role is None and item.get("type", "message") != "message":
            if made is not None:
                _tool_item(item, made, spoken, where)
        else:
            raise bad(f"{where}.role is unknown.", f"{where}.role")
    return "\n\n".join(filter(None, system)), spoken


def _tool_item(
    item: dict[str, Any], made: dict[str, str], spoken: list[Message], where: str
) -> None:
    """A call we asked the client for, or what came of it; others are not ours to read."""
    call_id = item.get("call_id")
    match item.get("type"):
        case "function_call":
            name, args = item.get("name"), item.get("arguments", "{}")
            if not all(isinstance(text, str) for text in (call_id, name, args)):
                raise bad(f"{where} must have a call_id, a name and arguments.", where)
            made[str(call_id)] = str(name)
            call = ToolCall(str(call_id), str(name), str(args))
            if spoken and spoken[-1].role == "assistant":  # what one answer held stays together
                spoken[-1] = Message("assistant", (*spoken[-1].parts, call))
            else:
                spoken.append(Message("assistant", (call,)))
        case "function_call_output":
            spoken.append(returned(call_id, item.get("output"), made, where))
        case _:
            return
