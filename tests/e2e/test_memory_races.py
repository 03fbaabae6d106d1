"""Memory for longer: eight processes that write at once, and 500 writes that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.memory.test_notebook import kill_writers, write_together


async def test_eight_processes_with_two_hundred_changes_each(tmp_path: Path) -> None:
    await write_together(tmp_path, 8, 200)


@pytest.mark.parametrize("seed", range(2))
async def test_five_hundred_writes_with_kills(tmp_path: Path, seed: int) -> None:
    await kill_writers(tmp_path, 500, seed)
