"""The conversation of an item in the formats of training data."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from hermes.core.message import Message, Text, Thinking, ToolCall, ToolReturn
from hermes.core.provider import ToolSpec
from hermes.tools.registry import list_tool_names

Format: TypeAlias = Literal["hermes", "openai", "sharegpt", "raw", "parquet"]
FORMATS: tuple[Format, ...] = ("hermes", "openai", "sharegpt", "raw", "parquet")
_GUIDANCE = (
    "\n\n[OUT-OF-BAND USER MESSAGE — a direct message from the user, delivered mid-turn; not tool "
    "output]\n{text}\n[/OUT-OF-BAND USER MESSAGE]"
)
"""How the original marks what a person says while a tool runs."""
_LINE_ENDS = (
    (b"\xc2\x85", b"\\u0085"),
    (b"\xe2\x80\xa8", b"\\u2028"),
    (b"\xe2\x80\xa9", b"\\u2029"),
)
_NO_TEXT = "[multimodal tool result]"
"""What the original writes for a result that is only an image."""


class DeclaredTools:
    """The tools that conversations declared: name, description, parameters."""

    def __init__(self, rows: Sequence[Mapping[str, Any]] = ()) -> None:
        self.rows = rows

    @cached_property
    def preamble(self) -> str:
        """Tells a model that is trained on this how calls and results are written."""
        return (
            "You can call functions. Their signatures are inside <tools></tools>, as JSON. To call "
            "one, write a JSON object with its `name` and `arguments` inside "
            "<tool_call></tool_call>; several calls may follow each other. Results come back "
            "inside <tool_response></tool_response>. Where no function helps, just answer.\n"
            f"<tools>\n{_dump(self.rows)}\n</tools>"
        )


class Trajectory(Struct, frozen=True):
    """What an item's conversation was, and about it."""

    number: int
    id: str
    state: str
    messages: tuple[Message, ...]
    system: str
    model: str
    time: str
    tools: DeclaredTools = DeclaredTools()
    toolsets: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    session: str = ""


class ToolCounts(Struct):
    count: int = 0
    success: int = 0
    failure: int = 0


def describe_tools(specs: Iterable[ToolSpec]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"name": s.name, "description": s.description, "parameters": s.parameters} for s in specs
    )


def count_calls(messages: Iterable[Message]) -> dict[str, ToolCounts]:
    """How often each tool was called, and how that ended."""
    counts: dict[str, ToolCounts] = {}
    names: dict[str, str] = {}
    for message in messages:
        for call in message.calls:
            names[call.id] = call.name
            counts.setdefault(call.name, ToolCounts()).count += 1
        for result in _list_returns(message):
            name = names.get(result.call_id, result.name)
            found = counts.setdefault(name, ToolCounts())
            if result.error or (name not in list_tool_names() and _tells_failure(result.text)):
                found.failure += 1
            else:
                found.success += 1
    return counts


def _tells_failure(text: str) -> bool:
    """Whether the text of a tool of somebody else says that it failed, as the original reads it."""
    if not text.lstrip().startswith("{"):
        return text.lstrip().lower().startswith("error:")
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return row.get("error") is not None or row.get("success") is False


def format_trajectory(found: Trajectory, form: Format, tool_names: Collection[str]) -> bytes:
    """One line, without its end. `tool_names`: all tools there are, so that every line of a file
    has the same columns."""
    match form:
        case "hermes":
            return encode_line(_format_hermes(found, tool_names))
        case "openai":
            return encode_line(_format_openai(found))
        case "sharegpt":
            return encode_line({"conversations": list(_list_sharegpt(found))})
        case _:
            return encode_line(_format_raw(found))


def encode_line(row: Any) -> bytes:
    """JSON that is one line for every reader: some take other characters than \\n for its end."""
    line = msgspec.json.encode(row)
    for end, escaped in _LINE_ENDS:
        line = line.replace(end, escaped)
    return line


def _format_raw(found: Trajectory) -> dict[str, Any]:
    return {
        "id": found.id,
        "state": found.state,
        "session": found.session,
        "system": found.system,
        "messages": found.messages,
        "metadata": found.metadata,
    }


def _format_hermes(found: Trajectory, tool_names: Collection[str]) -> dict[str, Any]:
    counted = count_calls(found.messages)
    stats = dict.fromkeys(sorted({*tool_names, *counted}), ToolCounts())
    stats.update(counted)
    return {
        "prompt_index": found.number,
        "conversations": [
            {"from": "system", "value": found.tools.preamble},
            *_list_turns(found.messages),
        ],
        "metadata": {"batch_num": 0, "timestamp": found.time, "model": found.model},
        "completed": found.state in ("done", "filtered"),
        "partial": found.state == "partial",
        "api_calls": sum(message.role == "assistant" for message in found.messages),
        "toolsets_used": list(found.toolsets),
        "tool_stats": stats,
        "tool_error_counts": {name: row.failure for name, row in stats.items()},
    }


def _list_turns(messages: Sequence[Message]) -> Iterable[dict[str, str]]:
    """A tool turn holds all results of a step; guidance that came with them ends the last one."""
    results: list[ToolReturn] = []
    guidance = ""
    for message in _order_results(messages):
        if message.role == "tool":
            results += _list_returns(message)
            continue
        if results and message.kind == "steer":
            guidance += _GUIDANCE.format(text=message.text)
            continue
        if results:
            yield _write_tool_turn(results, guidance)
            results, guidance = [], ""
        if message.role == "user":
            yield {"from": "human", "value": message.text}
        else:
            yield {"from": "gpt", "value": _write_answer(message)}
    if results:
        yield _write_tool_turn(results, guidance)


def _join_thinking(message: Message) -> str:
    """The reasoning; only where the provider returned none, what stood in tags of the text, without
    the white space at its ends."""
    found = [part for part in message.parts if isinstance(part, Thinking) and part.text]
    own = [part.text for part in found if part.extra]
    return "\n".join(own or [part.text.strip() for part in found])


def _write_tool_turn(results: Sequence[ToolReturn], guidance: str) -> dict[str, str]:
    *first, last = results
    written = [*map(_write_response, first), _write_response(last, guidance)]
    return {"from": "tool", "value": "\n".join(written)}


def _write_answer(message: Message) -> str:
    thinking = _join_thinking(message)
    head = f"<think>\n{thinking}\n</think>\n" if thinking.strip() else ""
    text = message.text.strip()
    if not message.calls:
        body = head + text
        return (body if "<think>" in body else f"<think>\n</think>\n{body}").strip()
    body = head + (f"{text}\n" if text else "")
    for call in message.calls:
        written = _write_call(call)
        body += f"<tool_call>\n{written}\n</tool_call>\n"
    return (body if "<think>" in body else f"<think>\n</think>\n{body}").rstrip()


def _write_response(found: ToolReturn, guidance: str = "") -> str:
    is_picture = any(not isinstance(part, Text) for part in found.content)
    content = (found.text or _NO_TEXT * is_picture) + guidance
    row: dict[str, Any] = {"tool_call_id": found.call_id, "name": found.name, "content": content}
    written = _dump(row)
    if content.strip().startswith(("{", "[")):
        with suppress(ValueError, RecursionError):
            written = _dump({**row, "content": json.loads(content)})
    return f"<tool_response>\n{written}\n</tool_response>"


def _format_openai(found: Trajectory) -> dict[str, Any]:
    return {
        "messages": list(list_openai_messages(found)),
        "tools": list_openai_tools(found),
        "metadata": {"id": found.id, **found.metadata},
    }


def list_openai_tools(found: Trajectory) -> list[dict[str, Any]]:
    return [{"type": "function", "function": tool} for tool in found.tools.rows]


def list_openai_messages(found: Trajectory) -> Iterable[dict[str, Any]]:
    if found.system:
        yield _openai_row("system", found.system)
    for message in _order_results(found.messages):
        if message.role == "user":
            yield _openai_row("user", message.text)
        elif message.role == "assistant":
            calls = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.args or "{}"},
                }
                for call in message.calls
            ]
            yield _openai_row(
                "assistant", message.text, calls=calls, reasoning=message.thinking or None
            )
        else:
            for result in _list_returns(message):
                yield _openai_row("tool", result.text, call_id=result.call_id)


def _openai_row(
    role: str,
    content: str,
    *,
    calls: list[dict[str, Any]] | None = None,
    reasoning: str | None = None,
    call_id: str | None = None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"role": role, "content": content}
    if calls:
        row["tool_calls"] = calls
    if reasoning is not None:
        row["reasoning_content"] = reasoning
    if call_id is not None:
        row["tool_call_id"] = call_id
    return row


def _list_sharegpt(found: Trajectory) -> Iterable[dict[str, str]]:
    if found.system:
        yield {"from": "system", "value": found.system}
    for message in _order_results(found.messages):
        if message.role == "user":
            yield {"from": "human", "value": message.text}
        elif message.role == "assistant":
            if message.text or not message.calls:
                yield {"from": "gpt", "value": message.text}
            for call in message.calls:
                yield {"from": "function_call", "value": _write_call(call)}
        else:
            for result in _list_returns(message):
                yield {"from": "observation", "value": result.text}


def _order_results(messages: Iterable[Message]) -> Iterable[Message]:
    """The results of a step in the order of its calls: they are stored as the calls end."""
    places: dict[str, int] = {}
    waiting: list[tuple[int, Message]] = []
    for message in messages:
        if message.role == "tool":
            ids = [places.get(found.call_id, len(places)) for found in _list_returns(message)]
            waiting.append((min(ids, default=len(places)), message))
            continue
        yield from _sort_waiting(waiting)
        waiting.clear()
        if message.calls:
            places = {call.id: place for place, call in enumerate(message.calls)}
        yield message
    yield from _sort_waiting(waiting)


def _sort_waiting(waiting: Iterable[tuple[int, Message]]) -> list[Message]:
    return [message for _, message in sorted(waiting, key=lambda row: row[0])]


def _list_returns(message: Message) -> list[ToolReturn]:
    return [part for part in message.parts if isinstance(part, ToolReturn)]


def _write_call(call: ToolCall) -> str:
    try:
        return _dump({"name": call.name, "arguments": json.loads(call.args or "{}")})
    except (ValueError, RecursionError):
        return _dump({"name": call.name, "arguments": {}})


def _dump(value: Any) -> str:
    """JSON with the white space of Python's own, as the original writes it. Half a character, which
    JSON can name, stays escaped."""
    text = _encode_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


_encode_text = json.JSONEncoder(ensure_ascii=False).encode
