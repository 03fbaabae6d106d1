"""F58, F59: people act while a turn runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.core.events import ToolStarted
from hermes.core.message import user_message
from hermes.core.tool import Tool
from tests.kit import WIRES, Gate, Received, Reply, call, say, stall, status
from tests.kit.bodies import check_legal, messages, quoted
from tests.kit.processes import alive
from tests.kit.rig import rig


class Nothing(Struct):
    pass


def waiting(gate: Gate) -> Tool[Any]:
    """A tool that runs until the test lets it go on."""

    async def wait(p: Nothing, ctx: Any) -> str:
        await gate.arrive()
        return "waited"

    return Tool("wait", "Waits.", Nothing, wait)


# -- F58 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_F58_stop_during_the_stream_keeps_the_text(tmp_path: Path, wire: str) -> None:
    async with rig(tmp_path, [say("Hello ", "world").stall("text", 1)], wire=wire) as r:
        turn = r.begin()
        await r.until_shown("Hello")
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and result.text == "Hello "
        assert result.error_code == "interrupted"
        await r.requests[0].gone.wait()
        stored = await r.stored()
        assert stored[-1].role == "assistant" and stored[-1].text == "Hello "
        assert stored[-1].stop == "aborted" and await r.state() == "interrupted"


@pytest.mark.parametrize("wire", WIRES)
async def test_F58_stop_before_the_first_byte(tmp_path: Path, wire: str) -> None:
    async with rig(tmp_path, [stall()], wire=wire) as r:
        turn = r.begin()
        while not r.requests:
            await asyncio.sleep(0)
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and result.text == ""
        await r.requests[0].gone.wait()


async def test_F58_stop_in_the_middle_of_a_tool_call(tmp_path: Path) -> None:
    args = {"path": "never.txt", "content": "x" * 50}
    reply = (say("Writing. ") + call(("c1", "write_file", args))).stall("args", 2)
    async with rig(tmp_path, [reply]) as r:
        turn = r.begin()
        await r.until_shown("Writing")
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and not (r.home.work / "never.txt").exists()
        assert (await r.stored())[-1].calls == ()


async def test_F58_stop_while_a_command_runs_leaves_no_orphan(tmp_path: Path) -> None:
    command = "echo $$ > pid; sleep 300 & echo $! > child; wait"
    waiting_too = ("c2", "write_file", {"path": "b.txt", "content": "not yet"})
    steps = [call(("c1", "terminal", {"command": command}), waiting_too)]
    async with rig(tmp_path, steps) as r:
        turn = r.begin()
        pids = [await _pid(r.home.work / name) for name in ("pid", "child")]
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted"
        assert not [pid for pid in pids if alive(pid)]
        assert not (r.home.work / "b.txt").exists()
        texts = [p.text for m in await r.stored() if m.role == "tool" for p in m.parts]  # type: ignore[union-attr]
        assert len(texts) == 2 and "skipped: interrupted by the user" in texts[1]


async def _pid(file: Path) -> int:
    for _ in range(1000):
        if file.exists() and file.read_text().strip():
            return int(file.read_text())
        await asyncio.sleep(0.01)
    raise AssertionError(f"{file} did not appear")


async def test_F58_stop_while_waiting_to_go_on_keeps_the_text(tmp_path: Path) -> None:
    """The stream broke after text was shown and the continuation waits: the text stays."""
    gate = Gate()

    async def sleep(_: float) -> None:
        await gate.arrive()

    async with rig(tmp_path, [say("Half ", "of it").cut("text", 1)], sleep=sleep) as r:
        turn = r.begin()
        await gate.reached()
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and result.text == "Half " == r.shown
        assert [m.text for m in await r.stored()] == ["hi", "Half "]
        gate.open()


async def test_F58_stop_while_a_continuation_runs_keeps_all_pieces(tmp_path: Path) -> None:
    steps = [say("One, ").stop("length"), say("two, ", "three").stall("text", 1)]
    async with rig(tmp_path, steps) as r:
        turn = r.begin()
        await r.until_shown("two, ")
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and result.text == "One, two, " == r.shown


@pytest.mark.parametrize("spins", [0, 1, 2, 3, 5])
async def test_F58_stop_twice_is_like_stop_once(tmp_path: Path, spins: int) -> None:
    gate = Gate()
    steps = [
        say("Hello ", "world").stall("text", 1),
        say("I work. ") + call(("c1", "wait", {}), ("c2", "terminal", {"command": "echo 1"})),
    ]
    async with rig(tmp_path, steps, tools=[waiting(gate)]) as r:
        for place in ("stream", "tool"):
            turn = r.begin(place)
            await (r.until_shown("Hello") if place == "stream" else gate.reached())
            for _ in range(3):
                r.session.interrupt()
                for _ in range(spins):
                    await asyncio.sleep(0)
            result = await turn
            assert result.status == "interrupted"
            r._check_shown()
            assert list(result.messages) == (await r.stored())[-len(result.messages) :]
        returned = [p.call_id for m in await r.stored() if m.role == "tool" for p in m.parts]  # type: ignore[union-attr]
        assert returned == ["c1", "c2"]


@pytest.mark.parametrize("wire", WIRES)
async def test_F58_stop_at_any_moment_keeps_what_was_shown(tmp_path: Path, wire: str) -> None:
    """Interrupted n events and a few turns of the event loop after its begin, for every n until
    the turn is over."""
    numbers = iter(range(10**6))

    def script(request: Received) -> Reply:
        if messages(request)[-1].results and "prompt" not in messages(request)[-1].text:
            return say("It is ", "done.")
        return say("I run ", "it. ") + call((f"c{next(numbers)}", "quick", {}))

    async def run(p: Nothing, ctx: Any) -> str:
        return "ran"

    quick = Tool("quick", "Quick.", Nothing, run)
    ended = 0
    async with rig(tmp_path, [], wire=wire, then=script, tools=[quick]) as r:
        for events in range(30):
            for spins in (0, 3):
                before = len(r.events)
                turn = r.begin(f"prompt {events} {spins}")
                while len(r.events) < before + events and not turn.done():
                    await asyncio.sleep(0)
                for _ in range(spins):
                    await asyncio.sleep(0)
                r.session.interrupt()
                ended += (await turn).status == "completed"
                r._check_shown()
            if ended >= 3:
                break
        else:
            raise AssertionError("no turn was ever completed")


# -- F59 -----------------------------------------------------------------------------------


async def test_F58_stop_while_a_failure_is_stored_is_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn has failed, and says so; it is not left running in the store."""
    async with rig(tmp_path, [status(400, "No."), say("Better.")], check=False) as r:
        sessions = type(r.runtime.store.sessions)
        store_state, stored = sessions.set_state, list[str]()

        async def stop_and_store(self: Any, id: str, state: str, **more: Any) -> None:
            if state == "failed":
                r.session.interrupt()
                await asyncio.sleep(0)
            stored.append(state)
            await store_state(self, id, state, **more)

        monkeypatch.setattr(sessions, "set_state", stop_and_store)
        result = await r.session.submit(user_message("hello"))
        assert "failed" in stored and result.status == "failed" and "No." in result.error
        assert [m.text for m in result.messages] == ["hello"]
        await r.idle()
        assert await r.state() == "failed"
        assert (await r.session.submit(user_message("again"))).text == "Better."


@pytest.mark.parametrize("wire", WIRES)
async def test_F59_guidance_during_a_tool_arrives_once_behind_its_result(
    tmp_path: Path, wire: str
) -> None:
    gate = Gate()
    steps = [call(("c1", "wait", {})), say("as you wish")]
    async with rig(tmp_path, steps, wire=wire, tools=[waiting(gate)]) as r:
        turn = r.begin("work")
        await gate.reached()
        r.session.submit(user_message("rather use blue"), busy="steer")
        gate.open()
        result = await turn
        assert result.status == "completed" and not result.pending_steer
        assert r.requests[1].body.count(b"rather use blue") == 1
        (found,) = [t for m in messages(r.requests[1]) for _, t in m.results]
        assert quoted(found) == "waited\n\nUser guidance: rather use blue"
        assert found.endswith(">\n\nUser guidance: rather use blue"), "outside the wrapper"
        check_legal(r.requests[1])


async def test_F59_a_message_queued_during_a_tool_is_the_next_turn_once(tmp_path: Path) -> None:
    gate = Gate()
    steps = [call(("c1", "wait", {})), say("first"), say("second")]
    async with rig(tmp_path, steps, tools=[waiting(gate)]) as r:
        turn = r.begin("work")
        await gate.reached()
        queued = asyncio.ensure_future(r.session.submit(user_message("and then this")))
        await asyncio.sleep(0)
        gate.open()
        assert (await turn).text == "first"
        assert (await queued).text == "second"
        assert b"and then this" not in r.requests[1].body
        assert r.requests[2].body.count(b"and then this") == 1
        texts = [m.text for m in await r.stored() if m.role == "user"]
        assert texts == ["work", "and then this"]
        await r.wait_end(2)


async def test_F59_a_message_that_interrupts_is_delivered_once(tmp_path: Path) -> None:
    gate = Gate()
    steps = [call(("c1", "wait", {})), say("new plan")]
    async with rig(tmp_path, steps, tools=[waiting(gate)]) as r:
        turn = r.begin("work")
        await gate.reached()
        r.session.submit(user_message("stop, do this"), busy="interrupt")
        assert (await turn).status == "interrupted"
        await r.wait_end(2)
        assert r.requests[1].body.count(b"stop, do this") == 1
        check_legal(r.requests[1])
        end = r.events[-1].result  # type: ignore[union-attr]
        assert end.text == "new plan"


async def test_F59_guidance_nobody_consumed_is_the_next_user_message(tmp_path: Path) -> None:
    """No tool result in this turn: it waits, and becomes the next message."""
    gate = Gate()
    steps = [say("Hello ", "world").hold(gate, "text", 1), say("blue it is")]
    async with rig(tmp_path, steps) as r:
        turn = r.begin("talk")
        await gate.reached()
        r.session.submit(user_message("use blue"), busy="steer")
        r.session.submit(user_message("and red"), busy="steer")
        gate.open()
        result = await turn
        assert result.status == "completed" and result.pending_steer == "use blue\nand red"
        await r.wait_end(2)
        assert r.requests[0].body.count(b"use blue") == 0
        assert r.requests[1].body.count(b"use blue\\nand red") == 1
        assert [m.text for m in await r.stored() if m.role == "user"][1] == "use blue\nand red"


async def test_F59_an_interrupt_clears_guidance(tmp_path: Path) -> None:
    gate = Gate()
    async with rig(tmp_path, [call(("c1", "wait", {}))], tools=[waiting(gate)]) as r:
        turn = r.begin("work")
        await r.until(lambda e: isinstance(e, ToolStarted))
        await gate.reached()
        r.session.submit(user_message("use blue"), busy="steer")
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and result.pending_steer == ""
        assert len(r.requests) == 1
        r.provider.add(say("ok"))
        following = await r.turn("next")
        assert following.pending_steer == "" and b"use blue" not in r.requests[1].body
