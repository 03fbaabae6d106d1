"""Calls of `patch`, and what a failed one must leave alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hermes.core.errors import ToolError
from hermes.core.tool import ToolContext, ToolResult
from hermes.tools.patch import patch


async def run(ctx: ToolContext, **args: Any) -> ToolResult:
    result = await patch.run(patch.parse_params(args), ctx)
    assert isinstance(result, ToolResult)
    return result


async def refused(ctx: ToolContext, **args: Any) -> str:
    before = snapshot(ctx.workspace.cwd)
    with pytest.raises(ToolError) as error:
        await run(ctx, **args)
    assert snapshot(ctx.workspace.cwd) == before, "an edit that failed changed something"
    return str(error.value)


def snapshot(folder: Path) -> dict[str, Any]:
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mode) if p.is_file() else None
        for p in folder.rglob("*")
    }


def v4a(*rows: str) -> str:
    return "\n".join(["*** Begin Patch", *rows, "*** End Patch"])
