"""Calls of one tool without a session."""

from typing import Any

import pytest

from hermes.core.errors import ToolError
from hermes.core.tool import Tool, ToolContext, ToolResult


async def call(tool: Tool[Any], ctx: ToolContext, **args: Any) -> ToolResult:
    result = await tool.run(tool.parse_params(args), ctx)
    assert isinstance(result, ToolResult)
    return result


async def text(tool: Tool[Any], ctx: ToolContext, **args: Any) -> str:
    result = await call(tool, ctx, **args)
    assert isinstance(result.content, str)
    return result.content


async def refusal(tool: Tool[Any], ctx: ToolContext, **args: Any) -> str:
    with pytest.raises(ToolError) as error:
        await call(tool, ctx, **args)
    return str(error.value)
