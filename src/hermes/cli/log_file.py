"""The log file: redacted JSON lines, private, created with the first record."""

import logging
import os
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path

from hermes.app.live.log_records import LogRecord
from hermes.config import paths
from hermes.core.redaction.log_context import SESSION
from hermes.core.redaction.redactor import Redactor

MAX_BYTES = 4 << 20
_INFO_LOGGERS = (
    "hermes.agent.compression",
    "hermes.llm.auth.key_pool",
    "hermes.llm.auth.oauth",
    "hermes.llm.endpoints.learned_limits",
)
"""Whose ordinary events are logged too: compressions, changes of keys and logins, and of what
sessions get as their context."""


def start_logging(home: Path, secrets: Iterable[str]) -> None:
    """Logs to the file of this home from now on, with these secrets redacted."""
    root = logging.getLogger()
    root.addHandler(LogFile(paths.log_file(home), Redactor(secrets).redact))
    root.setLevel(logging.WARNING)
    for name in _INFO_LOGGERS:
        log_info_events(name)


def log_info_events(logger_name: str) -> None:
    """Also logs the ordinary events of this logger."""
    logging.getLogger(logger_name).setLevel(logging.INFO)


class LogFile(logging.Handler):
    """Never raises and never delays a turn: what cannot be written is dropped."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        super().__init__(logging.INFO)
        self.path = path
        self._redact = redact
        self._handle = -1

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self._encode_record(record)
            # A server writes for weeks, and another process of this home may have rotated the file.
            if self._handle >= 0 and os.fstat(self._handle).st_size > MAX_BYTES:
                self._close_file()
            if self._handle < 0:
                self._handle = self._open_file()
            os.write(self._handle, line)
        except (OSError, ValueError, TypeError):
            return

    def close(self) -> None:
        self._close_file()
        super().close()

    def _close_file(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _encode_record(self, record: logging.LogRecord) -> bytes:
        """JSON escapes line breaks, so that no text can forge a record."""
        from hermes.cli.terminal.text import to_json  # brings orjson

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
        return (to_json(entry) + "\n").encode()

    def _open_file(self) -> int:
        paths.make_private_folder(self.path.parent)
        if self.path.exists() and self.path.stat().st_size > MAX_BYTES:
            self.path.replace(self.path.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self.path, flags, 0o600)


def format_record(record: LogRecord) -> str:
    """One line for people, with the trace indented below."""
    from hermes.cli.terminal.text import strip_controls

    when = str(record.get("time", ""))[:19].replace("T", " ")
    level = str(record.get("level", "")).upper()
    session = f" [{record['session']}]" if record.get("session") else ""
    head = f"{when} {level:<8}{session} {record.get('logger', '')}: {record.get('message', '')}"
    text = strip_controls(" ".join(head.split("\n")))
    trace = strip_controls(str(record.get("trace", "")).rstrip())
    return text + "".join(f"\n    {line}" for line in trace.splitlines())
