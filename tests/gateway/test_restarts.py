"""Stops, restarts and kills: nothing is lost, nothing is done twice (F60-F62, F83, F89)."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from pathlib import Path

import pytest

from hermes.agent.loop import OUTCOME_UNKNOWN
from hermes.gateway import service, texts
from tests.flow.loop_parts import results
from tests.gateway.gateways import gateway, live_gateway
from tests.gateway.kill_points import run_point_kills
from tests.gateway.kill_runs import SEED, run_kills, until_draft_is_stored
from tests.kit import Gate, call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.telegram import Fault

pytestmark = pytest.mark.e2e


async def test_what_was_sent_while_it_was_down_is_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("one"), say("two"), say("three")], start=False) as g:
        for text in ("first", "second", "third"):
            await g.telegram.say(text)
        await g.start()
        await g.telegram.until_shown("three")
        assert [t for t in g.telegram.texts() if t != texts.QUEUED] == ["one", "two", "three"]


async def test_a_turn_without_tools_runs_again_and_its_reply_is_finished(tmp_path: Path) -> None:
    gate = Gate()
    half = say("This is the beginning of it ", "and the rest.").hold(gate, after="text", n=1)
    steps = [half, say("This is the beginning of it and the end.")]
    async with gateway(tmp_path, steps) as g:
        await g.telegram.say("hello")
        await gate.reached()
        await g.telegram.until(lambda: g.telegram.sent)
        await until_draft_is_stored(g)
        await g.kill()
        gate.open()
        await g.start()
        await g.telegram.until_shown("This is the beginning of it and the end.")
        assert len(g.telegram.texts()) == 1, "the reply it had begun was edited"
        users = [m.text for m in messages(g.provider.requests[1]) if m.role == "user"]
        assert users == ["hello"]


async def test_f60_a_turn_cut_off_in_a_tool_is_told_once_and_goes_on(tmp_path: Path) -> None:
    command = "echo ran >> effects.log; sleep 300"
    steps = [call(("c1", "terminal", {"command": command})), say("I see.")]
    async with gateway(tmp_path, steps) as g:
        await g.telegram.say("work")
        effects = g.home.work / "effects.log"
        await _until_exists(effects)
        await g.kill()
        await g.start()
        await g.telegram.until_shown(texts.CUT_OFF)
        assert len(g.provider.requests) == 1
        await g.telegram.say("continue")
        await g.telegram.until_shown("I see.")
        assert effects.read_text() == "ran\n" and g.telegram.texts().count(texts.CUT_OFF) == 1
        calls = [m for m in messages(g.provider.requests[1]) if m.calls]
        assert len(calls) == 1, "the transcript goes on"


async def test_the_line_about_a_tool_that_was_cut_off_goes(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "sleep 300"}))]
    async with gateway(tmp_path, steps) as g:
        await g.telegram.say("work")
        await g.telegram.until_shown("⚙️ terminal: sleep 300")
        await until_draft_is_stored(g)
        await g.kill()
        await g.start()
        await g.telegram.until(lambda: g.telegram.texts() == [texts.CUT_OFF])


async def test_f60_a_resumed_turn_repeats_no_call(tmp_path: Path) -> None:
    command = "echo ran >> effects.log; sleep 300"
    steps = [call(("c1", "terminal", {"command": command})), say("It is done.")]
    async with gateway(tmp_path, steps, gateway={"on_restart": "resume"}) as g:
        await g.telegram.say("work")
        await _until_exists(g.home.work / "effects.log")
        await g.kill()
        await g.start()
        await g.telegram.until_shown("It is done.")
        assert OUTCOME_UNKNOWN in results(g.provider.requests[1])[0]
        assert (g.home.work / "effects.log").read_text() == "ran\n"


async def test_a_suspending_policy_starts_fresh(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "echo x >> effects.log; sleep 300"})), say("new")]
    async with gateway(tmp_path, steps, gateway={"on_restart": "suspend"}) as g:
        await g.telegram.say("work")
        await _until_exists(g.home.work / "effects.log")
        await g.kill()
        await g.start()
        await g.telegram.say("next")
        await g.telegram.until_shown("new")
        assert any(texts.WHY_SUSPENDED in t for t in g.telegram.texts())
        assert len(messages(g.provider.requests[1])) == 1


async def test_f83_a_send_whose_confirmation_was_lost_is_marked(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("the answer")]) as g:
        sent = asyncio.Event()

        def hold_answer(method: str, params: object) -> Fault | None:
            if method == "sendMessage" and not sent.is_set():
                sent.set()
                g.process.kill()
            return None

        g.telegram.fault = hold_answer
        await g.telegram.say("hi")
        await sent.wait()
        await g.wait()
        await g.start()
        await g.telegram.until_shown(f"{texts.REPEATED}\nthe answer")
        assert len(g.provider.requests) == 1, "the turn itself had ended"


async def test_restart_keeps_the_process_and_says_so_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("hi")]) as g:
        pid = g.process.pid
        asked = g.telegram.make_message("/restart")
        await g.telegram.push({"message": asked})
        await g.telegram.until_shown(texts.BACK_AGAIN)
        await g.telegram.push({"message": asked})
        await g.telegram.say("hello")
        await g.telegram.until_shown("hi")
        assert g.process.returncode is None and g.process.pid == pid
        assert g.telegram.texts() == [texts.RESTARTING, texts.BACK_AGAIN, "hi"]


async def test_a_restart_from_the_command_line_is_told_in_the_home_chat(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("hi")], platform={"home_chat": 77}) as g:
        pid = g.process.pid
        asked = await run_hermes(["gateway", "restart"], g.home)
        assert asked.rc == 0, asked.stderr
        await g.telegram.until_shown(texts.BACK_AGAIN)
        await g.telegram.say("hello")
        await g.telegram.until_shown("hi")
        assert g.process.returncode is None and g.process.pid == pid
        assert g.telegram.texts(77) == [texts.RESTARTING, texts.BACK_AGAIN]


async def test_under_a_supervisor_it_exits_for_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path, start=False) as g:
        await g.start(INVOCATION_ID="unit")
        await g.telegram.say("/restart")
        assert await g.wait() == 75
        await g.start(INVOCATION_ID="unit")
        await g.telegram.until_shown(texts.BACK_AGAIN)


async def test_f61_a_drain_lets_the_running_turn_end(tmp_path: Path) -> None:
    gate = Gate()
    async with gateway(tmp_path, [say("finished").hold(gate, n=0), say("later")]) as g:
        await g.telegram.say("work")
        await gate.reached()
        await g.telegram.say("queued")
        await g.telegram.until_shown(texts.QUEUED)
        g.process.send_signal(signal.SIGTERM)
        gate.open()
        assert await g.wait() == 0
        assert "finished" in g.telegram.texts() and len(g.provider.requests) == 1
        await g.start()
        await g.telegram.until_shown("later")


async def test_f61_what_takes_too_long_is_answered_after_the_next_start(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("answered")]
    async with gateway(tmp_path, steps, gateway={"drain_seconds": 0.2}) as g:
        await g.telegram.say("work")
        await gate.reached()
        assert await g.stop() == 0
        gate.open()
        await g.start()
        await g.telegram.until_shown("answered")
        assert g.telegram.texts() == ["answered"]


async def test_f61_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("answered")]
    async with gateway(tmp_path, steps, gateway={"drain_seconds": 3600}) as g:
        await g.telegram.say("work")
        await gate.reached()
        g.process.send_signal(signal.SIGTERM)
        await _until_state(g.home.path, "draining")
        await g.stop()
        gate.open()
        await g.start()
        await g.telegram.until_shown("answered")
        assert g.telegram.texts() == ["answered"]


async def test_f89_a_resumed_turn_comes_before_what_was_sent_meanwhile(tmp_path: Path) -> None:
    command = "echo ran >> effects.log; sleep 300"
    steps = [call(("c1", "terminal", {"command": command})), say("resumed"), say("and the next")]
    async with gateway(tmp_path, steps, gateway={"on_restart": "resume"}) as g:
        await g.telegram.say("work")
        await _until_exists(g.home.work / "effects.log")
        await g.kill()
        await g.telegram.say("meanwhile")
        await g.start()
        await g.telegram.until_shown("and the next")
        shown = [text for text in g.telegram.texts() if text != texts.QUEUED]
        assert shown == ["resumed", "and the next"] and len(g.provider.requests) == 3
        users = [m.text for m in messages(g.provider.requests[2]) if m.role == "user"]
        assert users == ["work", "meanwhile"]


async def test_f62_a_crash_loop_resumes_nothing_but_serves(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("served")]
    async with gateway(tmp_path, steps, start=False) as g:
        run = g.home.path / "run"
        run.mkdir(mode=0o700, exist_ok=True)
        await g.start()
        await g.telegram.say("work")
        await gate.reached()
        await g.kill()
        gate.open()
        starts = (run / "gateway_starts.json").read_text().strip("[]")
        (run / "gateway_starts.json").write_text(f"[{','.join([starts] * 4)}]")
        await g.start()
        await g.telegram.until_shown(texts.CUT_OFF)
        await g.telegram.say("are you there?")
        await g.telegram.until_shown("served")


async def test_f74_a_loop_that_hangs_leaves_its_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(service, "STALL_SECONDS", 1)
    monkeypatch.setattr(service, "STATE_SECONDS", 0.1)
    async with live_gateway(tmp_path, [say("still here")]) as g:
        seen = ""
        async with asyncio.timeout(90):
            while "test_f74_a_loop_that_hangs" not in seen:
                await asyncio.sleep(0.5)  # the loop runs and sets the watchdog again
                time.sleep(1.5)
                seen += capfd.readouterr().err
        assert "Timeout (0:00:01)!" in seen
        await g.telegram.say("are you there?")
        await g.telegram.until_shown("still here")


async def _until_state(home: Path, state: str) -> None:
    async with asyncio.timeout(90):
        while json.loads((home / "gateway_state.json").read_text())["gateway_state"] != state:
            await asyncio.sleep(0.02)


async def _until_exists(path: Path) -> None:
    async with asyncio.timeout(90):
        while not path.exists():
            await asyncio.sleep(0.02)


async def test_r1_kill_9_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    await run_kills(tmp_path, kills=3, seed=SEED)


@pytest.mark.parametrize("point", ["store", "effect", "reply row"])
async def test_f60_a_kill_at_a_named_point_loses_nothing(tmp_path: Path, point: str) -> None:
    await run_point_kills(tmp_path, point, 1)
