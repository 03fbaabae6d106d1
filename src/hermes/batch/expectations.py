"""Checks what was expected of an answer: its text, tools, files, a command, cost, a judge."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from hermes.batch.eval_file import EvalCase, FileCheck, JudgeCheck
from hermes.batch.trajectories import count_calls
from hermes.core.message import Message

_MAX_FILE = 10 * 2**20


class CaseOutcome(Struct, frozen=True):
    """What came of a case."""

    text: str
    messages: Sequence[Message]
    workspace: Path
    cost: float | None


RunCommand = Callable[[str], Awaitable[int | None]]
AskJudge = Callable[[JudgeCheck, str], Awaitable[float | None]]


async def find_failures(
    case: EvalCase, outcome: CaseOutcome, run_command: RunCommand, ask_judge: AskJudge
) -> list[str]:
    """The expectations that do not hold, by their names; the judge is asked when all others do."""
    failed = [*_check_text(case, outcome), *_check_tools(case, outcome)]
    failed += [
        f"files.{path}"
        for path, wanted in case.expect.files.items()
        if not _can_hold(outcome.workspace / path, wanted, outcome.workspace)
    ]
    if (command := case.expect.command) and await run_command(command.run) != command.exit:
        failed.append("command")
    limit = case.expect.cost_usd
    if limit is not None and (outcome.cost is None or outcome.cost > limit):
        failed.append("cost_usd")
    if (judge := case.expect.judge) and not failed:
        score = await ask_judge(judge, outcome.text)
        if score is None or score < judge.min:
            failed.append("judge")
    return failed


def _check_text(case: EvalCase, outcome: CaseOutcome) -> Iterator[str]:
    wanted = case.expect.text
    if wanted is None:
        return
    if not all(word in outcome.text for word in wanted.contains):
        yield "text.contains"
    if any(word in outcome.text for word in wanted.excludes):
        yield "text.not"
    if wanted.regex and not re.search(wanted.regex, outcome.text):
        yield "text.regex"


def _check_tools(case: EvalCase, outcome: CaseOutcome) -> Iterator[str]:
    wanted = case.expect.tools
    if wanted is None:
        return
    counts = count_calls(outcome.messages)
    if not all(name in counts for name in wanted.used):
        yield "tools.used"
    if any(name in counts for name in wanted.unused):
        yield "tools.unused"
    if wanted.max is not None and sum(row.count for row in counts.values()) > wanted.max:
        yield "tools.max"
    if wanted.errors is not None and sum(r.failure for r in counts.values()) > wanted.errors:
        yield "tools.errors"


def _can_hold(file: Path, wanted: FileCheck | str, root: Path) -> bool:
    """What cannot be looked at, such as a folder that the model closed, is not as expected."""
    try:
        return _holds(file, wanted, root)
    except OSError:
        return False


def _holds(file: Path, wanted: FileCheck | str, root: Path) -> bool:
    """A link that leads out of the workspace counts as absent: a model made it."""
    is_there = file.is_file() and file.resolve().is_relative_to(root.resolve())
    if isinstance(wanted, str):
        return is_there == (wanted == "present")
    if not is_there or file.stat().st_size > _MAX_FILE:
        return False
    text = file.read_text(encoding="utf-8", errors="replace")
    return (
        (wanted.equals is None or text.strip() == wanted.equals.strip())
        and (wanted.contains is None or wanted.contains in text)
        and (wanted.regex is None or re.search(wanted.regex, text) is not None)
    )
