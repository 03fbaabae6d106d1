"""Kills at random moments on Discord and Slack: nothing is lost, nothing is repeated unmarked."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.kill_runs import SEED
from tests.gateway.messengers import messenger
from tests.kit import Received, Reply, say
from tests.kit.bodies import messages
from tests.kit.discord import discord
from tests.kit.slack import slack

pytestmark = pytest.mark.e2e

KILLS = 8


def answer(request: Received) -> Reply:
    prompt = [m.text.split()[-1] for m in messages(request) if m.role == "user"][-1]
    return say(f"answer to {prompt} ", "is short.").bytes_each(300).slow(0.002)


@pytest.mark.parametrize("fake", [discord, slack])
async def test_kill_9_at_random_moments_loses_nothing(tmp_path: Path, fake: Any) -> None:
    print(f"HERMES_KILL_SEED={SEED}")
    rng = random.Random(SEED)
    config: Any = {"gateway": {"on_restart": "resume", "busy_ack": False, "max_queued": 10_000}}
    chat: AbstractAsyncContextManager[Any] = fake()
    async with messenger(chat, tmp_path, then=answer, process=True, **config) as g:
        number = 0

        def count_answered() -> int:
            shown = " ".join(g.chat.texts())
            return sum(f"answer to p{n}x is short." in shown for n in range(1, number + 1))

        for _ in range(KILLS):
            for _ in range(rng.randint(1, 3)):
                number += 1
                await g.chat.say(f"p{number}x")
            await asyncio.sleep(rng.random() * 0.5)
            await g.run.kill()
            await g.chat.break_connections()
            number += 1
            await g.chat.say(f"p{number}x")
            (g.home.path / "run" / "gateway_starts.json").unlink(missing_ok=True)
            await g.run.start()
            await g.chat.until(lambda: count_answered() >= number - 3, timeout=200)  # noqa: B023
        await g.chat.until(lambda: count_answered() == number, timeout=200)
        whole = Counter(t for t in g.chat.texts() if t.startswith("answer to "))
        repeated = [t for t in g.chat.texts() if t.startswith(texts.REPEATED)]
        assert max(whole.values()) == 1, f"twice without a mark: {whole}, {repeated}"
        asked = Counter(prompt for prompt in g.prompts)
        assert len(asked) == number
