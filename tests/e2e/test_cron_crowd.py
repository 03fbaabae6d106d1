"""Many schedulers at once over many due jobs: each runs once."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.test_cron import run_together
from tests.kit import Home


async def test_four_run_due_and_a_daemon_over_fifty_jobs(tmp_path: Path) -> None:
    assert await run_together(Home(tmp_path), 50, 4, with_daemon=True) == {"ok": 50}
