"""The log file: what matters as redacted JSON lines, private, made at the first record."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from hermes.core.log_context import SESSION

MAX_BYTES = 4 << 20
_TELLING = ("hermes.agent.compression", "hermes.llm.auth.key_pool", "hermes.llm.auth.oauth")
"""Whose ordinary doings are worth a line: what is compressed, which keys and logins change."""


class LogFile(logging.Handler):
    """Never raises and never blocks a turn: what cannot be written is dropped."""

    def __init__(self, where: Path, redact: Callable[[str], str]) -> None:
        super().__init__(logging.INFO)
        self.where = where
        self._redact = redact
        self._handle = -1

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._line(record)
            if self._handle < 0 or self._full():
                self._handle = self._open()
            os.write(self._handle, line)
        except (OSError, ValueError, TypeError):
            return

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        """JSON escapes line breaks, so that no text can forge a record."""
        from hermes.cli.terminal.text import dump

        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        entry: dict[str, object] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(record.getMessage()),
        }
        if session := SESSION.get():
            entry["session"] = session
        fields: dict[str, object] = getattr(record, "fields", {})
        for name, value in fields.items():
            entry[name] = self._redact(value) if isinstance(value, str) else value
        if record.exc_info and record.exc_info[1] is not None:
            entry["trace"] = self._redact("".join(traceback.format_exception(record.exc_info[1])))
        return (dump(entry) + "\n").encode()

    def _full(self) -> bool:
        """Then it is let go of: a server writes for weeks, and another process of this home may
        have begun the file anew."""
        if os.fstat(self._handle).st_size <= MAX_BYTES:
            return False
        os.close(self._handle)
        self._handle = -1
        return True

    def _open(self) -> int:
        from hermes.config.paths import make_private_folder

        make_private_folder(self.where.parent)
        if self.where.exists() and self.where.stat().st_size > MAX_BYTES:
            self.where.replace(self.where.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.where, flags, 0o600)


def install(where: Path, redact: Callable[[str], str]) -> None:
    root = logging.getLogger()
    root.addHandler(LogFile(where, redact))
    root.setLevel(logging.WARNING)
    for name in _TELLING:
        tell(name)


def tell(name: str) -> None:
    """Also the ordinary doings of this part."""
    logging.getLogger(name).setLevel(logging.INFO)
