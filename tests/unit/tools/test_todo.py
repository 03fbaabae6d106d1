"""todo keeps a list per session; clarify asks whoever is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.core.errors import ToolError
from hermes.core.message import ToolCall
from hermes.core.tool import Tool, ToolContext, ToolResult, UserAccess
from hermes.tools.clarify import clarify
from hermes.tools.todo import MAX_ITEMS, todo
from tests.kit.tools import tool_context


def context(root: Path) -> ToolContext:
    return tool_context(root, root / "h")


@pytest.fixture
def ctx(tmp_path: Path) -> ToolContext:
    return context(tmp_path)


async def run(tool: Tool[Any], ctx: ToolContext, **args: Any) -> ToolResult:
    result = await tool.run(tool.parse_params(args), ctx)
    assert isinstance(result, ToolResult)
    return result


async def test_a_list_is_kept_and_shown(ctx: ToolContext) -> None:
    assert (await run(todo, ctx)).content == "The list is empty."
    steps = [
        {"content": "read\n  it", "status": "completed"},
        {"id": "b", "content": "write", "status": "in_progress"},
        {"content": "test"},
        {"content": "publish", "status": "cancelled"},
    ]
    said = await run(todo, ctx, todos=steps)
    assert said.content == "Noted: 2 of 4 done."
    shown = "[x] 1. read it\n[>] b. write\n[ ] 2. test\n[-] 3. publish\n[2 of 4 done]"
    assert said.display == shown
    other_call = structs.replace(ctx, call=ToolCall("c2", "todo"))
    assert (await run(todo, other_call)).content == shown


async def test_a_new_list_takes_the_place_of_the_old(ctx: ToolContext) -> None:
    await run(todo, ctx, todos=[{"content": "a"}, {"content": "b"}])
    await run(todo, ctx, todos=[{"content": "c"}])
    assert (await run(todo, ctx)).data == [{"id": "1", "content": "c", "status": "pending"}]
    await run(todo, ctx, todos=[])
    assert (await run(todo, ctx)).content == "The list is empty."


async def test_names_are_unique(ctx: ToolContext) -> None:
    await run(todo, ctx, todos=[{"id": i, "content": "x"} for i in ("1", "1", None, "2")])
    ids = [item["id"] for item in (await run(todo, ctx)).data]
    assert ids[0] == "1" and len(set(ids)) == 4 and all(ids)


async def test_sessions_do_not_share_a_list(ctx: ToolContext, tmp_path: Path) -> None:
    await run(todo, ctx, todos=[{"content": "mine"}])
    assert (await run(todo, context(tmp_path))).content == "The list is empty."


@pytest.mark.parametrize(
    "todos", [[{"content": " "}], [{"content": "x"}] * (MAX_ITEMS + 1), [{"content": "x"}, {}]]
)
async def test_a_list_that_makes_no_sense_changes_nothing(ctx: ToolContext, todos: Any) -> None:
    await run(todo, ctx, todos=[{"content": "kept"}])
    with pytest.raises(ToolError):
        await run(todo, ctx, todos=todos)
    assert "kept" in str((await run(todo, ctx)).content)


async def test_a_status_that_is_none_is_explained(ctx: ToolContext) -> None:
    with pytest.raises(ToolError, match="status"):
        await run(todo, ctx, todos=[{"content": "x", "status": "started"}])


async def test_a_question_reaches_the_user_and_the_answer_comes_back(ctx: ToolContext) -> None:
    asked: list[tuple[str, tuple[str, ...]]] = []

    async def ask(question: str, choices: tuple[str, ...]) -> str | None:
        asked.append((question, choices))
        return " blue "

    there = structs.replace(ctx, user=UserAccess(ask=ask))
    answer = await run(clarify, there, question=" Which? ", choices=["red", "", "blue", "red"])
    assert answer.content == "The user answers: blue" and not answer.error
    assert asked == [("Which?", ("red", "blue"))]
    with pytest.raises(ToolError, match="empty"):
        await run(clarify, there, question=" ")
    assert clarify.exclusive


async def test_where_nobody_answers_the_model_is_told_what_to_do(ctx: ToolContext) -> None:
    answer = await run(clarify, ctx, question="Which?")
    assert answer.error and "Decide yourself" in str(answer.content)
