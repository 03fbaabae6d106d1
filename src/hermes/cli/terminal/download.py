"""A download on the terminal: a bar, or a line now and then; and models fetched before a turn."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes.config.env import environment
from hermes.config.package_index import indexes
from hermes.config.paths import models_folders
from hermes.llm.endpoints.embedded import missing_model
from hermes.llm.http.transport import EMBEDDED, Transport
from hermes.llm.local.models import LocalModel
from hermes.llm.local.puller import Puller, PullProgress

if TYPE_CHECKING:
    from pathlib import Path

Say = Callable[[str], None]
_EVERY = 0.2
_STEP = 10
"""Per cent between two lines where there is no terminal."""
_WIDTH = 28


class Bar:
    """On stderr, drawn over itself where that is a terminal; or through `say`, line by line."""

    def __init__(self, name: str, say: Say | None = None) -> None:
        self._name = name
        self._say = say
        self._tty = say is None and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()
        self._base: int | None = None
        """What was there before: it says nothing about the speed."""
        self._step = -1
        self._open = False

    def __call__(self, progress: PullProgress) -> None:
        if progress.note:
            self._line(progress.note)
            return
        if self._base is None:
            self._base = progress.done
        if self._tty:
            self._draw(progress)
            return
        step = 100 * progress.done // progress.total // _STEP
        if step > self._step:
            self._step = step
            self._line(self._text(progress))

    def close(self) -> None:
        if self._open:
            self._open = False
            print(file=sys.stderr, flush=True)

    def _draw(self, progress: PullProgress) -> None:
        now = time.monotonic()
        if now - self._drawn < _EVERY and progress.done < progress.total:
            return
        self._drawn = now
        filled = _WIDTH * progress.done // progress.total
        bar = "#" * filled + "-" * (_WIDTH - filled)
        self._open = True
        print(f"\r[{bar}] {self._text(progress)}\x1b[K", end="", file=sys.stderr, flush=True)

    def _text(self, progress: PullProgress) -> str:
        seconds = max(time.monotonic() - self._began, 0.001)
        speed = (progress.done - (self._base or 0)) / seconds
        text = f"{self._name}: {progress.done // 10**6} of {progress.total // 10**6} MB"
        if speed > 0 and progress.done < progress.total:
            left = (progress.total - progress.done) / speed
            text += f", {speed / 1e6:.1f} MB/s, {left:.0f} s left"
        return text

    def _line(self, text: str) -> None:
        self.close()
        if self._say is not None:
            self._say(text)
        else:
            print(text, file=sys.stderr, flush=True)


async def pull(model: LocalModel, transport: Transport, say: Say | None = None) -> Path:
    """The file of the model, downloaded if it is not there."""
    environ = environment()
    bar = Bar(model.name, say)
    folder = models_folders(environ.get)[0]
    try:
        return await Puller(folder, transport, indexes(environ), bar).pull(model)
    finally:
        bar.close()


async def prepare(base_url: str, transport: Transport, say: Say | None = None) -> None:
    """What an endpoint needs before it can be called the first time."""
    if base_url.startswith(EMBEDDED) and (model := missing_model(base_url)):
        await pull(model, transport, say)
