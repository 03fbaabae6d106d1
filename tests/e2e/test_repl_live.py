"""The interactive terminal while the agent works: typing, steering, queueing, stopping."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.kit import Gate, Home, Provider, call, say, stall, think
from tests.kit.processes import alive
from tests.kit.screen import CTRL_C, CTRL_D, CTRL_T, ENTER, ESCAPE, TAB, UP, Terminal, terminal

pytestmark = pytest.mark.e2e


async def until_dead(pid: int) -> None:
    async with asyncio.timeout(90):
        while alive(pid):
            await asyncio.sleep(0.02)


def sleeping(home: Home) -> object:
    """A command that runs long, and writes down who it is."""
    command = f"echo $$ > {home.work}/pid; echo under way; sleep 60"
    return call(("c1", "terminal", {"command": command}))


async def pid_of(home: Home) -> int:
    file = home.work / "pid"
    async with asyncio.timeout(90):
        while not (file.exists() and file.read_text().strip()):
            await asyncio.sleep(0.02)
    return int(file.read_text())


async def test_typing_while_an_answer_streams(tmp_path: Path) -> None:
    gate = Gate()
    first = say("First line\nthen half a sen", "tence that ends\n").hold(gate, after="text", n=1)
    async with Provider([first, say("second answer")]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("hello" + ENTER)
            await t.see("❯ hello", "First line", "then half a sen")
            t.type("my next words")
            await t.see("❯ my next words")
            gate.open()
            await t.see("then half a sentence that ends", "Enter: send")
            assert t.screen.count("half a sen") == 1
            t.type(ENTER)
            await t.see("second answer")
            assert p.last.json["messages"][-1]["content"] == "my next words"
    lines = t.scrollback
    assert [line for line in lines if "First line" in line] == ["First line"]


async def test_enter_steers_and_tab_queues(tmp_path: Path) -> None:
    gate = Gate()
    steps = [
        call(("c1", "terminal", {"command": "echo one"})).hold(gate, after="call"),
        say("after the tool"),
        say("queued answer"),
    ]
    async with Provider(steps) as p, terminal(Home.of(tmp_path, p), ["--yolo"]) as t:
        t.type("start" + ENTER)
        await gate.reached()
        await t.see("Enter: steer · Tab: queue · Esc: stop")
        t.type("mind the gap" + ENTER)
        await t.see("↳ mind the gap")
        t.type("and later this" + TAB)
        await t.see("queued: and later this", "↑: edit queued")
        t.type("not this" + TAB)
        await t.see("queued: not this")
        t.type(UP)
        await t.see("❯ not this")
        t.type("\x15")
        await t.gone("not this")
        t.type(CTRL_D)  # a slip of the finger does not end what runs
        await t.see("Ctrl-D again stops it and quits")
        gate.open()
        await t.see("after the tool", "❯ and later this", "queued answer", "Enter: send")
        t.type("one\rtwo\rthree\rfour\rfive")  # a paste, where the terminal does not say so
        await t.see("❯ one", "  five")
    tool = next(m for m in p.requests[1].json["messages"] if m["role"] == "tool")
    assert "User guidance: mind the gap" in tool["content"]
    assert p.last.json["messages"][-1]["content"] == "and later this"
    assert len(p.requests) == 3


@pytest.mark.parametrize("key", [ESCAPE, CTRL_C])
async def test_a_key_interrupts_a_tool(tmp_path: Path, key: str) -> None:
    async with Provider([], then=lambda _: say("and now?")) as p:
        home = Home.of(tmp_path, p)
        p.steps.append(sleeping(home))
        async with terminal(home, ["--yolo"]) as t:
            t.type("go" + ENTER)
            pid = await pid_of(home)
            await t.see("under way")
            t.type(key)
            await until_dead(pid)
            await t.see("interrupted", "Enter: send")
            t.type("still there?" + ENTER)
            await t.see("and now?")


async def test_a_command_that_takes_its_time_is_stopped(tmp_path: Path) -> None:
    answers = [say("word " * 3000 + f"end {n}", size=4000) for n in range(4)]
    steps = [*answers, stall(), say("still here")]
    async with Provider(steps) as p, terminal(Home.of(tmp_path, p)) as t:
        for n in range(4):
            t.type(f"question {n}" + ENTER)
            await t.see(f"end {n}", "Enter: send")
        t.type("/compress" + ENTER)
        await t.see("Esc: stop it · messages wait")
        t.type("meanwhile" + ENTER)
        await t.see("queued: meanwhile")
        t.type(ESCAPE)
        await t.see("/compress was stopped.", "❯ meanwhile", "still here")


async def test_control_c_twice_leaves(tmp_path: Path) -> None:
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        p.steps.append(sleeping(home))
        async with terminal(home, ["--yolo"]) as t:
            t.type("go" + ENTER)
            pid = await pid_of(home)
            t.type(CTRL_C)
            t.type(CTRL_C)
            assert await t.leave() == 0
            assert not alive(pid)


async def test_a_closed_window_leaves_nothing_behind(tmp_path: Path) -> None:
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        p.steps.append(sleeping(home))
        async with terminal(home, ["--yolo"]) as t:
            t.type("go" + ENTER)
            pid = await pid_of(home)
            t.hang_up()
            await t.leave()
            await until_dead(pid)
        # Nothing is lost: the next start offers to go on.
        p.steps += [say("I went on")]
        async with terminal(home) as t:
            await t.see("interrupted: go", "press Tab to continue it")
            t.type(TAB)
            await t.see("I went on")
        texts = [m["content"] for m in p.last.json["messages"] if m["role"] == "user"]
        assert texts[0] == "go" and "interrupted" in texts[-1]


async def test_killed_and_continued(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("never heard").hold(gate, after="text", n=0)]) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home) as t:
            t.type("build the thing" + ENTER)
            await gate.reached()
            os.kill(t.process.pid, signal.SIGKILL)
            await t.leave()
        p.steps.append(say("here it is"))
        async with terminal(home) as t:
            await t.see("press Tab to continue it")
            t.type(TAB)
            await t.see("❯ build the thing", "here it is")


async def test_reasoning_is_folded_and_shown(tmp_path: Path) -> None:
    gate = Gate()
    reply = (think("first I weigh it") + say("The answer.")).hold(gate, after="think", n=2)
    async with Provider([reply]) as p, terminal(Home.of(tmp_path, p), env={"PAGER": "cat"}) as t:
        t.type("why" + ENTER)
        await t.see("thinking", "first I weigh it")
        gate.open()
        await t.see("thought ", "Ctrl-T: transcript", "The answer.", "Enter: send")
        assert "first I weigh it" not in t.screen
        t.type(CTRL_T)
        await t.see("first I weigh it")


async def resized(t: Terminal) -> None:
    for columns, rows in ((50, 24), (120, 30), (60, 30)):
        t.resize(columns, rows)
        await asyncio.sleep(0.05)


async def test_resize_during_a_stream(tmp_path: Path) -> None:
    words = " ".join(f"word{n}" for n in range(60))
    gate = Gate()
    reply = say(f"before\n{words}", f" end\n{words} 你好世界\n").hold(gate, after="text", n=1)
    async with Provider([reply]) as p, terminal(Home.of(tmp_path, p)) as t:
        t.type("go" + ENTER)
        await t.see("word59")
        await resized(t)
        gate.open()
        await t.see("你好世界", "Enter: send")
        assert max(map(len, t.screen.split("\n"))) <= 60
        t.type("typed")
        await t.see("❯ typed")
        assert sum("before" in line for line in t.scrollback) == 1
