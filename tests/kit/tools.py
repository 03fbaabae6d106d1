"""The context of a tool call outside any session."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import structs

from hermes.core.message import ToolCall
from hermes.core.services import Services
from hermes.core.tool import Tool, Toolbox, ToolContext, UserAccess, Workspace


def tool_context(
    cwd: Path,
    home: Path,
    *,
    session_id: str = "s1",
    env: Mapping[str, str] | None = None,
    services: Services | None = None,
    tools: Mapping[str, Tool[Any]] | None = None,
    user: UserAccess | None = None,
) -> ToolContext:
    return ToolContext(
        ToolCall("c1", "tool"),
        session_id,
        Workspace(cwd, home, home / "outputs", dict(env or {})),
        services or Services(),
        user or UserAccess(),
        Toolbox(tools or {}),
    )


def in_workspace(context: ToolContext, **changes: Any) -> ToolContext:
    """The same call in a workspace that differs in these fields."""
    return structs.replace(context, workspace=structs.replace(context.workspace, **changes))
