"""The system prompt of a conversation stays the same bytes; the next one shows the news."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hermes.app.commands import CommandContext, run_command
from tests.flow.test_compression import handoff
from tests.flow.test_memory import note
from tests.kit import Received, Reply, say
from tests.kit.bodies import messages, system, tools
from tests.kit.rig import Rig, rig
from tests.kit.skills import write_skill

TURNS = 30


def answer(request: Received) -> Reply:
    """Notes something every third turn, and summarises when it is asked to."""
    last = messages(request)[-1]
    if "You write handoffs" in system(request):
        return handoff(request)
    number = int(last.text.split()[-1]) if last.text.startswith("turn ") else 1
    if number % 3 == 0 and not last.results:
        return note("c1", action="add", content=f"Fact number {number}.")
    return say(f"{'fine ' * 200}{number}")


async def run_turns(r: Rig, first: int, last: int, seen: list[Received]) -> None:
    for number in range(first, last):
        before = len(r.requests)
        await r.turn(f"turn {number}")
        seen += r.requests[before:]


async def do(r: Rig, name: str, args: str = "") -> None:
    await run_command(CommandContext(r.runtime, r.session, "cli"), name, args)


async def test_thirty_turns_with_everything_that_could_change_it(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "mcp_servers": {"one": {"command": "false"}},
        "skills": {"index_bytes": 2048},
    }
    write_skill(tmp_path / "home/skills", "first")
    (tmp_path / "home/memories").mkdir(parents=True)
    (tmp_path / "home/memories/USER.md").write_text("Likes tea.\n")
    seen: list[Received] = []
    async with rig(tmp_path, [], then=answer, config=config, check=False) as r:
        await run_turns(r, 0, 10, seen)
        write_skill(r.home.work / "offered", "second")
        await do(r, "skills", "install offered/second")
        await do(r, "skills", "install offered/second yes")
        assert (r.home.path / "skills/second/SKILL.md").exists()
        await do(r, "reload-skills")
        await do(r, "memory", "add user Likes coffee too.")
        r.home.configure(mcp_servers={"two": {"command": "false"}})
        await do(r, "reload-mcp")
        await run_turns(r, 10, 20, seen)
        before = r.session.id
        assert await r.session.compress() and r.session.id != before
        name = r.session.id
    async with rig(tmp_path, [], then=answer, config=config, resume=name, check=False) as r:
        await run_turns(r, 20, TURNS, seen)
    assert len(seen) >= TURNS
    (prompt,) = {system(request) for request in seen}
    assert "Likes tea." in prompt and "first: " in prompt and "one" in prompt
    assert "coffee" not in prompt and "second: " not in prompt
    assert len({tuple(tools(request)) for request in seen}) == 1
    config["mcp_servers"]["two"] = {"command": "false"}
    async with rig(tmp_path, [], then=answer, config=config, check=False) as r:
        await r.turn("turn 1")
        fresh = system(r.requests[0])
    assert "Likes coffee too." in fresh and "second: " in fresh and "Fact number 3." in fresh
    assert "one, two" in fresh
