"""/export: a conversation as Markdown, in a new file that only its owner can read."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from hermes.core.errors import ConfigError
from hermes.core.text import counted

if TYPE_CHECKING:
    from hermes.app.runtime import Runtime
    from hermes.app.session import Session


async def export(runtime: Runtime, session: Session, cwd: Path, name: str) -> str:
    """What was written where. ConfigError: nothing was."""
    from hermes.cli.terminal.transcript import markdown

    clean = session.agent.redactor.clean
    file = _wanted(cwd, name or f"hermes-{session.id}.md")
    parts = [
        clean(markdown(stored))
        async for stored in runtime.store.sessions.stream_messages(session.id)
    ]
    if not parts:
        raise ConfigError("There is nothing to export yet.")
    text = f"# {clean(session.transcript.meta.title) or session.id}\n\n" + "\n".join(parts)
    try:
        await asyncio.to_thread(_write_new, file, text)
    except FileExistsError:
        raise ConfigError(f"{file} exists and is left as it is; give another name.") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from None
    return f"{counted(len(parts), 'message')} written to {file}."


def _wanted(cwd: Path, name: str) -> Path:
    try:
        return cwd / Path(name).expanduser()
    except RuntimeError:
        return cwd / name


def _write_new(file: Path, text: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8", errors="replace") as out:
        out.write(text)
