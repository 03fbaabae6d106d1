"""Kills of a gateway at random moments, and what must be true afterwards."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path

import msgspec

from hermes.core.message import ToolCall
from hermes.gateway import texts
from hermes.gateway.content.reply import Progress
from hermes.store.sqlite import SqliteStore
from tests.gateway.gateways import GatewayProcess, gateway
from tests.kit import Received, Reply, call, say
from tests.kit.bodies import messages

SEED = int(os.environ.get("HERMES_KILL_SEED", str(random.randrange(10**6))))


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


async def run_kills(root: Path, *, kills: int, seed: int) -> None:
    """Replay with HERMES_KILL_SEED=..."""
    print(f"HERMES_KILL_SEED={seed}")
    rng = random.Random(seed)
    config = {"gateway": {"on_restart": "resume", "busy_ack": False, "max_queued": 10_000}}
    async with gateway(root, then=answer, **config) as g:
        number = 0
        for _ in range(kills):
            for _ in range(rng.randint(1, 3)):
                number += 1
                await g.telegram.say(f"p{number}x")
            await asyncio.sleep(rng.random() * 0.6)
            await g.kill()
            (g.home.path / "run" / "gateway_starts.json").unlink(missing_ok=True)
            await g.start()
            await until_answered(g, number, left=5)
        await until_answered(g, number)
        await g.stop()
        await check_end(g, number)


async def until_answered(g: GatewayProcess, count: int, left: int = 0) -> None:
    await g.telegram.until(lambda: _count_answered(g, count) >= count - left, timeout=240)


def _count_answered(g: GatewayProcess, count: int) -> int:
    """Prompts that were answered, or whose turn was suspended after three restarts."""
    shown = " ".join(g.telegram.texts())
    answered = sum(f"answer to p{i}x " in shown for i in range(1, count + 1))
    return answered + g.telegram.texts().count(texts.CUT_OFF)


async def check_end(g: GatewayProcess, count: int) -> None:
    """All were answered, each effect happened once, and repeats have their mark."""
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


async def until_draft_is_stored(g: GatewayProcess) -> None:
    """Until the gateway has noted the id of the message it is still writing."""
    store = SqliteStore(g.home.path / "hermes.db")
    try:
        async with asyncio.timeout(90):
            while True:
                found = [r for r in await store.mailbox.list_open_replies() if r.progress]
                read = [msgspec.msgpack.decode(r.progress, type=Progress) for r in found]
                if any(progress.ids for progress in read):
                    return
                await asyncio.sleep(0.02)
    finally:
        await store.close()
