"""What every test of whole turns does: where sessions are recorded, they are played again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.home import RECORDING, Home
from tests.kit.rig import PLAYED


@pytest.fixture(autouse=True)
def played_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of tests that open sessions without a rig."""
    if not RECORDING:
        yield
        return
    monkeypatch.setattr(Home, "defaults", {"trace": {"record": "wire"}})
    yield
    home = tmp_path / "home"
    if home in PLAYED or not home.is_dir():
        return
    from tests.kit.replay import check_home_replays

    asyncio.run(check_home_replays(home))
