"""Which part of a trajectory becomes a summary."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.batch.trajectory_summary import (
    ConversationTurn,
    choose_middle,
    shorten_lines,
)
from hermes.core.errors import ToolError

LONG = "word " * 2000


def make_turns(steps: int) -> list[ConversationTurn]:
    turns = [ConversationTurn("system", "s"), ConversationTurn("human", "h")]
    for number in range(steps):
        turns.append(ConversationTurn("gpt", f"call {number}"))
        turns.append(ConversationTurn("tool", LONG))
    return [*turns, ConversationTurn("gpt", "done")]


@pytest.mark.parametrize("limit", [10_000, 14_000, 18_000])
def test_only_as_much_as_is_needed_between_the_first_result_and_the_last_turns(limit: int) -> None:
    turns = make_turns(10)
    begin, end = choose_middle(turns, limit, 4)
    assert begin == 4 and turns[end].role == "gpt" and end <= len(turns) - 4
    fewer = choose_middle(turns, limit + 4000, 4)
    assert fewer[1] < end


def test_a_short_one_stays() -> None:
    assert choose_middle(make_turns(2), 100_000, 4) == (0, 0)
    assert choose_middle(make_turns(1), 10, 4) == (0, 0)
    assert choose_middle([], 10, 4) == (0, 0)


async def test_lines_are_shortened_and_failures_leave_them_as_they_are() -> None:
    def make_row(text: str) -> dict[str, Any]:
        turns = [{"from": turn.role, "value": turn.value} for turn in make_turns(6)]
        turns[1]["value"] = text
        turns[4]["value"] = f"call of {text}"
        return {"conversations": turns, "metadata": {"text": text}}

    async def ask(question: str) -> str:
        if "call of bad" in question:
            raise ToolError("no")
        return " a summary "

    rows = [make_row("good"), make_row("bad")]
    before = [dict(row) for row in rows]
    count = await shorten_lines(rows, 6000, 4, ask)
    assert (count.lines, count.shortened, count.failed) == (2, 1, 1)
    assert rows[1] == before[1] and rows[0]["metadata"] == {"text": "good"}
    roles = [turn["from"] for turn in rows[0]["conversations"]]
    assert roles[:6] == ["system", "human", "gpt", "tool", "human", "gpt"]
    assert rows[0]["conversations"][4]["value"] == "[CONTEXT SUMMARY]: a summary"
