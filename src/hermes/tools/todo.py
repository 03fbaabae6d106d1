"""Keeps the model's list of planned steps for the session."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from hermes.core.errors import ToolError
from hermes.core.message import Message, ToolCall, ToolReturn
from hermes.core.services import ServiceKey
from hermes.core.tool import ToolContext, ToolResult, tool

MAX_ITEMS = 200
MAX_LENGTH = 2000
_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]", "cancelled": "[-]"}


class Todo(Struct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed", "cancelled"] | None = None
    id: str | None = None


TODO_LIST: ServiceKey[list[Todo]] = ServiceKey("todo list")


class Params(Struct, frozen=True):
    todos: list[Todo] | None = None


@tool(
    "Plan work of several steps: replaces the whole list; without `todos` shows it.", lasting=True
)
async def todo(p: Params, ctx: ToolContext) -> ToolResult:
    if p.todos is not None:
        ctx.services.set(TODO_LIST, _check_todos(p.todos))
    items = ctx.services.get(TODO_LIST)
    if not items:
        return ToolResult("The list is empty.", data=[])
    done = sum(item.status in ("completed", "cancelled") for item in items)
    rows = [f"{_MARKS[item.status or 'pending']} {item.id}. {item.content}" for item in items]
    shown = "\n".join([*rows, f"[{done} of {len(items)} done]"])
    data = [{"id": i.id, "content": i.content, "status": i.status} for i in items]
    # The model has just written the list and need not read it again.
    content = shown if p.todos is None else f"Noted: {done} of {len(items)} done."
    return ToolResult(content, display=shown, data=data)


def restore_todos(messages: Sequence[Message]) -> list[Todo]:
    """The list at the end of a stored conversation: its last accepted change."""
    failed: set[str] = set()
    for message in reversed(messages):
        for part in reversed(message.parts):
            if isinstance(part, ToolReturn) and part.name == todo.name and part.error:
                failed.add(part.call_id)
            elif isinstance(part, ToolCall) and part.name == todo.name and part.id not in failed:
                try:
                    todos = todo.parse_params(msgspec.json.decode(part.args, type=dict)).todos
                    if todos is not None:
                        return _check_todos(todos)
                except (msgspec.MsgspecError, ToolError):
                    continue
    return []


def _check_todos(todos: list[Todo]) -> list[Todo]:
    """The list with unique ids and clean texts. Raises ToolError when it is not acceptable."""
    if len(todos) > MAX_ITEMS:
        raise ToolError(f"The list has more than {MAX_ITEMS} steps; it was not changed.")
    items: list[Todo] = []
    taken = {item.id for item in todos if item.id}
    number = 0
    for item in todos:
        content = " ".join(item.content.split())[:MAX_LENGTH]
        if not content:
            raise ToolError("A step has no content; the list was not changed.")
        name = item.id
        while not name or any(item.id == name for item in items):
            number += 1
            name = str(number) if str(number) not in taken else None
        items.append(Todo(content, item.status or "pending", name))
    return items
