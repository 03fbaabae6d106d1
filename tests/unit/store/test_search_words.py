"""Parts of words: prefixes first, then what words contain; filters; the list of words is kept."""

from __future__ import annotations

import pytest

from hermes.core.message import user_message
from hermes.core.store import SearchFilter, SessionMeta
from tests.unit.store.conftest import MakeStore
from tests.unit.store.stores import on_both_databases

TEXTS = {
    "a": "Der Zeppelinflug über Köln",
    "b": "the flight was on time",
    "c": "今日は天気がいいですね",
    "d": "100% of snake_case_names",
}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("zeppelinflug", "a"),
        ("zeppel", "a"),
        ("PPELINFL", "a"),
        ("pelin kol", "a"),
        ("öln", "a"),
        ("oln", "a"),
        ("lig", "b"),
        ("li", ""),
        ("天気", "c"),
        ("nak nam", "d"),
        ("%%%", ""),
        ("x%y", ""),
        ("flug flight", ""),
    ],
)
@on_both_databases
async def test_words_and_parts_of_them(make_store: MakeStore, query: str, found: str) -> None:
    store = make_store()
    for name, text in TEXTS.items():
        await store.sessions.append(name, [user_message(text)], create=SessionMeta(name))
    hits = await store.search.find_messages(query)
    assert "".join(sorted(hit.session.id for hit in hits)) == found


@on_both_databases
async def test_filters(make_store: MakeStore) -> None:
    now = [1000.0]
    store = make_store(clock=lambda: now[0])
    for n, (source, key) in enumerate([("cli", ""), ("telegram", "1"), ("telegram", "2")]):
        now[0] += 100
        meta = SessionMeta(f"s{n}", source=source, key=key)
        await store.sessions.append(f"s{n}", [user_message(f"zeppelin {n}")], create=meta)

    async def find(**filters: object) -> list[str]:
        within = SearchFilter(**filters)  # type: ignore[arg-type]
        hits = await store.search.find_messages("zeppelin", within=within)
        return [hit.session.id for hit in hits]

    assert await find(source="telegram", key="2") == ["s2"]
    assert await find(source="cli") == ["s0"]
    assert await find(since=1250.0) == ["s2"]
    assert await find(role="assistant") == []
    assert await find(newest=True) == ["s2", "s1", "s0"]


@on_both_databases
async def test_one_session_does_not_hide_the_others(make_store: MakeStore) -> None:
    store = make_store()
    loud = [user_message("zeppelin zeppelin") for _ in range(150)]
    await store.sessions.append("loud", loud, create=SessionMeta("loud"))
    for n in range(3):
        text = f"once there was a zeppelin, which flew over town number {n}"
        await store.sessions.append(f"s{n}", [user_message(text)], create=SessionMeta(f"s{n}"))
    for newest in (False, True):
        within = SearchFilter(newest=newest, per_session=2)
        hits = await store.search.find_messages("zeppelin", limit=100, within=within)
        assert sorted(hit.session.id for hit in hits) == ["loud", "loud", "s0", "s1", "s2"]
        assert hits[0].session.id == ("s2" if newest else "loud")
