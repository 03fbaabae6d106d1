"""Closers wait for the last runtime of an event loop."""

from __future__ import annotations

import asyncio

import pytest

from hermes.core import lifecycle


async def test_closers_run_when_the_last_runtime_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    async def close(name: str) -> None:
        ran.append(name)

    monkeypatch.setattr(lifecycle, "_closers", [])
    lifecycle.register_closer(lambda: close("first"))
    lifecycle.register_closer(lambda: close("second"))
    lifecycle.hold_closers()
    lifecycle.hold_closers()
    await lifecycle.release_closers()
    assert ran == []

    async def run_elsewhere() -> None:
        lifecycle.hold_closers()
        await lifecycle.release_closers()

    await asyncio.to_thread(asyncio.run, run_elsewhere())
    assert ran == ["second", "first"]
    await lifecycle.release_closers()
    assert ran == ["second", "first"] * 2
