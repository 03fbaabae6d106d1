"""Random keys and pastes while the agent streams, asks and the window changes its size."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit import Home, Provider, Received, Reply, call, say
from tests.kit.screen import CTRL_C, ENTER, ESCAPE, TAB, Terminal, terminal

pytestmark = pytest.mark.e2e
SEED = 20261116
KEYS = 20_000
WORDS = "the quick brown fox jumps over any lazy dog; yes, no, sure, always: späße 你好 🎉".split()
MOTIONS = [
    "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[5~", "\x1b[6~", "\x1b[3~",
    "\x01", "\x02", "\x05", "\x06", "\x0b", "\x0c", "\x0f", "\x14", "\x17", "\x19", "\x1bb",
    "\x1bf",
    "\x7f", "\x1b[13;2u", "\x1b[27;2;13~", "\x1b\r", "\n", TAB, "@", "?", "\x12", ESCAPE,
]  # fmt: skip
"""Keys that edit, look or move; none of them answers a question."""


def reply_at_random(dice: random.Random) -> Reply:
    match dice.randrange(4):
        case 0:
            return call((f"c{dice.random()}", "terminal", {"command": "git stash drop; touch ran"}))
        case 1:
            return call((f"c{dice.random()}", "terminal", {"command": "echo hello; exit 2"}))
        case _:
            words = " ".join(dice.choices(WORDS, k=dice.randrange(1, 400)))
            return say(f"# Title\n{words}\n```py\nprint(1)\n```\n", size=dice.choice([3, 50, 1000]))


async def press_keys(t: Terminal, dice: random.Random, count: int) -> None:
    """So many keys, in bursts as people and pastes make them, on a window of many sizes."""
    pressed = 0
    while pressed < count:
        match dice.randrange(12):
            case 0:
                await t.paste("\n".join(dice.choices(WORDS, k=dice.randrange(1, 30))))
                pressed += 1
            case 1:
                t.resize(dice.choice([20, 40, 80, 200]), dice.choice([4, 6, 24, 60]))
            case 2:
                await t.send("".join(dice.choices(MOTIONS, k=5)).encode())
                pressed += 5
            case 3:
                await t.send(dice.choice([ENTER, TAB, ESCAPE]).encode())
                pressed += 1
            case _:
                text = " ".join(dice.choices(WORDS, k=6)) + " "
                await t.all_read()  # a full line would cut it, and its first letter be an answer
                await t.send(text.encode())
                pressed += len(text)
        await asyncio.sleep(0)
        assert t.process.returncode is None, f"it ended\n{t.screen}"


@pytest.mark.timeout(600)
async def test_random_keys(tmp_path: Path) -> None:
    """It neither crashes nor hangs, no question is answered by what was not meant for it, and what
    is typed afterwards arrives whole."""
    dice = random.Random(SEED)
    answers = random.Random(SEED + 1)

    is_over = asyncio.Event()

    def answer(request: Received) -> Reply:
        last = request.json["messages"][-1]["content"]
        if "final words" in str(last):
            return say("understood to the letter")
        return say("enough") if is_over.is_set() else reply_at_random(answers)

    async with Provider([], then=answer) as p:
        home = Home.of(tmp_path, p)
        async with terminal(home, env={"PAGER": "cat"}) as t:
            t.type("begin" + ENTER)
            await press_keys(t, dice, KEYS)
            is_over.set()  # the messages that still wait ask for nothing
            t.resize(100, 30)
            await empty_prompt(t)
            await run_everything_entered(t, "one")
            await empty_prompt(t)  # of a turn that was entered before
            t.type("/plan off" + ENTER)  # Esc and Tab at once are Shift-Tab on some terminals
            await run_everything_entered(t, "two")
            final = "final words: " + " ".join(WORDS)
            t.type(final)
            t.type(ENTER)
            await written(t, "understood to the letter")
            log = home.path / "logs" / "hermes.log"
            assert not log.exists() or "Traceback" not in log.read_text(), log.read_text()[-3000:]
        sent = [str(r.json["messages"][-1]["content"]) for r in p.requests]
        assert any(final in text for text in sent)
    # Letters stood in the prompt or came at once: none of them was an answer.
    assert not (home.work / "ran").exists()


async def empty_prompt(t: Terminal) -> None:
    """Until nothing runs or asks and the prompt is empty. Each round leaves a search and then
    stops, denies or clears one thing; the letter keeps two of them from quitting."""
    cleared = "restores the text"
    for _ in range(90):
        t.type("\x07x" + CTRL_C)
        with suppress(AssertionError):
            await t.see(cleared, timeout=1)
            return
    raise AssertionError(f"it does not come to rest\n{t.screen}")


async def run_everything_entered(t: Terminal, name: str) -> None:
    """Until all that was entered before is handled: entries are, one after the other. While a pager
    has the terminal, that makes a new line of Enter: then the next one sends."""
    t.type(f"/handled-{name}" + ENTER)
    said = f"Unknown command /handled-{name}"
    try:
        await written(t, said, timeout=30)
    except AssertionError:
        t.type(ENTER)
        await written(t, said)


async def written(t: Terminal, text: str, timeout: float = 90) -> None:
    """Until it was on the screen; what follows may have moved it out within the same picture."""
    await t.until(lambda: text.encode() in t.raw, text, timeout)
