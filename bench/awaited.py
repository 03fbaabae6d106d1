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
    """CPU of each, round robin, after one unmeasured round."""
    out: dict[str, list[float]] = {name: [] for name in runs}
    for round_number in range(-1, rounds):
        gc.collect()
        for name, run in runs.items():
            spent = await cpu_ms(run)
            if round_number >= 0:
                out[name].append(spent)
    return out
