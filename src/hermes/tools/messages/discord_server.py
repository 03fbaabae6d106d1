"""Looks into the Discord servers that the bot is in: channels, members, recent messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult, tool
from hermes.tools._services import SERVERS

MOST_MESSAGES = 100


class Params(Struct, frozen=True):
    action: Literal["list_channels", "find_members", "read_messages"]
    name: Annotated[str | None, Meta(description="find_members: how the name begins")] = None
    channel: Annotated[str | None, Meta(description="read_messages: the id of a channel")] = None
    count: int | None = None


@tool(
    "Look into the Discord servers that this bot is in: list channels and threads, find members by "
    "name, read the latest messages of a channel.",
    toolset="messages",
    sends=False,
    words="discord guild channel thread member people history",
)
async def discord_server(p: Params, ctx: ToolContext) -> ToolResult:
    servers = ctx.services.get(SERVERS)
    if servers is None:
        raise ToolError("Only administrators can use this tool, in chats of their own.")
    match p.action:
        case "list_channels":
            return _report(await servers.list_channels())
        case "find_members":
            if not (p.name or "").strip():
                raise ToolError("find_members needs a name.")
            return _report(await servers.find_members((p.name or "").strip()))
        case "read_messages":
            if not p.channel:
                raise ToolError("read_messages needs the id of a channel.")
            count = max(1, min(p.count or 20, MOST_MESSAGES))
            return _report(await servers.read_messages(p.channel, count))


def _report(rows: list[dict[str, Any]]) -> ToolResult:
    lines = [msgspec.json.encode(row).decode() for row in rows]
    return ToolResult("\n".join(lines) or "Nothing was found.", data=rows)
