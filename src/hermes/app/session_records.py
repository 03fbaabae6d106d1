"""Records of stored sessions: new ones, continuations and branches, and their checkpoints."""

import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from hermes.agent.system_prompt import PromptExtras, build_system_prompt
from hermes.agent.turn import Agent
from hermes.app.approvals import Safety
from hermes.app.context_window import is_small_window
from hermes.app.knowledge.context_files import MAX_BYTES, read_persona, read_trusted_notes
from hermes.config.load import Setup
from hermes.core.errors import ConfigError
from hermes.core.message import Message
from hermes.core.store import SessionMeta, SessionState, Store
from hermes.core.taint import Taint
from hermes.core.text import safe_name
from hermes.exec.process.output_files import OUTPUTS_NAME
from hermes.exec.tier_record import read_last_level

if TYPE_CHECKING:
    from hermes.exec.snapshots.checkpoints import Checkpoint

log = logging.getLogger(__name__)

_MARK = re.compile(r" ?\[(\S+) (\d+)\]$")
_LONGEST_LABEL = 100
_MAX_ANCESTORS = 100
_MAX_HOSTS = 8


def create_session_id(now: float) -> str:
    """An id that sorts by time, reads as a date, and can neither be guessed nor collide."""
    return time.strftime("%Y%m%d-%H%M%S-", time.localtime(now)) + secrets.token_hex(4)


async def describe_sandbox(safety: Safety, tools: Collection[str], cache: Path) -> str:
    """Two lines for the model: what its commands may write and reach. Empty if nothing confines
    them, and for a small model, which has no room for it."""
    if safety.mode == "full-access" or safety.confirms_all or "terminal" not in tools:
        return ""
    level = read_last_level(cache)
    if not level:
        from hermes.exec.sandbox_probe import probe_tier

        level = (await probe_tier(cache)).level
    if level == 3:
        return ""
    own = "their own /tmp" if level == 1 else "$TMPDIR (new for each command)"
    folders = own if safety.mode == "read-only" else f"the working directory and {own}"
    hosts = ", ".join(safety.network[:_MAX_HOSTS])
    installing = ", except package managers" if safety.packages and not hosts else ""
    return (
        f"Commands run in a sandbox: they write to {folders} only; the user's home is hidden.\n"
        f"They {f'reach {hosts} only' if hosts else f'have no network{installing}'}. For more, "
        "give terminal `escalate`; the user decides."
    )


def create_session_meta(
    setup: Setup,
    agent: Agent,
    cwd: Path,
    owner: tuple[str, str],
    *,
    extras: PromptExtras,
    notes: bool,
) -> SessionMeta:
    """The record of a new session, with the system prompt it keeps for life. `owner`: its surface
    and its conversation there. `extras`: what the prompt says beside the persona and the project's
    notes. `notes`: whether to include the instructions in `cwd`."""
    now = time.time()
    client = agent.providers[0] if agent.providers else None
    window = client.endpoint.context_length if client else None
    tiny = is_small_window(window)
    project_notes = ""
    if notes and not agent.small:
        # A twelfth of a small window: a byte is about a quarter of a token.
        limit = min(MAX_BYTES, (window or 0) // 3) if tiny else MAX_BYTES
        project_notes = read_trusted_notes(setup.home, cwd, limit, agent.redactor.redact)
    system = build_system_prompt(
        cwd=cwd,
        tools=agent.tools,
        tiny=tiny,
        today=time.strftime("%Y-%m-%d", time.localtime(now)),
        system="{0.sysname} {0.machine}".format(os.uname()),
        extras=structs.replace(extras, persona=read_persona(setup.home).text, notes=project_notes),
    )
    return SessionMeta(
        id=create_session_id(now),
        source=owner[0],
        key=owner[1],
        cwd=str(cwd),
        system=system,
        model=client.target.model if client else "",
        created=now,
        updated=now,
    )


def has_folder(meta: SessionMeta) -> bool:
    """Whether the folder in which the session works still exists."""
    return Path(meta.cwd).is_dir()


async def find_current_session(store: Store, session_id: str) -> SessionMeta | None:
    """The session, or the one that continues it since it was compressed."""
    meta = await store.sessions.get_meta(session_id)
    while meta is not None and meta.next:
        following = await store.sessions.get_meta(meta.next)
        if following is None:
            break
        meta = following
    return meta


async def require_session(store: Store, session_id: str) -> SessionMeta:
    """As `find_current_session`; ConfigError when there is none."""
    found = await find_current_session(store, session_id)
    if found is None:
        sentence = f"There is no session {session_id}. `hermes sessions list` shows them."
        raise ConfigError(sentence)
    return found


async def continue_in_child(
    store: Store, meta: SessionMeta, taint: Taint, messages: Sequence[Message], *, running: bool
) -> SessionMeta:
    """Store a child that begins with these messages; the conversation continues there."""
    child = _make_child(meta, taint)
    state: SessionState = "running" if running else "idle"
    await store.sessions.continue_in_child(meta.id, child, messages, state)
    return child


async def store_branch(
    store: Store, meta: SessionMeta, taint: Taint, messages: Sequence[Message], title: str = ""
) -> str:
    """Store a separate session that begins with these messages; returns its id."""
    child = structs.replace(_make_child(meta, taint), title=title or meta.title)
    if messages:
        await store.sessions.append(child.id, messages, create=child)
    else:
        await store.sessions.create(child)
    return child.id


def _make_child(meta: SessionMeta, taint: Taint) -> SessionMeta:
    now = time.time()
    return structs.replace(
        meta,
        id=create_session_id(now),
        parent=meta.id,
        created=now,
        updated=now,
        taint=taint,
        next="",
    )


async def locate_outputs(store: Store, home: Path, meta: SessionMeta) -> Path:
    """The folder for long outputs of a conversation: it and its branches share it, other
    conversations and other API keys have their own. Ids and keys may be hostile."""
    owner = meta.key.partition("/")[0]
    for _ in range(_MAX_ANCESTORS):
        above = await store.sessions.get_meta(meta.parent) if meta.parent else None
        if above is None:
            break
        meta = above
    first = meta.parent or meta.id
    digest = hashlib.sha256("\0".join((meta.source, owner, first)).encode("utf-8", "replace"))
    return home / OUTPUTS_NAME / f"{safe_name(first, '-')[:40]}-{digest.hexdigest()[:24]}"


def find_turn_starts(messages: Sequence[Message]) -> list[int]:
    """Indexes of the messages that turns answered."""
    return [i for i, m in enumerate(messages) if m.role == "user" and m.kind == "normal"]


def strip_label_mark(label: str) -> str:
    """A checkpoint's label without the part that only serves to find it again."""
    return _MARK.sub("", label)


async def save_checkpoint(cwd: Path, home: Path, prompt: str, session_id: str, index: int) -> None:
    """Save the files before the turn that answers message `index` changes any."""
    from hermes.exec.snapshots.checkpoints import create_checkpoint

    label = f"{prompt[:_LONGEST_LABEL]} [{session_id} {index}]".strip()
    await create_checkpoint(cwd, home, label, log.info)


async def find_checkpoint_since(
    store: Store, home: Path, meta: SessionMeta, *, index: int, length: int
) -> "Checkpoint | None":
    """The earliest checkpoint of the turns from message `index` on: the files before it was
    answered. None when no such turn changed any. `length`: of the history."""
    from hermes.exec.snapshots.checkpoints import list_checkpoints

    ends = {session_id: end async for session_id, end in _walk_ancestors(store, meta, length)}
    found: list[tuple[int, float, Checkpoint]] = []
    for made in await list_checkpoints(Path(meta.cwd), home):
        mark = _MARK.search(made.label)
        if mark and index <= int(mark[2]) < ends.get(mark[1], 0):
            found.append((int(mark[2]), made.created, made))
    return min(found, key=lambda row: row[:2])[2] if found else None


async def _walk_ancestors(
    store: Store, meta: SessionMeta, length: int
) -> AsyncIterator[tuple[str, int]]:
    """The session and those it branched from, each with the number of messages they share."""
    for _ in range(_MAX_ANCESTORS):
        yield meta.id, length
        above = await store.sessions.get_meta(meta.parent) if meta.parent else None
        if above is None or above.next == meta.id:  # compressed: the indexes differ
            return
        length = min(length, await _count_inherited(store, meta.id))
        meta = above


async def _count_inherited(store: Store, session_id: str) -> int:
    """How many messages a branch began with: stored together, they have the same time."""
    count, together = 0, None
    async for stored in store.sessions.stream_messages(session_id):
        if together is not None and stored.created != together:
            break
        count, together = count + 1, stored.created
    return count if count > 1 else 0
