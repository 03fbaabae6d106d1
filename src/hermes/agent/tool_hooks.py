"""Calls the hooks around a tool call: before it runs, on what it returned, and afterwards."""

import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from hermes.agent.json_repair import BadArguments, parse_arguments
from hermes.core.errors import ToolError
from hermes.core.hooks import SessionHooks, parse_decision, parse_text
from hermes.core.message import Media, Text, ToolCall
from hermes.core.tool import ToolResult


class HookedCall(Struct, frozen=True):
    """One call as hooks see it: by the name and the arguments of the tool that really runs."""

    hooks: SessionHooks
    call: ToolCall

    @property
    def arguments(self) -> dict[str, Any]:
        try:
            return parse_arguments(self.call.args)
        except BadArguments:
            return {}

    @property
    def _keywords(self) -> dict[str, Any]:
        call = self.call
        return {"tool_name": call.name, "args": self.arguments, "tool_call_id": call.id}

    async def check_call(self) -> str:
        """Why the person whom a hook has asked does not want the call to run; empty: it may run.
        ToolError when a hook blocks it."""
        if not self.hooks.has_hooks("pre_tool_call"):
            return ""
        found = await self.hooks.ask_first("pre_tool_call", parse_decision, **self._keywords)
        if found is None:
            return ""
        if found.action == "block":
            raise ToolError(found.message)
        answer = await self.hooks.session.confirm(self.call, found.message, "")
        if answer:
            return ""
        denial = "nobody answered" if answer is None else "the user denied it"
        return f"a hook asked for approval ({found.message.rstrip('.')}), and {denial}"

    async def transform_result(self, result: Any, *, began: float) -> ToolResult | Any:
        """The result as hooks want the model to see it; the same object when they do not care."""
        if not self.hooks.has_hooks("transform_terminal_output", "transform_tool_result"):
            return result
        found = result if isinstance(result, ToolResult) else ToolResult(result)
        parts = found.content
        if isinstance(parts, tuple) and not all(isinstance(p, Text | Media) for p in parts):
            return result
        text, changed = _join_text(parts), False
        command = self.arguments.get("command")
        if isinstance(command, str) and isinstance(found.data, dict):
            new = await self.hooks.ask_first(
                "transform_terminal_output",
                parse_text,
                command=command,
                output=text,
                returncode=found.data.get("exit_status"),
                env_type=self.hooks.session.env_type,
            )
            text, changed = (text, changed) if new is None else (new, True)
        new = await self.hooks.ask_first(
            "transform_tool_result", parse_text, **self._describe_result(found, text, began)
        )
        text, changed = (text, changed) if new is None else (new, True)
        if not changed:
            return result
        media = [p for p in parts if isinstance(p, Media)] if isinstance(parts, tuple) else []
        return structs.replace(found, content=(Text(text), *media), display="", unquoted=False)

    async def report_result(self, result: ToolResult, *, began: float) -> None:
        """Tell hooks how the call ended, with what the model is shown of it."""
        if self.hooks.has_hooks("post_tool_call"):
            text = _join_text(result.content)
            await self.hooks.notify("post_tool_call", **self._describe_result(result, text, began))

    def _describe_result(self, result: ToolResult, text: str, began: float) -> dict[str, Any]:
        return {
            **self._keywords,
            "result": text,
            "status": "error" if result.error else "ok",
            "error_message": text if result.error else "",
            "duration_ms": round((time.monotonic() - began) * 1000),
        }


def _join_text(content: str | Sequence[Text | Media]) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content if isinstance(part, Text))
