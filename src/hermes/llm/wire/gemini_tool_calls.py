"""Function calls whose arguments arrive value by value, each with its path in the object."""

from __future__ import annotations

import re
from typing import Any

from hermes.llm.wire.convert import as_dicts, as_text

_STEP = re.compile(r"""\.?([^.\[\]'"$]+)|\[(\d+)\]|\[(?:'([^']*)'|"([^"]*)")\]""")
_VALUES = ("stringValue", "numberValue", "boolValue")
_MOST = 10_000
"""Longest list; a larger index is a mistake of the provider."""


class PartialCall:
    """An open call. Fragments of a text are joined; of other values the last one counts."""

    __slots__ = ("args", "slot")

    def __init__(self, slot: int, args: Any) -> None:
        self.slot = slot
        self.args: dict[str, Any] = dict(args) if isinstance(args, dict) else {}

    def add_pieces(self, pieces: Any) -> None:
        for piece in as_dicts(pieces):
            steps = [
                int(at) if at else name or quoted or doubly
                for name, at, quoted, doubly in _STEP.findall(as_text(piece.get("jsonPath")))
            ]
            value = next((piece[k] for k in _VALUES if k in piece), None)
            if steps and isinstance(steps[0], str):
                _put_value(self.args, steps, value)


def _put_value(inside: Any, steps: list[str | int], value: Any) -> None:
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if isinstance(inside, list) and isinstance(step, int) and step < _MOST:
            inside.extend([None] * (step + 1 - len(inside)))
            before = inside[step]
        elif isinstance(inside, dict):
            step, before = str(step), inside.get(str(step))
        else:
            return
        if following is None:
            joined = isinstance(before, str) and isinstance(value, str)
            inside[step] = before + value if joined else value
        elif not isinstance(before, dict | list):
            inside[step] = [] if isinstance(following, int) else {}
        inside = inside[step]
