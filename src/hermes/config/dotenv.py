"""Sets and removes variables in .env; everything else in the file stays as it is."""

import re
from collections.abc import Callable
from pathlib import Path

from hermes.config import paths
from hermes.config.private_files import hold_lock, replace_file
from hermes.config.secrets import parse_dotenv, read_dotenv
from hermes.core.errors import ConfigError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BARE = re.compile(r"[A-Za-z0-9_\-+=./:@%,]+\Z")
_HEADER = "# Secrets of hermes; readable by you alone.\n"


def set_variable(home: Path, name: str, value: str) -> None:
    """Raises ConfigError, with nothing changed, when it cannot be set."""
    if not _NAME.match(name):
        raise ConfigError(f"{name!r} is not a variable name; nothing was changed.")
    if not value or not value.isprintable():
        raise ConfigError(f"The value for {name} is empty or contains control characters.")
    line = f"{name}={_quote_value(value)}\n"
    _rewrite_file(home, lambda text: _replace_variable(text, name, line), {name: value})


def remove_variable(home: Path, name: str) -> bool:
    """Whether the variable was there."""
    file = paths.env_file(home)
    if not file.exists() or name not in read_dotenv(file):
        return False
    _rewrite_file(home, lambda text: _replace_variable(text, name, ""), {name: None})
    return True


def _rewrite_file(
    home: Path, change: Callable[[str], str], expected: dict[str, str | None]
) -> None:
    """Under the lock. The new text must parse to exactly the expected variables."""
    file = paths.env_file(home)
    with hold_lock(home / ".env.lock", ".env"):
        before = read_dotenv(file) if file.exists() else {}
        text = file.read_bytes().decode("utf-8-sig") if file.exists() else _HEADER
        after = change(text)
        merged = {**before, **expected}
        wanted = {name: value for name, value in merged.items() if value is not None}
        if parse_dotenv(after, file) != wanted:
            raise ConfigError(f"{file} cannot be changed safely; edit it by hand.")
        try:
            replace_file(file, after.encode())
        except OSError as error:
            raise ConfigError(
                f"{file} could not be written ({error.strerror}); nothing was changed."
            ) from None


def _replace_variable(text: str, name: str, line: str) -> str:
    """Replace the variable's first line and remove its others; a new one goes to the end."""
    from io import StringIO

    from dotenv.parser import parse_stream

    pieces: list[str] = []
    pending = line
    for binding in parse_stream(StringIO(text)):
        raw = binding.original.string
        if binding.key != name:
            pieces.append(raw)
            continue
        blank_lines = raw[: len(raw) - len(raw.lstrip("\r\n"))]
        pieces.append(blank_lines + pending)
        pending = ""
    result = "".join(pieces)
    if pending and result and not result.endswith("\n"):
        result += "\n"
    return result + pending


def _quote_value(value: str) -> str:
    if _BARE.match(value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
