"""Plays a recorded session again and compares it with what happened."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import structs

from hermes.app.live.session_tape import TAPE_KIND, load_agents, load_tape
from hermes.batch.replay.player import PlayedSession, load_conversation, play_session
from hermes.core.events import (
    Approval,
    Notice,
    Question,
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolProgress,
    TurnEnd,
    TurnEvent,
)
from hermes.core.redaction.redactor import Redactor
from hermes.core.store import Store
from hermes.store.sqlite import SqliteStore
from tests.kit.home import RECORDING
from tests.kit.rig import PLAYED


async def replay(store: Store, session_id: str) -> PlayedSession:
    """Play the whole conversation that a session belongs to."""
    meta = await store.sessions.get_meta(session_id)
    assert meta is not None
    found = await load_conversation(store, meta)
    turns = [turn for part in found.metas for turn in await load_tape(store, part)]
    agents = await load_agents(store, {turn.agent for turn in turns})
    return await play_session(found, turns, agents)


async def check_replay(store: Store, session_id: str, events: Sequence[TurnEvent]) -> None:
    """The session replays identically: requests, messages, usage and events."""
    if await store.sessions.get_meta(session_id) is None:
        return  # nothing was stored, or it was deleted
    logging.disable()  # tests count what the session itself logged
    try:
        played = await replay(store, session_id)
    finally:
        logging.disable(logging.NOTSET)
    assert played.report.identical, played.report
    expected = list(_comparable(events))
    found = list(_comparable(played.events))
    size = len(expected)
    # Other sessions may have begun the conversation or gone on with it.
    if not any(_is_same(found[at : at + size], expected) for at in range(len(found) - size + 1)):
        pairs = zip(found[-size:], expected, strict=False)
        different = [pair for pair in pairs if not _is_same([pair[0]], [pair[1]])]
        raise AssertionError(_show_difference(*different[0]) if different else len(found))


async def replay_now(home: Path) -> None:
    """For tests whose providers and wires are gone when they have ended."""
    PLAYED.add(home)
    if RECORDING:
        await check_home_replays(home)


async def check_home_replays(home: Path) -> None:
    """Every recorded session of a home replays identically."""
    for file in home.glob("hermes.db"):
        store = SqliteStore(file)
        try:
            await check_other_replays(store, "")
        finally:
            await store.close()


async def check_other_replays(store: Store, session_id: str) -> None:
    """Subagents, branches and what a test opened itself replay identically, too."""
    meta = await store.sessions.get_meta(session_id)
    known = set((await load_conversation(store, meta)).metas) if meta is not None else {session_id}
    logging.disable()
    try:
        for row in await store.objects.list_all(TAPE_KIND):
            other = await store.sessions.get_meta(row.owner)
            if row.owner in known or other is None:
                continue
            known |= set((await load_conversation(store, other)).metas)
            played = await replay(store, row.owner)
            assert played.report.identical, (other, played.report)
    finally:
        logging.disable(logging.NOTSET)


def _is_same(found: Sequence[Any], expected: Sequence[Any]) -> bool:
    """Equal, but for secrets: a tape has none."""
    if found == expected:
        return True
    redact = Redactor().redact
    return redact(repr(found)) == redact(repr(expected))


def _show_difference(found: Any, expected: Any) -> str:
    if type(found) is not type(expected):
        return f"{expected!r:.300} was expected, not {found!r:.300}"
    names = [
        n for n in structs.fields(found) if getattr(found, n.name) != getattr(expected, n.name)
    ]
    return "\n".join(
        f"{n.name}: {getattr(found, n.name)!r} is not {getattr(expected, n.name)!r}" for n in names
    )


def _comparable(events: Iterable[TurnEvent]) -> Iterable[Any]:
    """The events without times, without what only people and processes say, and with text that
    arrived together in one piece: a reader that is slow gets it so."""
    joined: TextDelta | ThinkingDelta | None = None
    for event in _drop_unseen(list(events)):
        if isinstance(event, ToolProgress | Approval | Question | Notice):
            continue
        if isinstance(event, TextDelta | ThinkingDelta):
            if joined is not None and type(joined) is type(event):
                joined = type(event)(joined.text + event.text)
                continue
            if joined is not None:
                yield joined
            joined = event
            continue
        if joined is not None:
            yield joined
            joined = None
        if isinstance(event, ToolDone):
            yield structs.replace(event, duration=0.0, data=None)
        elif isinstance(event, TurnEnd):
            yield structs.replace(event.result, effects=False)
        else:
            yield event
    if joined is not None:
        yield joined


def _drop_unseen(events: list[TurnEvent]) -> Iterable[TurnEvent]:
    """Without the end of a tool right before an interruption, which may fall between the moment in
    which a result is stored and the one in which it is shown."""
    for event, after in zip(events, [*events, None][1:], strict=True):
        is_interrupted = isinstance(after, TurnEnd) and after.result.status == "interrupted"
        if not (is_interrupted and isinstance(event, ToolDone)):
            yield event
