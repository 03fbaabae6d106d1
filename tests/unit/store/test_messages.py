"""Messages come back from the store exactly as they went in."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.core.message import (
    Media,
    Message,
    Native,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
    Usage,
)
from hermes.core.store import SessionMeta, StoredMessage
from hermes.core.text import replace_invalid
from hermes.store.sqlite import SqliteStore

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | TEXT
    # -0.0 == 0.0 and large floats print in more than one way, but they come back equal
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
EXTRA = st.none() | st.dictionaries(TEXT, JSON, min_size=1, max_size=3)
MEDIA = st.builds(Media, TEXT, st.binary(max_size=60), TEXT, TEXT)
TEXTS = st.builds(Text, TEXT, EXTRA)
PARTS = st.one_of(
    TEXTS,
    st.builds(Thinking, TEXT, EXTRA),
    MEDIA,
    st.builds(ToolCall, TEXT, TEXT, TEXT, EXTRA),
    st.builds(
        ToolReturn,
        TEXT,
        TEXT,
        st.lists(TEXTS | MEDIA, max_size=3).map(tuple),
        st.booleans(),
    ),
    st.builds(Native, st.dictionaries(TEXT, JSON, max_size=3)),
)
USAGE = st.builds(
    Usage,
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    cost=st.none() | st.floats(0, 1e6),
    estimated=st.booleans(),
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(PARTS, max_size=4).map(tuple),
    st.sampled_from(["normal", "steer", "injected", "summary"]),
    st.none() | st.builds(Target, TEXT, TEXT, TEXT),
    st.none() | st.sampled_from(["end", "tool_use", "length", "filtered", "aborted", "died"]),
    st.none() | USAGE,
)


Through = Callable[[list[Message]], tuple[list[Message], list[StoredMessage]]]


@pytest.fixture
def through(path: Path) -> Iterator[Through]:
    """Written by one store, read by another."""
    names = itertools.count()
    first, second = SqliteStore(path), SqliteStore(path)

    async def run(messages: list[Message]) -> tuple[list[Message], list[StoredMessage]]:
        name = str(next(names))
        await first.sessions.append(name, messages, create=SessionMeta(name))
        return await second.sessions.load_messages(name), [
            row async for row in second.sessions.stream_messages(name)
        ]

    async def close() -> None:
        await first.close()
        await second.close()

    with asyncio.Runner() as runner:
        yield lambda messages: runner.run(run(messages))
        runner.run(close())


SHARED = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@SHARED
@given(messages=st.lists(MESSAGES, max_size=6))
def test_round_trip_is_exact(through: Through, messages: list[Message]) -> None:
    loaded, exported = through(messages)
    assert loaded == messages
    assert [row.message for row in exported] == messages
    assert [row.seq for row in exported] == list(range(len(messages)))


DIRTY = st.text(
    st.characters() | st.sampled_from(["\0", "\ud800", "\udfff", "\udc80", "\ufffe"]), max_size=12
)


@SHARED
@given(text=DIRTY, call=DIRTY, extra=st.dictionaries(DIRTY, DIRTY, max_size=2))
def test_text_no_database_takes_is_cleaned(
    through: Through, text: str, call: str, extra: dict[str, str]
) -> None:
    message = Message("assistant", (Text(text, extra or None), ToolCall(call, call, call)))
    (loaded,), _ = through([message])
    assert loaded.text == replace_invalid(text)
    assert loaded.calls[0].args == replace_invalid(call)
    cleaned = {replace_invalid(key): replace_invalid(value) for key, value in extra.items()}
    assert loaded.parts[0] == Text(replace_invalid(text), cleaned or None)


@pytest.mark.parametrize(
    "value",
    [2**80, -(2**70), float("nan"), float("inf"), {1: "a"}, {"deep": [{"x": (1, 2)}]}, {"a", "b"}],
    ids=["big", "negative", "nan", "inf", "int key", "tuple", "set"],
)
def test_values_json_does_not_know_never_abort_a_write(through: Through, value: Any) -> None:
    (loaded,), _ = through([Message("assistant", (Text("kept", {"odd": value}),))])
    assert loaded.text == "kept"


async def test_dirty_names_of_sessions_and_folders(store: SqliteStore) -> None:
    folder = os.fsdecode(b"/caf\xe9")
    await store.sessions.create(SessionMeta("a", cwd=folder, title="t\0t", system="s\ud800"))
    found = await store.sessions.find_latest(cwd=folder)
    assert found is not None and (found.title, found.system) == ("t\ufffdt", "s\ufffd")
    assert (
        await store.sessions.get_meta("\ud800") is None
        and await store.sessions.find_by_prefix("\0") == []
    )
