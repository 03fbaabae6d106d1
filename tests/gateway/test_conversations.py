"""How a conversation is kept together: cut texts, restarts that hang it, work in the background."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.gateways import gateway, live_gateway
from tests.gateway.test_turns import prompts
from tests.kit import Gate, call, say
from tests.kit.bodies import messages
from tests.kit.telegram import OWNER

pytestmark = pytest.mark.e2e

OTHER = 2002


async def test_a_text_that_the_client_cut_is_one_message(tmp_path: Path) -> None:
    head, rest = "x" * 4096, "and the rest of it"
    async with live_gateway(tmp_path, [say("read"), say("next")]) as g:
        await g.telegram.say(head)
        await g.telegram.say(rest)
        await g.telegram.until_shown("read")
        await g.telegram.say("short")
        await g.telegram.until_shown("next")
        assert prompts(g) == [f"{head}\n{rest}", "short"]


async def test_f62_what_is_in_flight_at_three_restarts_in_a_row_is_suspended(
    tmp_path: Path,
) -> None:
    gates = [Gate() for _ in range(3)]
    steps = [*(say("never").hold(gate, n=0) for gate in gates), say("fresh")]
    async with gateway(tmp_path, steps) as g:
        await g.telegram.say("what hangs it")
        for gate in gates:
            await gate.reached()
            await g.kill()
            gate.open()
            await g.start()
        await g.telegram.until_shown(texts.CUT_OFF)
        assert len(g.provider.requests) == len(gates), "it is not tried a fourth time"
        await g.telegram.say("something else")
        await g.telegram.until_shown("fresh")
        assert any(
            t.startswith(f"◐ New session ({texts.WHY_SUSPENDED})") for t in g.telegram.texts()
        )
        assert [m.text for m in messages(g.provider.requests[-1])] == [
            f"{texts.FRESH_NOTE.format(reason=texts.REASON_SUSPENDED)}\nsomething else"
        ]
        assert await g.stop() == 0


async def test_a_suspending_policy_reaches_what_was_just_used(tmp_path: Path) -> None:
    steps = [
        say("hello other"),
        call(("c1", "terminal", {"command": "echo x >> effects.log; sleep 300"})),
        say("other is fresh"),
    ]
    platform = {"allowed_users": [OWNER, OTHER]}
    settings = {"on_restart": "suspend"}
    async with gateway(tmp_path, steps, platform=platform, gateway=settings) as g:
        await g.telegram.say("hi", user=OTHER)
        await g.telegram.until_shown("hello other")
        await g.telegram.say("work")
        async with asyncio.timeout(90):
            while not (g.home.work / "effects.log").exists():
                await asyncio.sleep(0.02)
        await g.kill()
        await g.start()
        await g.telegram.say("again", user=OTHER)
        await g.telegram.until_shown("other is fresh")
        assert any(texts.WHY_SUSPENDED in t for t in g.telegram.texts(OTHER))
        assert await g.stop() == 0


async def test_a_conversation_with_work_in_the_background_does_not_expire(tmp_path: Path) -> None:
    steps = [
        call(("c1", "terminal", {"command": "sleep 300", "background": True})),
        say("it runs"),
        say("still the same"),
        say("fresh"),
    ]
    reset = {"mode": "idle", "idle_minutes": 0.001}
    async with live_gateway(tmp_path, steps, gateway={"reset": reset}) as g:
        await g.telegram.say("start it")
        await g.telegram.until_shown("it runs")
        await asyncio.sleep(0.1)
        await g.telegram.say("and now?")
        await g.telegram.until_shown("still the same")
        actor: Any = g.service.conversations.find_actor(f"agent:main:telegram:dm:{OWNER}")
        await g.service.hub.runtime.background_commands.close()
        async with asyncio.timeout(90):
            while actor.slot.has_background_work():
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        await g.telegram.say("later")
        await g.telegram.until_shown("fresh")
        assert any(
            t.startswith("◐ New session (no message for 0.001 min)") for t in g.telegram.texts()
        )
        assert "previous session expired due to inactivity" in prompts(g)[-1]


async def test_what_came_during_a_long_turn_does_not_come_after_a_pause(tmp_path: Path) -> None:
    gate = Gate()
    reset = {"mode": "idle", "idle_minutes": 0.0001}
    steps = [say("one").hold(gate, n=0), say("two")]
    async with live_gateway(tmp_path, steps, gateway={"reset": reset}) as g:
        await g.telegram.say("first")
        await gate.reached()
        await g.telegram.say("second")
        await g.telegram.until_shown(texts.QUEUED)
        gate.open()
        await g.telegram.until_shown("two")
        assert prompts(g) == ["first", "second"]
        assert not any("New session" in text for text in g.telegram.texts())


async def test_the_typing_indicator_is_on_again_before_the_answer_to_an_interruption(
    tmp_path: Path,
) -> None:
    first, second = Gate(), Gate()
    steps = [say("never ", "ending").hold(first, n=0), say("second answer").hold(second, n=0)]
    async with live_gateway(tmp_path, steps, gateway={"busy_input_mode": "interrupt"}) as g:
        await g.telegram.say("first")
        await first.reached()
        shown = len(g.telegram.calls)
        await g.telegram.say("second")
        await second.reached()
        await g.telegram.until(
            lambda: any(method == "sendChatAction" for method, _ in g.telegram.calls[shown:])
        )
        first.open()
        second.open()
        await g.telegram.until_shown("second answer")
