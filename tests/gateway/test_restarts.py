"""Stops, restarts and kills: nothing is lost, nothing is done twice (F60-F62, F83, F89)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from hermes.agent.loop import OUTCOME_UNKNOWN
from hermes.core.message import ToolCall
from hermes.gateway import texts
from hermes.store.sqlite import SqliteStore
from tests.flow.loop_parts import results
from tests.gateway.gateways import GatewayProcess, gateway
from tests.kit import Gate, Received, Reply, call, say
from tests.kit.bodies import messages
from tests.kit.telegram import Fault

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("HERMES_GATEWAY_KILLS", "6"))
SEED = int(os.environ.get("HERMES_KILL_SEED", str(random.randrange(10**6))))


async def test_what_was_sent_while_it_was_down_is_answered(tmp_path: Path) -> None:
    async with gateway(tmp_path, [say("one"), say("two"), say("three")], start=False) as g:
        for text in ("first", "second", "third"):
            await g.telegram.say(text)
        await g.start()
        await g.telegram.until_shown("three")
        assert [t for t in g.telegram.texts() if t != texts.QUEUED] == ["one", "two", "three"]


async def test_a_turn_without_tools_runs_again_and_its_reply_is_finished(tmp_path: Path) -> None:
    gate = Gate()
    half = say("This is the beginning of it ", "and the rest.").hold(gate, kind="text", n=1)
    steps = [half, say("This is the beginning of it and the end.")]
    async with gateway(tmp_path, steps) as g:
        await g.telegram.say("hello")
        await gate.reached()
        await g.telegram.until(lambda: g.telegram.sent)
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


async def _until_exists(path: Path) -> None:
    async with asyncio.timeout(90):
        while not path.exists():
            await asyncio.sleep(0.02)


# -- kills at random moments -------------------------------------------------------------------------


def answer(request: Received) -> Reply:
    """A tool call for a new prompt, text once its result is there."""
    seen = messages(request)
    words = [w for m in seen if m.role == "user" for w in m.text.split()]
    prompt = [w for w in words if w.startswith("p") and w.endswith("x")][-1]
    if seen[-1].results:
        reply = say(f"answer to {prompt} ", "is that ", "it was done.")
    elif int(prompt[1:-1]) % 2:
        reply = say(f"answer to {prompt} ", "is short.")
    else:
        command = f"echo {prompt} >> effects.log"
        reply = call((f"call_{prompt}_{len(seen)}", "terminal", {"command": command}))
    return reply.bytes_each(300).slow(0.002)


async def test_r1_kill_9_at_random_moments_loses_nothing(tmp_path: Path) -> None:
    """Replay with HERMES_KILL_SEED=...; the long form is HERMES_GATEWAY_KILLS=500."""
    print(f"HERMES_KILL_SEED={SEED}")
    rng = random.Random(SEED)
    config = {"gateway": {"on_restart": "resume", "busy_ack": False}}
    async with gateway(tmp_path, then=answer, **config) as g:
        number = 0
        for _ in range(KILLS):
            for _ in range(rng.randint(1, 3)):
                number += 1
                await g.telegram.say(f"p{number}x")
            await asyncio.sleep(rng.random() * 0.6)
            await g.kill()
            (g.home.path / "run" / "gateway_starts.json").unlink(missing_ok=True)
            await g.start()
        await g.telegram.until(lambda: _count_answered(g, number) == number)
        await g.stop()
        await _check_end(g, number)


def _count_answered(g: GatewayProcess, count: int) -> int:
    """Prompts that were answered, or whose turn was suspended after three restarts."""
    shown = " ".join(g.telegram.texts())
    answered = sum(f"answer to p{i}x " in shown for i in range(1, count + 1))
    return answered + g.telegram.texts().count(texts.CUT_OFF)


async def _check_end(g: GatewayProcess, count: int) -> None:
    unmarked = Counter(t for t in g.telegram.texts() if t.startswith("answer to "))
    assert all(n == 1 for n in unmarked.values()), f"twice without a mark: {unmarked}"
    log = g.home.work / "effects.log"
    effects = log.read_text().split() if log.exists() else []
    assert len(effects) == len(set(effects)), f"a command ran twice: {effects}"
    store = SqliteStore(g.home.path / "hermes.db")
    try:
        assert not await store.maintenance.check_integrity()
        users: Counter[str] = Counter()
        for meta in await store.sessions.list_recent():
            for message in await store.sessions.load_messages(meta.id):
                calls = [p for p in message.parts if isinstance(p, ToolCall)]
                assert len({c.id for c in calls}) == len(calls)
                if message.role == "user":
                    users[message.text.split("\n")[-1]] += 1
        assert users == Counter({f"p{i}x": 1 for i in range(1, count + 1)})
        assert not await store.mailbox.list_open_messages()
    finally:
        await store.close()
