"""Ordinary work in the sandbox: what a developer types all day is judged by a real session."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.core.events import Approval
from hermes.core.message import ToolCall
from hermes.core.taint import Source
from tests.kit import say
from tests.kit.rig import Rig, rig
from tests.unit.exec.command_policy.command_corpus import LOSES_WORK
from tests.unit.exec.command_policy.ordinary_commands import LEAVING, ORDINARY


async def judge(r: Rig, commands: Iterable[str]) -> dict[str, Approval]:
    """The questions that these commands lead to; nothing is run."""
    asked: dict[str, Approval] = {}
    session = r.session
    session.interactions.user_present = True

    events = session.subscribe_events()

    async def deny() -> None:
        async for event in events:
            if isinstance(event, Approval):
                asked[event.command] = event
                session.interactions.answer_approval(event.id, "deny")

    person = asyncio.create_task(deny())
    tool = session.agent.tools["terminal"]
    for number, command in enumerate(commands):
        call = ToolCall(f"c{number}", "terminal", json.dumps({"command": command}))
        await session.host.approve(call, tool, tool.params(command=command), ())
    person.cancel()
    await asyncio.wait([person])
    return asked


def check_reason(question: Approval) -> None:
    """One sentence, which says what the command does and not how that was found."""
    reason = question.summary
    assert re.fullmatch(r"(?:it|git) (?:[^.;:]|\.\w)+", reason), reason
    assert len(reason) <= 120, reason


@pytest.mark.parametrize("sources", [(), ("private", "untrusted")], ids=["fresh", "tainted"])
async def test_ordinary_work_hardly_ever_asks(tmp_path: Path, sources: tuple[Source, ...]) -> None:
    inside = [command for command in ORDINARY if command not in LEAVING]
    assert len(set(inside)) >= 500
    async with rig(tmp_path, [say("hi")], options=Options()) as r:
        await r.turn()
        r.session.transcript.absorb_taint(sources)
        asked = await judge(r, inside)
    assert len(asked) <= len(inside) / 100, [(a.command, a.summary) for a in asked.values()]
    for question in asked.values():
        check_reason(question)


async def test_what_must_leave_the_sandbox_asks_for_one_reason(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("hi")], options=Options()) as r:
        (r.home.work / ".git").mkdir()
        (r.home.work / ".git" / "config").write_text(
            '[remote "origin"]\n\turl = /srv/project.git\n'
        )
        await r.turn()
        asked = await judge(r, LEAVING)
    assert set(asked) == set(LEAVING)
    for command, question in asked.items():
        assert question.summary.startswith("it wants to "), command
        check_reason(question)


async def test_what_would_be_lost_asks_for_one_reason(tmp_path: Path) -> None:
    local = [command for command in LOSES_WORK if not re.search("push|/srv/", command)]
    async with rig(tmp_path, [say("hi")], options=Options()) as r:
        await r.turn()
        asked = await judge(r, local)
    assert set(asked) == set(local)
    for question in asked.values():
        check_reason(question)
