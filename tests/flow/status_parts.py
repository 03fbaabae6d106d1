"""What the tests of refused requests share."""

from __future__ import annotations

import base64
from pathlib import Path

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def reading(root: Path, text: str = "alpha") -> tuple[str, str, dict[str, str]]:
    """A call of read_file on a file that is there."""
    (root / "work").mkdir(exist_ok=True)
    (root / "work" / "a.txt").write_text(text)
    return ("c1", "read_file", {"path": "a.txt"})
