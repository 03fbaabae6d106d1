"""Runs the program and notes how its event loop does: python stall_meter.py FILE ARGUMENTS..."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

PERIOD = 0.01
REPORT_SECONDS = 0.5


class Meter:
    """Wakes up every ten milliseconds. How late that is says how long something held the loop;
    `own` is the part of it that the loop's thread worked, whatever else the machine does."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._late = array("d")
        self._own = array("d")

    async def run(self) -> None:
        reported = 0.0
        while True:
            begin, worked = time.monotonic(), time.thread_time()
            await asyncio.sleep(PERIOD)
            late = max(0.0, time.monotonic() - begin - PERIOD)
            self._late.append(late)
            self._own.append(min(late, time.thread_time() - worked))
            if begin - reported >= REPORT_SECONDS:
                reported = begin
                self._report()

    def _report(self) -> None:
        tasks = len(asyncio.all_tasks())
        found = {"tasks": tasks, "late": find_tail(self._late), "own": find_tail(self._own)}
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(self._file)


def find_tail(values: array[float]) -> float:
    """The 99.9th percentile, in milliseconds."""
    ordered = sorted(values)
    return 1e3 * ordered[min(len(ordered) - 1, len(ordered) * 999 // 1000)]


def main() -> None:
    file, *arguments = sys.argv[1:]
    run = asyncio.run

    def run_measured(work: Coroutine[Any, Any, Any]) -> Any:
        async def run_both() -> Any:
            meter = asyncio.create_task(Meter(Path(file)).run())
            try:
                return await work
            finally:
                meter.cancel()

        return run(run_both())

    asyncio.run = run_measured  # type: ignore[assignment]
    sys.argv = ["hermes", *arguments]
    from hermes.cli.main import main as run_program

    run_program()


if __name__ == "__main__":
    main()
