"""How long a call may take: values, apart from what keeps to them."""

from __future__ import annotations

from msgspec import Struct


class Timeouts(Struct, frozen=True):
    """Seconds; 0 turns a limit off."""

    ttfb: float = 45.0
    """Until the first event."""
    stale: float = 180.0
    """Without an event, once they flow; from the start where there is no limit on the first."""
    total: float = 1800.0
