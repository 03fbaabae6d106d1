"""A review that is killed is not made again: what was read once is not paid for twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.flow.test_memory_review import Talk, is_review
from tests.kit import Gate, Home, Provider, Received, Reply, start_hermes
from tests.kit.bodies import messages
from tests.kit.processes import until

pytestmark = pytest.mark.e2e


async def converse(home: Home, args: list[str], words: list[str]) -> asyncio.subprocess.Process:
    """The terminal without a screen, which is told these words."""
    process = await start_hermes(["chat", *args], home, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write("".join(f"{word}\n" for word in words).encode())
    await process.stdin.drain()
    return process


async def test_a_killed_review_is_not_made_again(tmp_path: Path) -> None:
    gate, talk = Gate(), Talk({"text": "Heron is the server."})

    def answer(request: Received) -> Reply:
        reply = talk(request)
        return reply.hold(gate) if is_review(request) and len(talk.reviews) == 1 else reply

    async with Provider([], then=answer) as provider:
        memory = {"review": True, "review_turns": 2}
        home = Home.of(tmp_path, provider, memory=memory)
        process = await converse(home, [], ["first", "second"])
        await gate.reached()
        process.kill()
        await process.wait()
        gate.open()
        process = await converse(home, ["--continue"], ["third", "fourth"])
        await until(lambda: len(talk.reviews) == 2)
        file = home.path / "memories" / "MEMORY.md"
        await until(lambda: file.exists() and "Heron" in file.read_text())
        assert process.stdin is not None
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 90) == 0
    said = messages(talk.reviews[1])[-1].text
    assert "third" in said and "fourth" in said
    assert "first" not in said and "second" not in said
    assert len(talk.reviews) == 2
