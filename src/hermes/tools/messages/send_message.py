"""Sends a message to another chat of the owner; a person approves every one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

from hermes.core.errors import ToolError
from hermes.core.taint import Source
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._services import CHATS

_LONGEST = 20_000


class Params(Struct, frozen=True):
    action: Literal["send", "list"] = "send"
    target: Annotated[str | None, Meta(description="home, or platform:chat[:thread]")] = None
    message: str | None = None


def _find_flows(p: Params) -> tuple[frozenset[Source], bool]:
    return frozenset({"private"} if p.action == "list" else ()), p.action == "send"


@tool(
    "Send a message to another chat that the owner may reach, or list these chats. Answers to this "
    "chat need no tool.",
    toolset="messages",
    flows=_find_flows,
    risk="network",
    asks="it sends a message to another chat",
    words="telegram discord slack matrix mail notify tell chat channel group write post",
)
async def send_message(p: Params, ctx: ToolContext) -> ToolResult:
    chats = ctx.services.get(CHATS)
    try:
        if chats is None:
            raise ToolError("This session reaches no chats.")
        if p.action == "list":
            return _report({"ok": True, "targets": await chats.list_targets()})
        if not p.target or not (p.message or "").strip():
            raise ToolError("send needs a target and a message.")
        await chats.send(p.target, (p.message or "")[:_LONGEST])
        return _report({"ok": True, "target": p.target, "status": "sent"})
    except ToolError as error:
        return structs.replace(_report({"ok": False, "error": str(error)}), error=True)


def _report(data: dict[str, Any]) -> ToolResult:
    return ToolResult(msgspec.json.encode(data).decode(), data=data)
