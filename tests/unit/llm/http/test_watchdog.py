"""What counts as silence of a provider."""

from __future__ import annotations

import asyncio
import time

from hermes.llm.http.watchdog import Timeouts, Watchdog


async def test_time_in_which_this_process_did_not_run_is_not_silence() -> None:
    """The event had arrived before the limit, but its reader comes after the timer."""
    loop = asyncio.get_running_loop()
    event: asyncio.Future[str] = loop.create_future()

    def block() -> None:
        time.sleep(0.4)
        loop.call_soon(loop.call_soon, loop.call_soon, event.set_result, "event")

    watchdog = Watchdog(Timeouts(0, 0.2, 0), "host")
    loop.call_soon(block)
    assert await watchdog.wait(event) == "event"
    watchdog.stop()
