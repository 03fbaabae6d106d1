"""Delegation in whole turns: results, limits, money, taint, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.app.commands import CommandContext, run_command
from hermes.core.events import Answer, Approval, Notice
from hermes.core.taint import Taint
from tests.kit import Gate, Provider, Received, Reply, Tokens, call, say
from tests.kit.bodies import messages, quoted, system, tools
from tests.kit.processes import living
from tests.kit.rig import Rig, rig


def delegate(call_id: str = "c1", **args: Any) -> Reply:
    return call((call_id, "delegate_task", args))


def result(request: Received) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(quoted(messages(request)[-1].results[-1][1]))
    return found


def answer(parent: list[Reply], children: dict[str, list[Reply]]) -> Callable[[Received], Reply]:
    """The parent's answers in order, and each child's by the goal it begins with."""
    queue, by_goal = list(parent), {goal: list(steps) for goal, steps in children.items()}

    def step(request: Received) -> Reply:
        first = messages(request)[0].text
        for goal, steps in by_goal.items():
            if first.startswith(goal):
                return steps.pop(0)
        return queue.pop(0)

    return step


async def do(r: Rig, name: str, args: str = "") -> str:
    return (await run_command(CommandContext(r.runtime, r.session, "cli"), name, args)).text


def requests_of(r: Rig, goal: str) -> list[Received]:
    return [q for q in r.requests if messages(q)[0].text.startswith(goal)]


async def test_three_at_once_and_one_of_them_takes_too_long(tmp_path: Path) -> None:
    gate = Gate()
    write = {"path": "b.txt", "content": "half done\n"}
    children = {
        "goal A": [say("A is done")],
        "goal B": [
            say("I write the file first.") + call(("w1", "write_file", write)),
            say("never").hold(gate),
        ],
        "goal C": [call(("t1", "terminal", {"command": "echo c > c.txt"})), say("C is done")],
    }
    tasks = [{"goal": "goal A", "context": "the whole context"}, {"goal": "goal B"}]
    parent = [delegate(tasks=[*tasks, {"goal": "goal C"}]), say("all back")]
    config = {"delegation": {"child_timeout_seconds": 8}}
    steps = Provider([], then=answer(parent, children))
    async with rig(tmp_path, steps, config=config, check=False) as r:
        assert (await r.turn("go", timeout=200)).text == "all back"
        gate.open()
        rows = result(r.requests[-1])["results"]
        assert [row["task"] for row in rows] == ["goal A", "goal B", "goal C"]
        assert [row["status"] for row in rows] == ["completed", "timeout", "completed"]
        assert [row["files_changed"] for row in rows][:2] == [[], ["b.txt"]]
        assert "c.txt" in rows[2]["files_changed"]
        assert rows[1]["summary"] == "I write the file first." and "8 s" in rows[1]["error"]
        assert rows[0]["summary"] == "A is done" and rows[0]["model_calls"] == 1
        fields = "task session_id status summary files_changed model_calls tokens cost_usd seconds"
        assert set(rows[0]) == set(fields.split())
        assert (r.home.work / "b.txt").read_text() == "half done\n"
        first = requests_of(r, "goal A")[0]
        assert (
            messages(first)[0].text == "goal A\n\nthe whole context" and len(messages(first)) == 1
        )
        meta = await r.runtime.store.sessions.get_meta(rows[0]["session_id"])
        assert meta and (meta.source, meta.parent) == ("subagent", r.session.id)


async def test_what_a_child_has_and_has_not(tmp_path: Path) -> None:
    (tmp_path / "home/memories").mkdir(parents=True)
    (tmp_path / "home/memories/MEMORY.md").write_text("The user likes tea.\n")
    children = {
        "goal A": [delegate("x1", goal="deeper"), say("A")],
        "goal B": [say("B")],
    }
    parent = [
        delegate(tasks=[{"goal": "goal A"}, {"goal": "goal B", "toolsets": ["file"]}]),
        say("ok"),
    ]
    async with rig(tmp_path, Provider([], then=answer(parent, children)), check=False) as r:
        await r.turn("go")
        assert "likes tea" in system(r.requests[0])
        mine, few = requests_of(r, "goal A")[0], requests_of(r, "goal B")[0]
        assert "likes tea" not in system(mine) and "<skills>" not in system(mine)
        assert "memory" in tools(r.requests[0])
        assert not {"memory", "clarify", "cronjob"} & set(tools(mine))
        refused = messages(requests_of(r, "goal A")[1])[-1].results[-1][1]
        assert "There is no tool 'delegate_task'" in refused
        assert set(tools(few)) == {"read_file", "write_file", "patch", "search_files"}


async def test_a_child_never_has_more_tools_than_its_parent(tmp_path: Path) -> None:
    parent = [delegate(goal="goal A", toolsets=["all"]), say("ok")]
    options = Options(yolo=True, toolsets=("read_file", "delegate_task"))
    steps = Provider([], then=answer(parent, {"goal A": [say("A")]}))
    async with rig(tmp_path, steps, options=options, check=False) as r:
        await r.turn("go")
        assert tools(requests_of(r, "goal A")[0]) == ["read_file"]


async def test_a_model_that_delegates_in_a_loop_stops_at_twelve(tmp_path: Path) -> None:
    count = 0

    def step(request: Received) -> Reply:
        nonlocal count
        if messages(request)[0].text.startswith("goal"):
            return say("done")
        count += 1
        tasks = [{"goal": f"goal {count}.{n}"} for n in range(5)]
        return delegate(f"c{count}", tasks=tasks) if count < 5 else say("enough")

    async with rig(tmp_path, Provider([], then=step), check=False) as r:
        await r.turn("go", timeout=200)
        assert len([q for q in r.requests if messages(q)[0].text.startswith("goal")]) == 10
        assert result(r.requests[-1]) == {"ok": False, "error": "At most 12 tasks a turn."}


@pytest.mark.parametrize("background", [False, True])
async def test_too_many_tasks_start_none_of_them(tmp_path: Path, background: bool) -> None:
    tasks = [{"goal": f"goal {n}"} for n in range(13)]
    parent = [delegate(tasks=tasks, background=background), say("ok")]
    steps = Provider([], then=answer(parent, {}))
    async with rig(tmp_path, steps, check=False) as r:
        await r.turn("go")
        assert result(r.requests[-1]) == {"ok": False, "error": "At most 12 tasks a turn."}
        assert not r.runtime.delegations.list_children(r.session)
        assert len(r.requests) == 2


async def test_the_same_goal_again_returns_the_earlier_result(tmp_path: Path) -> None:
    parent = [
        delegate("c1", tasks=[{"goal": "goal A"}, {"goal": "goal A"}]),
        delegate("c2", goal="goal A"),
        say("ok"),
        delegate("c3", goal="goal A"),
        say("again"),
    ]
    children = {"goal A": [say("first"), say("second")]}
    async with rig(tmp_path, Provider([], then=answer(parent, children)), check=False) as r:
        await r.turn("go")
        assert len(requests_of(r, "goal A")) == 1
        assert result(r.requests[-1])["results"][0]["summary"] == "first"
        await r.turn("and again")
        assert result(r.requests[-1])["results"][0]["summary"] == "second"


async def test_only_so_many_work_at_once(tmp_path: Path) -> None:
    gate = Gate()
    children = {f"goal {n}": [say("done").hold(gate)] for n in range(5)}
    parent = [delegate(tasks=[{"goal": f"goal {n}"} for n in range(5)]), say("ok")]
    config = {"delegation": {"max_concurrent_children": 2}}
    steps = Provider([], then=answer(parent, children))
    async with rig(tmp_path, steps, config=config, check=False) as r:
        turn = r.begin("go")
        while len(requests_of(r, "goal")) < 2:
            await asyncio.sleep(0.02)
        assert "d1: goal 0 (0 calls, 0 tokens" in await do(r, "agents")
        assert len(requests_of(r, "goal")) == 2
        gate.open()
        assert (await turn).text == "ok"
        assert len(result(r.requests[-1])["results"]) == 5


async def test_children_spend_the_money_of_their_parent(tmp_path: Path) -> None:
    """One after the other: the second child has no room any more, and says so."""
    spent = Tokens(4000, 1000)
    read = call(("r1", "read_file", {"path": "a.txt"})).usage(spent)
    children = {f"goal {n}": [read, say("done").usage(spent)] for n in range(3)}
    parent = [delegate(tasks=[{"goal": f"goal {n}"} for n in range(3)]), say("ok")]
    config = {"budget": {"session_tokens": 20_000}, "delegation": {"max_concurrent_children": 1}}
    steps = Provider([], then=answer(parent, children))
    async with rig(tmp_path, steps, config=config, check=False) as r:
        r.home.file("a.txt", "text")
        done = await r.turn("go")
        rows = json.loads((await r.stored())[2].parts[0].text)["results"]  # type: ignore[union-attr]
        assert [row["status"] for row in rows] == ["completed", "budget", "budget"]
        assert done.error_code == "budget"
        assert "Budget reached: the budget of this session" in rows[1]["error"]
        booked = await r.runtime.store.ledger.sum_calls("purpose", 0)
        assert {row.key for row in booked} == {"main", "subagent"}
        assert sum(row.input + row.output for row in booked) <= 20_000 + 5_000, "within one call"


@pytest.mark.parametrize("said", ["once", "deny"])
async def test_it_asks_the_person_of_its_parent(tmp_path: Path, said: Answer) -> None:
    asked: list[Approval] = []

    async def person(question: Approval) -> Answer:
        asked.append(question)
        return said

    outside = str(tmp_path / "outside.txt")
    children = {"goal A": [call(("w1", "write_file", {"path": outside, "content": "x"})), say("A")]}
    parent = [delegate(goal="goal A"), say("ok")]
    steps = Provider([], then=answer(parent, children))
    async with rig(tmp_path, steps, options=Options(), check=False) as r:
        r.session.interactions.user_present = True
        r.session.interactions.on_approval = person
        await r.turn("go")
        (question,) = asked
        assert 'asked by the subagent for "goal A"' in question.summary
        assert Path(outside).exists() == (said == "once")


async def test_taint_goes_down_and_comes_up(tmp_path: Path) -> None:
    children = {
        "goal A": [call(("r1", "read_file", {"path": "a.txt"})), say("A")],
        "goal B": [say("B")],
    }
    parent = [
        delegate("c1", goal="goal B"),
        delegate("c2", goal="goal A"),
        delegate("c3", goal="goal C"),
        say("ok"),
    ]
    async with rig(
        tmp_path,
        Provider([], then=answer(parent, children | {"goal C": [say("B")]})),
        check=False,
    ) as r:
        r.home.file("a.txt", "text of a stranger")
        await r.turn("go")
        results = [
            json.loads(quoted(q))
            for q in [m.results[-1][1] for m in messages(r.requests[-1]) if m.results]
        ]
        taints = []
        for row in results:
            meta = await r.runtime.store.sessions.get_meta(row["results"][0]["session_id"])
            assert meta
            taints.append(meta.taint)
        assert taints == [Taint(), Taint(True, True), Taint(True, True)]
        assert r.session.transcript.taint == Taint(True, True)


async def test_a_long_summary_is_cut_and_kept_in_a_file(tmp_path: Path) -> None:
    parent = [delegate(goal="goal A"), say("ok")]
    whole = "begin " + "x" * 20_000 + " end"
    steps = Provider([], then=answer(parent, {"goal A": [say(whole)]}))
    async with rig(tmp_path, steps, check=False) as r:
        await r.turn("go")
        summary = result(r.requests[-1])["results"][0]["summary"]
        assert len(summary) < 8_300 and summary.startswith("begin ") and summary.endswith(" end")
        file = summary.partition("the full output is in ")[2].partition(" ")[0]
        assert Path(file).read_text() == whole


async def test_stopping_the_parent_stops_children_and_their_processes(tmp_path: Path) -> None:
    command = {"command": "sleep 987654"}
    children = {
        "goal A": [call(("t1", "terminal", command))],
        "goal B": [
            call(("t2", "terminal", command | {"background": True})),
            call(("t3", "terminal", command)),
        ],
    }
    parent = [delegate(tasks=[{"goal": "goal A"}, {"goal": "goal B"}])]
    async with rig(tmp_path, Provider([], then=answer(parent, children)), check=False) as r:
        turn = r.begin("go")
        async with asyncio.timeout(90):
            while len(living("987654")) < 3:
                await asyncio.sleep(0.05)
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        assert not r.runtime.delegations.list_children(r.session)
        assert not living("987654")
        metas = await r.runtime.store.sessions.list_recent(source="subagent")
        assert [meta.state for meta in metas] == ["interrupted", "interrupted"]


async def test_one_child_can_be_shown_and_stopped(tmp_path: Path) -> None:
    gate = Gate()
    children = {
        "goal A": [say("Thinking aloud.") + call(("t", "todo", {})), say("never").hold(gate)],
        "goal B": [say("B")],
    }
    parent = [delegate(tasks=[{"goal": "goal A"}, {"goal": "goal B"}]), say("ok")]
    async with rig(tmp_path, Provider([], then=answer(parent, children)), check=False) as r:
        turn = r.begin("go")
        while len(requests_of(r, "goal A")) < 2:
            await asyncio.sleep(0.02)
        assert "Thinking aloud." in await do(r, "agents", "show d1")
        assert await do(r, "agents", "stop d1") == "Stopped: d1. What was done is kept."
        await turn
        gate.open()
        rows = result(r.requests[-1])["results"]
        assert [row["status"] for row in rows] == ["stopped", "completed"]
        assert rows[0]["summary"] == "Thinking aloud."


async def test_a_background_result_comes_once(tmp_path: Path) -> None:
    gate = Gate()
    parent = [
        delegate(goal="goal A", background=True),
        say("started"),
        say("still waiting"),
        say("got it"),
        say("and on"),
    ]
    children = {"goal A": [say("the late result").hold(gate)]}
    async with rig(tmp_path, Provider([], then=answer(parent, children)), check=False) as r:
        await r.turn("go")
        started = json.loads((await r.stored())[2].parts[0].text)  # type: ignore[union-attr]
        assert started["ok"] and started["id"] == "d1" and started["session_id"]
        await r.turn("anything?")
        assert messages(r.requests[-1])[-1].text == "anything?"
        assert "d1: goal A" in await do(r, "agents")
        gate.open()
        await r.until(lambda e: isinstance(e, Notice) and e.code == "delegation")
        await r.turn("now?")
        text = messages(r.requests[-1])[-1].text
        assert text.startswith("[Result of the background subagent d1 (") and "now?" in text
        assert "the late result" in text and "<data-" in text
        await r.turn("more")
        assert messages(r.requests[-1])[-1].text == "more"


@pytest.mark.parametrize("finished", [True, False])
async def test_a_background_result_survives_a_restart(tmp_path: Path, finished: bool) -> None:
    gate = Gate()
    parent = [delegate(goal="goal A", background=True), say("started")]
    children = {"goal A": [say("the late result").hold(gate)]}
    async with rig(tmp_path, Provider([], then=answer(parent, children)), check=False) as r:
        await r.turn("go")
        if finished:
            gate.open()
            await r.until(lambda e: isinstance(e, Notice) and e.code == "delegation")
        name = r.session.id
    gate.open()
    for expected in (True, False):
        async with rig(tmp_path, [say("hi"), say("ho")], resume=name, check=False) as r:
            await r.turn("back again")
            text = messages(r.requests[-1])[-1].text
            assert ("[Result of the background subagent d1 (" in text) == expected
            assert ('"status":"stopped"' in text) == (expected and not finished)
            assert ("the late result" in text) == (expected and finished)
            await r.turn("more")
            assert messages(r.requests[-1])[-1].text == "more"


async def test_a_single_prompt_waits_for_it(tmp_path: Path) -> None:
    parent = [delegate(goal="goal A", background=True), say("ok")]
    steps = Provider([], then=answer(parent, {"goal A": [say("A")]}))
    async with rig(tmp_path, steps, check=False) as r:
        r.runtime.delegations.is_single = True
        await r.turn("go")
        assert result(r.requests[-1])["results"][0]["summary"] == "A"


async def test_no_toolsets_are_the_usual_ones(tmp_path: Path) -> None:
    parent = [delegate(goal="goal A", toolsets=[]), say("ok")]
    steps = Provider([], then=answer(parent, {"goal A": [say("A")]}))
    async with rig(tmp_path, steps, check=False) as r:
        await r.turn("go")
        (child,) = requests_of(r, "goal A")
        assert "terminal" in tools(child)


async def test_a_task_that_cannot_begin_is_a_result(tmp_path: Path) -> None:
    parent = [
        delegate("c1", tasks=[{"goal": "goal A", "toolsets": ["nonsense"]}, {"goal": "goal B"}]),
        delegate("c2"),
        say("ok"),
    ]
    steps = Provider([], then=answer(parent, {"goal B": [say("B")]}))
    async with rig(tmp_path, steps, check=False) as r:
        await r.turn("go")
        rows = json.loads((await r.stored())[2].parts[0].text)["results"]  # type: ignore[union-attr]
        assert [row["status"] for row in rows] == ["failed", "completed"]
        assert "There is no toolset or tool 'nonsense'" in rows[0]["error"]
        assert set(rows[0]) == {*rows[1], "error"}, "every field is there"
        assert result(r.requests[-1]) == {"ok": False, "error": "Give either goal or tasks."}
