"""The level of the sandbox that the last probe found, for those who need no certainty."""

from pathlib import Path

import msgspec
from msgspec import Struct

TIER_FILE = "sandbox.json"
"""In the folder for caches: what was probed, and the result."""


class _LastProbe(Struct):
    last: int = 0


def read_last_level(cache: Path) -> int:
    """The level that the last probe found, of whichever process; 0: nobody has probed."""
    try:
        return msgspec.json.decode((cache / TIER_FILE).read_bytes(), type=_LastProbe).last
    except (OSError, msgspec.DecodeError):
        return 0
