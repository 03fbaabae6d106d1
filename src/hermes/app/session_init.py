"""A new session: its id, and the system prompt it keeps for life."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Collection
from pathlib import Path

from hermes.agent.system_prompt import Extras, system_prompt
from hermes.agent.turn import Agent
from hermes.app import context_window as windows
from hermes.app.approvals import Safety
from hermes.app.context_files import MOST, persona, trusted_notes
from hermes.config.load import Setup
from hermes.core.store import SessionMeta

_MOST_HOSTS = 8


def new_id(now: float) -> str:
    """Sorts by time, reads as a date, cannot be guessed or collide."""
    return time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + secrets.token_hex(4)


def describe_walls(safety: Safety, tools: Collection[str]) -> str:
    """Two lines for the model: what its commands may write and reach. Empty when they are free,
    and for a small model, which has no room for it."""
    if safety.mode == "full-access" or safety.confirm or "terminal" not in tools:
        return ""
    folders = "/tmp" if safety.mode == "read-only" else "the working directory and /tmp"
    hosts = ", ".join(safety.network[:_MOST_HOSTS])
    installing = ", except package managers" if safety.packages and not hosts else ""
    return (
        f"Commands run in a sandbox: they can write to {folders} only; the user's home is hidden.\n"
        f"They {f'can reach {hosts} only' if hosts else f'have no network{installing}'}. Where a "
        "command needs more, give terminal `escalate`; the user decides."
    )


def new_meta(
    setup: Setup, agent: Agent, cwd: Path, *, owner: tuple[str, str], place: str, notes: bool = True
) -> SessionMeta:
    """`owner`: which surface it belongs to, and where it lives there. `notes`: whether the project
    in `cwd` has a say."""
    now = time.time()
    first = agent.providers[0] if agent.providers else None
    window = first.context_length if first else None
    tiny = windows.is_small(window)
    told = ""
    if notes and not agent.small:
        # A twelfth of a small window: a byte is about a quarter of a token.
        limit = min(MOST, (window or 0) // 3) if tiny else MOST
        told = trusted_notes(setup.home, cwd, limit, agent.redactor.clean)
    system = system_prompt(
        cwd=cwd,
        tools=agent.tools,
        tiny=tiny,
        today=time.strftime("%Y-%m-%d", time.localtime(now)),
        system="{0.sysname} {0.machine}".format(os.uname()),
        extras=Extras(place, persona(setup.home).text, told),
    )
    source, key = owner
    return SessionMeta(
        id=new_id(now),
        source=source,
        key=key,
        cwd=str(cwd),
        system=system,
        model=first.target.model if first else "",
        created=now,
        updated=now,
    )
