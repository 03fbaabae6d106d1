"""Keys that come faster than anybody types: a paste, where the terminal does not say so."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from typing import TextIO

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

_WRITTEN = frozenset({Keys.ControlM, Keys.ControlJ, Keys.ControlI})
_FOLLOWS = 0.01
"""Seconds within which the next piece of a paste comes."""
_MOST = 4 << 20
_WORD = 8
"""Characters behind an Enter that nobody types along with it."""


class Bursts(Vt100Input):
    """A terminal that marks its pastes has no others; what was typed before the program was
    ready came at once, too, and is no paste."""

    def __init__(self, stdin: TextIO, ready: Callable[[], bool]) -> None:
        super().__init__(stdin)
        self._ready = ready
        self._marked = False

    def read_keys(self) -> list[KeyPress]:
        keys = super().read_keys()
        self._marked = self._marked or any(key.key == Keys.BracketedPaste for key in keys)
        if self._marked or not self._ready() or not pasted(keys):
            return keys
        while len(keys) < _MOST and select.select([self.fileno()], [], [], _FOLLOWS)[0]:
            more = super().read_keys()
            keys += more
            if not more or not _written(more):
                break
        count = next((n for n, key in enumerate(keys) if not _written([key])), len(keys))
        whole = "".join(key.data for key in keys[:count])
        return [KeyPress(Keys.BracketedPaste, whole), *keys[count:]]


def pasted(keys: Sequence[KeyPress]) -> bool:
    """Whether these keys, read at once, are lines of a text. Two of them, or three that are all
    sent, may have been typed while nothing was read."""
    if len(keys) <= _WORD or not _written(keys):
        return False
    lines = "".join(key.data for key in keys).split("\r")
    return len(lines) > 4 or (len(lines) > 2 and len(lines[-1]) > _WORD)


def _written(keys: Sequence[KeyPress]) -> bool:
    return all(
        key.key in _WRITTEN or (len(key.key) == 1 and key.data == key.key and key.key.isprintable())
        for key in keys
    )
