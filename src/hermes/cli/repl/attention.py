"""What reaches a user who looks elsewhere: the bell, a desktop notification, the window title."""

import time
from collections.abc import Callable

from hermes.cli.terminal.text import one_line
from hermes.config.schema import DisplaySection

SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
_MAX_CHARS = 100


class Attention:
    """Stays silent while the user types or the turn is short."""

    def __init__(
        self,
        write_codes: Callable[[str], None],
        settings: DisplaySection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write_codes = write_codes
        self._settings = settings
        self._clock = clock
        self._title = ""

    def notify(self, text: str, since: float) -> None:
        """Calls the user, who has waited since then."""
        mode = self._settings.notify
        if mode == "off" or self._clock() - since < self._settings.notify_after_seconds:
            return
        shown = one_line(text, _MAX_CHARS).replace(";", ",")
        self._write_codes(f"\x1b]9;{shown}\x07\x07" if mode == "desktop" else "\x07")

    def set_title(self, text: str) -> None:
        title = one_line(f"hermes · {text}" if text else "hermes", _MAX_CHARS)
        if title != self._title:
            self._title = title
            self._write_codes(f"\x1b]2;{title}\x07")
