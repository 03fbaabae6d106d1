"""Search finds every message, takes any query, and survives a damaged index."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.message import (
    Message,
    Text,
    Thinking,
    ToolReturn,
    user_message,
)
from hermes.core.store import SessionMeta
from hermes.store import migrations, search, search_terms
from hermes.store.sqlite import SqliteStore
from tests.unit.store.stores import fill, find_sessions, on_both_databases


@on_both_databases
async def test_search_finds_words_phrases_and_tool_output(store: SqliteStore) -> None:
    await fill(store, a="the quick brown fox", b="brown quick", c="Ünïcode café")
    await store.sessions.append(
        "d",
        [Message("tool", (ToolReturn("1", "terminal", (Text("exit status: brown"),)),))],
        create=SessionMeta("d"),
    )
    await store.sessions.append(
        "e", [Message("assistant", (Thinking("brown secret"),))], create=SessionMeta("e")
    )
    assert await find_sessions(store, "brown") == {"a", "b", "d"}
    assert await find_sessions(store, "BROWN quick") == {"a", "b"}
    assert await find_sessions(store, '"quick brown"') == {"a"}
    assert await find_sessions(store, '"quick brown') == {"a"}
    assert await find_sessions(store, "unicode cafe") == {"c"}
    (hit,) = await store.search.find_messages("fox")
    assert (hit.session.id, hit.seq, hit.role) == ("a", 0, "user")
    assert hit.snippet == "the quick brown fox"


@on_both_databases
async def test_search_inside_scripts_without_spaces(store: SqliteStore) -> None:
    await fill(store, a="输入超过最大长度限制", b="最大的长度", c="設定ファイルを読む")
    assert await find_sessions(store, "最大长度") == {"a"}
    assert await find_sessions(store, "ファイル") == {"c"}
    assert (await store.search.find_messages("最大长度"))[0].snippet == "输入超过最大长度限制"


QUERIES = [
    "",
    " ",
    '"',
    '""',
    '"""',
    "'",
    "*",
    "fox*",
    "^fox",
    "fox AND",
    "AND OR NOT",
    "NOT fox",
    "NEAR(",
    "NEAR(fox brown, 2)",
    "fox NEAR/2 brown",
    "text:fox",
    "{text}: fox",
    "-fox",
    "+fox",
    "(fox",
    "fox)",
    "fox OR",
    "fox;--",
    "fox\0bar",
    "\ud800",
    "%",
    "_",
    "\\",
    "😀",
    "a" * 5000,
    " ".join(["fox"] * 500),
    '"fox" "' * 50,
    "́",
    "[fox]",
    "fox\nbrown",
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: repr(q[:20]))
@on_both_databases
async def test_no_query_is_an_error(store: SqliteStore, query: str) -> None:
    await fill(store, a="fox")
    for hit in await store.search.find_messages(query):
        assert hit.session.id == "a"


@pytest.fixture(scope="module")
def index() -> Iterator[apsw.Connection]:
    db = apsw.Connection(":memory:")
    db.execute(migrations.SEARCH_TABLE)
    yield db
    db.close()


@settings(max_examples=60, deadline=None)
@given(
    queries=st.lists(st.text(alphabet='fox"*^():{}-+ANDORTE\0 \ud800é最', max_size=30), max_size=20)
)
def test_no_query_is_an_error_fuzzed(index: apsw.Connection, queries: list[str]) -> None:
    for query in queries:
        terms = search_terms.parse_terms(query)
        if match := search.match_expression(terms):
            index.execute("SELECT rowid FROM search WHERE search MATCH ?", (match,)).fetchall()
        search_terms.make_snippet("some fox", search_terms.compile_terms(terms or ["x"]))


@on_both_databases
async def test_operators_are_words(store: SqliteStore) -> None:
    await fill(store, a="salt and pepper", b="salt pepper", c="near and far")
    assert await find_sessions(store, "salt AND pepper") == {"a"}
    assert await find_sessions(store, "salt OR pepper") == set()
    assert await find_sessions(store, "NEAR(") == {"c"}


@on_both_databases
async def test_snippets_show_the_place(store: SqliteStore) -> None:
    await fill(store, a="word " * 500 + "needle in\n\nhay " + "word " * 500)
    (hit,) = await store.search.find_messages("needle")
    assert "needle in hay" in hit.snippet and "\n" not in hit.snippet
    assert hit.snippet.startswith("…") and hit.snippet.endswith("…") and len(hit.snippet) < 200


@on_both_databases
async def test_search_sees_every_append_of_everybody(
    store: SqliteStore, other: SqliteStore
) -> None:
    await store.sessions.append(
        "s", [user_message(f"needle {n}") for n in range(700)], create=SessionMeta("s")
    )
    await other.sessions.append("t", [user_message("needle other")], create=SessionMeta("t"))
    assert len(await store.search.find_messages("needle", limit=2000)) == 701
    await other.sessions.append("t", [user_message("needle last")])
    assert [h.seq for h in await store.search.find_messages("needle last")] == [1]
    assert await store.search.find_messages("needle", limit=0) == []


@on_both_databases
async def test_long_messages_are_searchable_up_to_a_bound(store: SqliteStore) -> None:
    filler = "x" * (search_terms.SEARCHABLE_LENGTH - 100)
    await fill(store, a=f"early {filler} late " + "y" * 200 + " beyond")
    assert await find_sessions(store, "early") == await find_sessions(store, "late") == {"a"}
    assert await find_sessions(store, "beyond") == set()


DAMAGE = [
    "DELETE FROM search_data",
    "DELETE FROM search_config",
    "DROP TABLE search_config",
    "DROP TABLE search_data",
    "DROP TABLE search_docsize",
    "UPDATE search_data SET block = randomblob(80) WHERE id > 10",
]


@pytest.mark.parametrize("damage", DAMAGE)
async def test_a_damaged_index_is_rebuilt_and_costs_no_message(path: Path, damage: str) -> None:
    store = SqliteStore(path)
    await fill(store, a="needle one", b="needle two")
    assert await find_sessions(store, "needle") == {"a", "b"}
    await store.close()
    db = apsw.Connection(str(path))
    db.execute(damage)
    db.close()
    store = SqliteStore(path)
    await store.sessions.append("a", [user_message("needle three")])
    assert [h.seq for h in await store.search.find_messages("three")] == [1]
    assert await find_sessions(store, "needle") == {"a", "b"}
    assert any("rebuilt" in notice for notice in await store.wait_until_open())
    assert await store.maintenance.check_integrity() == []
    await store.close()


async def test_deleting_works_with_a_damaged_index(path: Path) -> None:
    store = SqliteStore(path)
    await fill(store, a="needle one", b="needle two")
    await store.search.find_messages("needle")
    await store.close()
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM search_data")
    db.close()
    store = SqliteStore(path)
    assert await store.sessions.delete("a") is True
    assert await find_sessions(store, "needle") == {"b"}
    await store.close()
