"""What the tests of the loop share."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from tests.kit import (
    Received,
)
from tests.kit.bodies import messages, quoted


def work(root: Path, **files: str) -> None:
    (root / "work").mkdir(exist_ok=True)
    for name, content in files.items():
        (root / "work" / f"{name}.txt").write_text(content)


class Nothing(Struct):
    pass


class Name(Struct):
    name: str


def results(request: Received) -> list[str]:
    return [quoted(text) for m in messages(request) for _, text in m.results]
