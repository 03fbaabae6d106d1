"""Pastes on terminals that do not mark them: keys that arrive faster than anybody types."""

import select
from collections.abc import Callable, Sequence
from typing import TextIO

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

_TEXT_KEYS = frozenset({Keys.ControlM, Keys.ControlJ, Keys.ControlI})
_NEXT_PIECE_SECONDS = 0.01
"""Within which the next piece of a paste arrives."""
_MAX_KEYS = 4 << 20
_TYPED_CHARS = 8
"""More characters than this after an Enter are not typed along with it."""


class PasteDetectingInput(Vt100Input):
    """Turns unmarked pastes into marked ones. Not on a terminal that marks its pastes, and not for
    keys typed before the program was ready, which also arrive at once."""

    def __init__(self, stdin: TextIO, ready: Callable[[], bool]) -> None:
        super().__init__(stdin)
        self._ready = ready
        self._marks_pastes = False

    def read_keys(self) -> list[KeyPress]:
        keys = super().read_keys()
        self._marks_pastes |= any(key.key == Keys.BracketedPaste for key in keys)
        if self._marks_pastes or not self._ready() or not is_paste(keys):
            return keys
        source = [self.fileno()]
        while len(keys) < _MAX_KEYS and select.select(source, [], [], _NEXT_PIECE_SECONDS)[0]:
            more = super().read_keys()
            keys += more
            if not more or not _is_text(more):
                break
        count = next((n for n, key in enumerate(keys) if not _is_text([key])), len(keys))
        pasted = "".join(key.data for key in keys[:count])
        return [KeyPress(Keys.BracketedPaste, pasted), *keys[count:]]


def is_paste(keys: Sequence[KeyPress]) -> bool:
    """Whether keys that were read at once are lines of a pasted text. Two lines, or three that all
    end with Enter, may have been typed while nothing was read."""
    if len(keys) <= _TYPED_CHARS or not _is_text(keys):
        return False
    lines = "".join(key.data for key in keys).split("\r")
    return len(lines) > 4 or (len(lines) > 2 and len(lines[-1]) > _TYPED_CHARS)


def _is_text(keys: Sequence[KeyPress]) -> bool:
    return all(
        key.key in _TEXT_KEYS
        or (len(key.key) == 1 and key.data == key.key and key.key.isprintable())
        for key in keys
    )
