"""Embedded models on the terminal: the progress of a download."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.llm.http.transport import Transport

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.llm.local.models import LocalModel
    from hermes.llm.local.puller import PullProgress

PrintLine = Callable[[str], None]
_REDRAW_SECONDS = 0.2
_STEP_PERCENT = 10
"""Between two lines where there is no terminal."""
_BAR_WIDTH = 28


class DownloadBar:
    """Redrawn in place on a terminal; otherwise, and with `print_line`, line by line."""

    def __init__(self, name: str, print_line: PrintLine | None = None) -> None:
        self._name = name
        self._print_line = print_line
        self._tty = print_line is None and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()
        self._base: int | None = None
        """Bytes that were there before: they say nothing about the speed."""
        self._step = -1
        self._open = False

    def __call__(self, progress: PullProgress) -> None:
        if progress.note:
            self._write_line(progress.note)
            return
        if self._base is None:
            self._base = progress.done
        if self._tty:
            self._draw_bar(progress)
            return
        step = 100 * progress.done // progress.total // _STEP_PERCENT
        if step > self._step:
            self._step = step
            self._write_line(self._format_progress(progress))

    def close(self) -> None:
        if self._open:
            self._open = False
            print(file=sys.stderr, flush=True)

    def _draw_bar(self, progress: PullProgress) -> None:
        now = time.monotonic()
        if now - self._drawn < _REDRAW_SECONDS and progress.done < progress.total:
            return
        self._drawn = now
        filled = _BAR_WIDTH * progress.done // progress.total
        bar = "#" * filled + "-" * (_BAR_WIDTH - filled)
        self._open = True
        text = self._format_progress(progress)
        print(f"\r[{bar}] {text}\x1b[K", end="", file=sys.stderr, flush=True)

    def _format_progress(self, progress: PullProgress) -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        speed = (progress.done - (self._base or 0)) / seconds
        text = f"{self._name}: {progress.done // 10**6} of {progress.total // 10**6} MB"
        if speed > 0 and progress.done < progress.total:
            left = (progress.total - progress.done) / speed
            text += f", {speed / 1e6:.1f} MB/s, {left:.0f} s left"
        return text

    def _write_line(self, text: str) -> None:
        self.close()
        if self._print_line is not None:
            self._print_line(text)
        else:
            print(text, file=sys.stderr, flush=True)


async def ensure_available(
    base_url: str, transport: Transport, print_line: PrintLine | None = None
) -> None:
    """Downloads the model behind an endpoint if it is an embedded one that is missing."""
    from hermes.llm.endpoints.embedded import find_missing_model

    if model := find_missing_model(base_url):
        await download_model(model, transport, print_line)


async def download_model(
    model: LocalModel, transport: Transport, print_line: PrintLine | None = None
) -> Path:
    """The file of the model, downloaded unless it is there."""
    from hermes.app.control.model_download import pull_model

    bar = DownloadBar(model.name, print_line)
    try:
        return await pull_model(model, transport, bar)
    finally:
        bar.close()
