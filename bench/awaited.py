"""CPU time of coroutines."""

import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

Run = Callable[[], Awaitable[Any]]


async def cpu_ms(run: Run) -> float:
    start = time.process_time()
    await run()
    return (time.process_time() - start) * 1e3


async def in_turn(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """CPU of each, round robin, after one unmeasured round. What comes first after a collection
    pays for it, so each comes after one, and every other round is in reverse."""
    out: dict[str, list[float]] = {name: [] for name in runs}
    for round_number in range(-1, rounds):
        order = list(runs.items())[:: -1 if round_number % 2 else 1]
        for name, run in order:
            gc.collect()
            spent = await cpu_ms(run)
            if round_number >= 0:
                out[name].append(spent)
    return out
