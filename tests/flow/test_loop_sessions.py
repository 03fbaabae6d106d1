"""Whole sessions: a fallback in mid-turn, many at once, nothing left open, stable prefixes."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.core.message import user_message
from tests.flow.loop_parts import work
from tests.kit import (
    WIRES,
    Provider,
    Received,
    Reply,
    call,
    say,
    status,
    think,
)
from tests.kit.bodies import check_legal, prefix
from tests.kit.rig import rig


@pytest.mark.parametrize("there", WIRES)
@pytest.mark.parametrize("here", WIRES)
async def test_a_fallback_in_mid_turn_keeps_the_transcript(
    tmp_path: Path, here: str, there: str
) -> None:
    """Re-encoded for the other wire, without the first provider's reasoning and signatures."""
    work(tmp_path, a="alpha")
    args = ("c1", "read_file", {"path": "a.txt"})
    sign = {"thoughtSignature": "Zm9yZWlnbg=="} if here == "gemini" else {}
    first = think("foreign thoughts", signature="Zm9yZWlnbg==") + say("Look. ")
    async with (
        Provider([say("finished here")], wire=there) as spare,
        rig(
            tmp_path, [first + call(args, **sign)], wire=here, then=status(500, "x"), spare=spare
        ) as r,
    ):
        result = await r.turn("start")
        assert result.status == "completed" and result.text == "finished here"
        assert result.target is not None and result.target.provider == "spare"
        seen = check_legal(spare.requests[0])
        assert seen[0].text == "start" and seen[1].text == "Look. "
        assert "alpha" in seen[2].results[0][1]
        assert b"Zm9yZWlnbg" not in spare.requests[0].body
        assert b"foreign thoughts" not in spare.requests[0].body
        assert len(r.started) == 1


async def test_a_turn_that_cannot_be_built_ends_with_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, [say("ok")], replay=False) as r:
        with monkeypatch.context() as patch:
            patch.setattr(r.session.host, "instructions", 5)
            result = await asyncio.wait_for(r.session.submit(user_message("go")), 90)
            assert result.status == "failed" and result.error_code == "internal"
        assert (await r.turn("again")).text == "ok"


async def test_many_sessions_at_once_do_not_mix(tmp_path: Path) -> None:
    """One runtime, one pool of connections, thirty conversations with a tool call each."""

    def echo(request: Received) -> Reply:
        seen = check_legal(request)
        name = seen[0].text.split()[-1]
        if seen[-1].results:
            assert f"for {name}" in seen[-1].results[0][1]
            return say(f"done {name}").random_cuts(len(request.body))
        return call(("c1", "terminal", {"command": f"echo for {name}"}))

    async with rig(tmp_path, [], then=echo) as r:
        options = Options(yolo=True)
        sessions = [
            await r.runtime.open_session(cwd=r.home.work, options=options) for _ in range(30)
        ]
        turns = [s.submit(user_message(f"I am n{i}")) for i, s in enumerate(sessions)]
        for i, result in enumerate(await asyncio.gather(*turns)):
            assert result.status == "completed" and result.text == f"done n{i}"
        assert len(r.requests) == 60 and r.provider.connections <= 30
        for session in sessions:
            await session.close()


async def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Descriptors, threads and tasks are the same after three runtimes as after one."""
    counts = []
    for n in range(3):
        folder = tmp_path / str(n)
        folder.mkdir()
        steps = [
            call(("c1", "terminal", {"command": "echo hello"})),
            say("half ").cut("text", 1),
            say("whole"),
        ]
        async with rig(folder, steps) as r:
            assert (await r.turn()).status == "completed"
        await asyncio.sleep(0)
        fds = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
        counts.append((fds, threading.active_count(), len(asyncio.all_tasks())))
    assert counts[1] == counts[2], counts


@pytest.mark.parametrize("wire", WIRES)
async def test_consecutive_requests_share_their_prefix_byte_for_byte(
    tmp_path: Path, wire: str
) -> None:
    work(tmp_path, a="alpha")

    def step(i: int) -> Reply:
        return say(f"Step {i}. ") + call((f"c{i}", "terminal", {"command": f"echo {i}"}))

    steps = [step(0), step(1), say("one"), step(2), say("two"), say("three")]
    async with rig(tmp_path, steps, wire=wire) as r:
        for text in ("first", "second", "third"):
            assert (await r.turn(text)).status == "completed"
        for before, after in pairwise(r.requests):
            assert after.body.startswith(prefix(before)), f"{before.body!r}\n{after.body!r}"


async def test_branches_share_the_saved_outputs_of_their_conversation(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("one"), say("two")]) as r:
        await r.turn("a")
        branch = await r.runtime.branch_session(r.session, 2)
        again = await r.runtime.branch_session(branch, 1)
        other = await r.runtime.reopen_session(r.session)
        folders = [s.host.workspace.outputs for s in (r.session, branch, again, other)]
        assert len({*folders[:3]}) == 1 and folders[3] != folders[0]
        for session in (branch, again, other):
            await session.close()
