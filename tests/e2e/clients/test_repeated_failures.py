"""Failures that programs of others repeat for minutes before they show them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.clients.agent_programs import locate_program
from tests.e2e.clients.test_agent_programs import EVERY, FAILURES, check_failure

PROGRAMS = ("opencode", "aider")


@pytest.mark.timeout(900)
async def test_what_programs_repeat_is_shown_in_the_end(tmp_path: Path) -> None:
    """All at once: most of the time each of them waits."""
    async with asyncio.TaskGroup() as group:
        for program in PROGRAMS:
            locate_program(program)
            for order in EVERY:
                if order not in FAILURES[program]:
                    folder = tmp_path / f"{program}-{order}"
                    folder.mkdir()
                    group.create_task(check_failure(folder, program, order, seconds=600))
