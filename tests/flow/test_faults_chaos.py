"""All faults at once, in any order: whatever happens to a turn, the global invariants hold."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.core.message import user_message
from tests.kit import (
    WIRES,
    Provider,
    Received,
    Reply,
    call,
    error_frame,
    garbage,
    hang_up,
    html,
    nothing,
    raw,
    reset,
    say,
    stall,
    status,
    think,
)
from tests.kit.rig import Rig, rig

SEEDS = int(os.environ.get("HERMES_CHAOS_SEEDS", "12"))
FIRST = int(os.environ.get("HERMES_CHAOS_FIRST", "0"))
TURNS = 4
LIMITS = {"ttfb_timeout_seconds": 0.3, "stale_timeout_seconds": 0.3}
CONFIG = {"providers": {"custom": LIMITS, "spare": LIMITS}, "agent": {"max_turns": 8}}


class Chaos:
    """A provider that is right half of the time. Each command it asks for has its own number, so
    that a command run twice shows in the log of effects."""

    def __init__(self, seed: int, wire: str) -> None:
        self.rng = random.Random(seed)
        self.wire = wire
        self.numbers = 0
        self.trace: list[str] = []

    def __call__(self, request: Received) -> Reply:
        name = self.rng.choices(["good", "bent", "bad"], [6, 3, 3])[0]
        reply: Reply = getattr(self, name)()
        if self.rng.random() < 0.3 and reply.answer is not None:
            reply = reply.random_cuts(self.rng.randrange(10**6))
        return reply

    def _pick(self, **choices: Callable[[], Reply]) -> Reply:
        name = self.rng.choice(list(choices))
        self.trace.append(name)
        return choices[name]()

    def _command(self) -> tuple[str, str, dict[str, str]]:
        self.numbers += 1
        command = f"echo {self.numbers} >> effects; echo done {self.numbers}"
        id = self.rng.choice([f"c{self.numbers}", "same", "call_0", "", "x" * 70])
        return id, "terminal", {"command": command}

    def good(self) -> Reply:
        return self._pick(
            text=lambda: say(f"Answer number {self.rng.randrange(99)}. Grüße ✓"),
            thinking=lambda: think("hm", signature="c2ln") + say("I thought about it."),
            command=lambda: call(self._command()),
            talking=lambda: say("I run it. ") + call(self._command()),
            two=lambda: call(self._command(), self._command()),
            plain=lambda: say("Not streamed.").as_json(),
            plain_command=lambda: call(self._command()).as_json(),
        )

    def bent(self) -> Reply:
        """Answers that are odd in themselves."""
        text = self.wire != "gemini"
        broken = '{"command": "echo never >> effects'
        return self._pick(
            length=lambda: say("This goes on and ").stop("length"),
            empty=nothing,
            blank=lambda: say("\n \n"),
            thoughts=lambda: think("only thoughts"),
            tags=lambda: say("<think>hidden</think>shown"),
            open_tag=lambda: say("<think>never closed"),
            unknown=lambda: call((f"u{self.rng.random()}", "launch rocket", {})),
            case=lambda: call((f"r{self.rng.random()}", "Read-File", {"path": "none.txt"})),
            cut_args=lambda: call(("b1", "terminal", broken)) if text else nothing(),
            bad_args=lambda: call(("b2", "terminal", '{"a": 1}{"b": 2}')) if text else nothing(),
            no_stop=lambda: say("No end in sight").without("stop", "usage", "done"),
            no_usage=lambda: say("Free of charge").usage(None),
            odd=lambda: say("a\ufffe\x01b <|im_start|>"),
        )

    def bad(self) -> Reply:
        """Faults of the network and of the service."""
        victim = (
            think("hm") + say("Some words, ", "more words") + call(self._command())
        ).bytes_each(self.rng.choice([7, 50, 0]))
        at = self.rng.randrange(1, 1500)
        return self._pick(
            reset=reset,
            hang_up=hang_up,
            cut=lambda: victim.cut(byte=at),
            reset_later=lambda: victim.reset(byte=at),
            silence=lambda: victim.stall(byte=at),
            mute=stall,
            server=lambda: status(self.rng.choice([500, 502, 503, 529]), "down"),
            limit=lambda: status(429, "slow", headers={"Retry-After": "2"}),
            refused=lambda: status(400, "No."),
            frame=lambda: error_frame("overloaded", status=503, code=""),
            late_frame=lambda: say("Half a ").then_error("broken", status=500),
            page=html,
            noise=lambda: garbage(b"\x00\x01\x02 nonsense"),
            odd_json=lambda: raw(b'{"unexpected": [1, 2'),
            zipped=lambda: say("zip").as_json().gzip(truncated=True),
            overflow=lambda: status(400, "prompt is too long: 9 tokens > 8 maximum"),
            policy=lambda: nothing().stop("filtered"),
        )


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_any_mixture_of_faults_keeps_the_invariants(tmp_path: Path, seed: int) -> None:
    """Replay one: HERMES_CHAOS_FIRST=n HERMES_CHAOS_SEEDS=1."""
    wire = WIRES[seed % len(WIRES)]
    chaos = Chaos(seed, wire)
    async with rig(tmp_path, Provider(wire=wire, then=chaos), config=CONFIG) as r:
        await survive(r, chaos, [f"prompt {n}" for n in range(TURNS)])
        assert len(r.requests) <= TURNS * 8 * 6


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 2))
async def test_and_with_a_fallback_that_is_no_better(tmp_path: Path, seed: int) -> None:
    wire, other = WIRES[seed % len(WIRES)], WIRES[(seed // 5) % len(WIRES)]
    chaos = Chaos(seed, wire)
    worse = Chaos(seed + 1, other)
    worse.numbers = 10_000
    async with (
        Provider(wire=other, then=worse) as spare,
        rig(tmp_path, Provider(wire=wire, then=chaos), spare=spare, config=CONFIG) as r,
    ):
        spare.observe = r.observe
        await survive(r, chaos, [f"prompt {n}" for n in range(TURNS)])


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS // 2))
async def test_and_with_people_who_interrupt_and_steer(tmp_path: Path, seed: int) -> None:
    wire = WIRES[seed % len(WIRES)]
    chaos = Chaos(seed, wire)
    rng = random.Random(seed)
    async with rig(tmp_path, Provider(wire=wire, then=chaos), config=CONFIG) as r:
        for n in range(TURNS):
            turn = r.begin(f"prompt {n}")
            for _ in range(rng.randrange(3)):
                await _a_moment(r, rng)
                if rng.random() < 0.5:
                    r.session.interrupt()
                elif r.session.busy:
                    r.session.submit(user_message(f"guidance {rng.random()}"), busy="steer")
            await turn
            await r.idle()
        await survive(r, chaos, [])


async def _a_moment(r: Rig, rng: random.Random) -> None:
    """Until a few more events have come, or a little while."""
    wanted = len(r.events) + rng.randrange(6)
    for _ in range(40):
        if len(r.events) >= wanted:
            return
        await asyncio.sleep(0.005)


async def survive(r: Rig, chaos: Chaos, prompts: list[str]) -> None:
    try:
        for prompt in prompts:
            await r.turn(prompt)
        await r.invariants()
    except AssertionError:
        print(f"on {chaos.wire}: {chaos.trace}")
        raise
    log = r.home.work / "effects"
    effects = log.read_text().split() if log.exists() else []
    assert len(effects) == len(set(effects)), f"run twice: {effects} {chaos.trace}"
    assert "never" not in effects
