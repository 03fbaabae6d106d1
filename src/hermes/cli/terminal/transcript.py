"""Stored conversations as Markdown, for people to read and to keep in a file."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from hermes.app.live.session_export import message_markdown
from hermes.cli.terminal.text import format_call
from hermes.core.errors import ConfigError
from hermes.core.store import Store
from hermes.core.text import format_plural

if TYPE_CHECKING:
    from hermes.app.session import Session


async def export_session(store: Store, session: "Session", cwd: Path, name: str) -> str:
    """Writes a session to a new file that only its owner can read; the sentence says where.

    ConfigError: nothing was written.
    """
    import asyncio

    clean = session.agent.redactor.redact
    file = _resolve_path(cwd, name or f"hermes-{session.id}.md")
    messages = store.sessions.stream_messages(session.id)
    parts = [clean(message_markdown(stored, format_call)) async for stored in messages]
    if not parts:
        raise ConfigError("There is nothing to export yet.")
    text = f"# {clean(session.transcript.meta.title) or session.id}\n\n" + "\n".join(parts)
    try:
        await asyncio.to_thread(_write_new_file, file, text)
    except FileExistsError:
        problem = f"{file} already exists and was not changed"
        raise ConfigError(f"{problem}; give another name.") from None
    except OSError as error:
        raise ConfigError(f"Could not write {file}: {error.strerror}.") from None
    return f"{format_plural(len(parts), 'message')} written to {file}."


def _resolve_path(cwd: Path, name: str) -> Path:
    try:
        return cwd / Path(name).expanduser()
    except RuntimeError:
        return cwd / name


def _write_new_file(file: Path, text: str) -> None:
    with open_new_file(file) as out:
        out.write(text)


def open_new_file(file: Path) -> TextIO:
    """For writing, readable only by its owner; OSError when it already exists."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    return os.fdopen(handle, "w", encoding="utf-8", errors="replace")
