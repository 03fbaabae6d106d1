"""/compress and /insights on a real Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.app.commands import CommandContext, run_command
from hermes.core.errors import ConfigError
from tests.flow.test_compression import desk, work, working
from tests.kit import say
from tests.kit.rig import Rig, rig


async def do(r: Rig, name: str, args: str = "") -> str:
    return (await run_command(CommandContext(r.runtime, r.session, "cli"), name, args)).text


async def test_compress_goes_on_in_a_shorter_conversation(tmp_path: Path) -> None:
    model = working(64_000, 0)
    async with desk(tmp_path, model, 64_000) as r:
        assert "too short to compress" in await do(r, "compress")
        await work(r, model, 12)
        old, before = r.session.id, len(r.session.transcript.history)
        told = await do(r, "compact")
        after = len(r.session.transcript.history)
        assert told == f"Compressed: {before} messages became {after}. To return: /resume {old}"
        assert r.session.id != old and after < before
        assert await do(r, "compress", "the names of files")  # a focus, whatever it gains


async def test_insights(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("hello")]) as r:
        assert "No model calls" in await do(r, "insights")
        await r.turn("hi")
        told = await do(r, "insights", "7")
        assert "kit-model: 1 call," in told and "$" not in told
        assert "$" in await do(r, "insights", "cost")
        with pytest.raises(ConfigError):
            await do(r, "insights", "soon")
