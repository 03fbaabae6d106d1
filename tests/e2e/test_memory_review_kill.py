"""A review that is killed is not made again: what was read once is not paid for twice."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.flow.test_memory_review import Talk, is_review
from tests.kit import Gate, Home, Provider, Received, Reply, start_hermes
from tests.kit.bodies import messages
from tests.kit.processes import until

pytestmark = pytest.mark.e2e
PROGRAM = """
import asyncio, sys
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.message import user_message

async def main(resume, *words):
    async with Runtime.open(load_setup()) as runtime:
        session = await runtime.open_session(resume=resume)
        print(session.id, flush=True)
        for word in words:
            await session.submit(user_message(word))
        await asyncio.to_thread(sys.stdin.readline)
        await session.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def converse(home: Home, resume: str, *words: str) -> asyncio.subprocess.Process:
    """A process whose session is told these words and stays open until its input ends."""
    return await start_hermes(
        [resume, *words],
        home,
        env={"PYTHONPATH": ":".join(sys.path)},
        stdin=asyncio.subprocess.PIPE,
        command=[sys.executable, "-c", PROGRAM],
    )


async def test_a_killed_review_is_not_made_again(tmp_path: Path) -> None:
    gate, talk = Gate(), Talk({"text": "Heron is the server."})

    def answer(request: Received) -> Reply:
        reply = talk(request)
        return reply.hold(gate) if is_review(request) and len(talk.reviews) == 1 else reply

    async with Provider([], then=answer) as provider:
        memory = {"review": True, "review_turns": 2}
        home = Home.of(tmp_path, provider, memory=memory)
        killed = await converse(home, "", "first", "second")
        assert killed.stdout is not None
        name = (await killed.stdout.readline()).decode().strip()
        await gate.reached()
        killed.kill()
        await killed.wait()
        gate.open()
        process = await converse(home, name, "third", "fourth")
        await until(lambda: len(talk.reviews) == 2)
        file = home.path / "memories" / "MEMORY.md"
        await until(lambda: file.exists() and "Heron" in file.read_text())
        await asyncio.wait_for(process.communicate(b"\n"), 90)
        assert process.returncode == 0
    said = messages(talk.reviews[1])[-1].text
    assert "third" in said and "fourth" in said
    assert "first" not in said and "second" not in said
    assert len(talk.reviews) == 2
