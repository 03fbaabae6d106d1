"""Turns the events of a session into the updates that an editor shows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import acp
from acp import schema

from hermes.core.errors import ToolError
from hermes.core.events import (
    Notice,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolProgress,
    ToolStarted,
    TurnEvent,
)
from hermes.core.message import Message, Text, Thinking, ToolCall, ToolReturn
from hermes.core.tool import Tool

_MAX_FILE = 1 << 20
_MAX_TITLE = 100
Kind = Literal["read", "edit", "search", "execute", "think", "fetch", "other"]
_KINDS: dict[str, Kind] = {
    "search_files": "search",
    "tool_search": "search",
    "session_search": "search",
    "todo": "think",
}
_RISK_KINDS: dict[str, Kind] = {
    "read": "read",
    "write": "edit",
    "exec": "execute",
    "network": "fetch",
}


class EditorUpdates:
    """The updates of one session. It reads files before tools change them, to show the change."""

    def __init__(self, tools: Mapping[str, Tool[Any]], cwd: Path) -> None:
        self.tools = tools
        self._cwd = cwd
        self._old_texts: dict[str, dict[Path, str | None]] = {}

    def note_event(self, event: TurnEvent) -> None:
        """Called at once, when the event happens."""
        if isinstance(event, ToolStarted):
            paths = self._list_written(event.call)
            if paths:
                self._old_texts[event.call.id] = {path: _read_text(path) for path in paths}

    def list_updates(self, event: TurnEvent) -> Iterator[Any]:
        match event:
            case TextDelta(text=text):
                yield acp.update_agent_message_text(text)
            case ThinkingDelta(text=text):
                yield acp.update_agent_thought_text(text)
            case Notice(text=text):
                yield acp.update_agent_thought_text(f"{text}\n")
            case ToolStarted(call=call):
                yield self.describe_call(call)
            case ToolProgress(call_id=call_id, text=text):
                content = [acp.tool_content(acp.text_block(text))]
                yield acp.update_tool_call(call_id, status="in_progress", content=content)
            case ToolDone(result=result, data=data):
                yield self._describe_result(result)
                if result.name == "todo" and isinstance(data, list):
                    yield _describe_plan(data)

    def describe_call(self, call: ToolCall) -> schema.ToolCallStart:
        arguments = _read_arguments(call)
        tool = self.tools.get(call.name)
        return acp.start_tool_call(
            call.id,
            _make_title(call.name, arguments),
            kind=_choose_kind(call.name, tool),
            status="in_progress",
            locations=[schema.ToolCallLocation(path=str(p)) for p in self._locate(arguments)],
            raw_input=arguments,
        )

    def _describe_result(self, result: ToolReturn) -> schema.ToolCallProgress:
        content: list[Any] = []
        for path, old in self._old_texts.pop(result.call_id, {}).items():
            new = _read_text(path)
            if new is not None and new != old and not result.error:
                content.append(acp.tool_diff_content(str(path), new, old))
        if not content:
            content.append(acp.tool_content(acp.text_block(result.text)))
        status: Literal["failed", "completed"] = "failed" if result.error else "completed"
        return acp.update_tool_call(
            result.call_id, status=status, content=content, raw_output=result.text
        )

    def replay_history(self, messages: Sequence[Message]) -> Iterator[Any]:
        """Everything that was said and done in a stored session."""
        for message in messages:
            for part in message.parts:
                match part:
                    case Text(text=text) if message.role == "user":
                        yield acp.update_user_message_text(text)
                    case Text(text=text):
                        yield acp.update_agent_message_text(text)
                    case Thinking(text=text) if text:
                        yield acp.update_agent_thought_text(text)
                    case ToolCall():
                        yield self.describe_call(part)
                    case ToolReturn():
                        yield self._describe_result(part)

    def _list_written(self, call: ToolCall) -> list[Path]:
        tool = self.tools.get(call.name)
        if tool is None or tool.risk != "write" or tool.key is None:
            return []
        with suppress(ToolError):
            keys = tool.key(tool.parse_params(_read_arguments(call)), self._cwd)
            return [Path(key) for key in ((keys,) if isinstance(keys, str) else keys or ())]
        return []

    def _locate(self, arguments: dict[str, Any]) -> list[Path]:
        path = arguments.get("path")
        return [self._cwd / path] if isinstance(path, str) and path else []


def _choose_kind(name: str, tool: Tool[Any] | None) -> Kind:
    """Never a kind of reading for a tool that asks because of what it changes: some clients allow
    all reading by themselves."""
    if tool is None:
        return _KINDS.get(name, "other")
    if tool.asks_itself and tool.risk == "read":
        return "other"
    return _KINDS.get(name) or _RISK_KINDS[tool.risk]


def _read_arguments(call: ToolCall) -> dict[str, Any]:
    try:
        found = json.loads(call.args or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _make_title(name: str, arguments: dict[str, Any]) -> str:
    what = next((v for v in arguments.values() if isinstance(v, str) and v.strip()), "")
    return f"{name}: {' '.join(what.split())[:_MAX_TITLE]}" if what else name


def _describe_plan(items: list[Any]) -> schema.AgentPlanUpdate:
    states = {"in_progress": "in_progress", "completed": "completed", "cancelled": "completed"}
    entries = []
    for item in items:
        state: Any = states.get(str(item.get("status")), "pending")
        entries.append(acp.plan_entry(str(item.get("content", "")), status=state))
    return acp.update_plan(entries)


def _read_text(path: Path) -> str | None:
    """The text of a file; None: there is none, or it is no text of a usual size."""
    try:
        if path.stat().st_size > _MAX_FILE:
            return None
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
