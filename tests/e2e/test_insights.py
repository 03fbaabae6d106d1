"""`hermes insights`: what was used, for people and for programs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from hermes.cli.terminal.tables import draw_bars, format_count, format_money, format_table
from hermes.core.ledger import Account, Entry
from hermes.store.sqlite import SqliteStore
from tests.kit import Home, Provider, Tokens, call, run_hermes, say
from tests.kit.home import program

PRICE = {"kit-model": {"price": {"input": 10, "output": 100, "cache_read": 1}}}


async def filled(tmp_path: Path) -> Home:
    """Two turns through the program, one of them with a tool."""
    steps = [
        call(("c1", "read_file", {"path": "a.txt"})).usage(Tokens(1000, 100)),
        say("alpha").usage(Tokens(2000, 50, cached=1000)),
        say("beta").usage(Tokens(1000, 100)),
    ]
    async with Provider(steps) as p:
        home = Home.of(tmp_path, p, providers={"custom": {"models": PRICE}})
        home.file("a.txt", "alpha")
        for _ in range(2):
            assert (await run_hermes(["chat", "-q", "hi"], home)).rc == 0
    return home


async def test_numbers_for_programs(tmp_path: Path) -> None:
    home = await filled(tmp_path)
    ran = await run_hermes(["insights", "--json"], home)
    assert ran.rc == 0 and ran.stderr == ""
    found: dict[str, Any] = json.loads(ran.stdout)
    total = found["totals"]
    cost = (1000 + 1000 + 1000) * 10e-6 + 1000 * 1e-6 + 250 * 100e-6
    assert total["cost_usd"] == pytest.approx(cost) and total["calls"] == 3
    assert (total["input_tokens"], total["cache_read_tokens"]) == (4000, 1000)
    assert total["cache_hit_rate"] == 0.25 and total["unpriced_calls"] == 0
    assert [row["model"] for row in found["by_model"]] == ["custom:kit-model"]
    assert [row["provider"] for row in found["by_provider"]] == ["custom"]
    assert [row["purpose"] for row in found["by_purpose"]] == ["main"]
    assert [row["day"] for row in found["by_day"]] == [time.strftime("%Y-%m-%d")]
    (tool,) = found["by_tool"]
    assert (tool["tool"], tool["uses"], tool["calls"]) == ("read_file", 1, 1)
    one = json.loads((await run_hermes(["insights", "--json", "--by", "tool"], home)).stdout)
    assert set(one) == {"days", "since", "totals", "by_tool"}


async def test_tables_for_people(tmp_path: Path) -> None:
    home = await filled(tmp_path)
    ran = await run_hermes(["insights"], home)
    assert ran.rc == 0 and "\x1b" not in ran.stdout
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("Last 30 days: 3 calls, 4.0k tokens in (25 % from cache), 250 out")
    chart = next(line for line in lines if line.startswith(time.strftime("%Y-%m-%d")))
    assert "#" in chart and chart.endswith("$0.0560") and len(chart) <= 80
    assert any(line.split()[:2] == ["custom:kit-model", "3"] for line in lines)
    assert any(line.split()[:2] == ["read_file", "1"] for line in lines)
    assert any(line.split()[:2] == ["main", "3"] for line in lines)
    only = await run_hermes(["insights", "--by", "provider", "--days", "1"], home)
    assert only.stdout.startswith("Today: 3 calls") and "read_file" not in only.stdout


async def test_nothing_yet_is_said_kindly_and_makes_no_database(tmp_path: Path) -> None:
    home = Home(tmp_path)
    ran = await run_hermes(["insights"], home)
    assert (ran.rc, ran.stdout) == (0, "") and "No model calls" in ran.stderr
    assert not (home.path / "hermes.db").exists()
    empty = await run_hermes(["insights", "--json"], home)
    assert empty.json["totals"]["calls"] == 0 and empty.json["by_model"] == []


@pytest.mark.parametrize("args", [["--by", "mood"], ["--days", "0"], ["more"]])
async def test_bad_arguments_are_one_sentence(tmp_path: Path, args: list[str]) -> None:
    ran = await run_hermes(["insights", *args], Home(tmp_path))
    assert ran.rc == 2 and len(ran.stderr.splitlines()) == 1


async def test_only_the_days_that_were_asked_for_count(tmp_path: Path) -> None:
    home = Home(tmp_path)
    store = SqliteStore(home.path / "hermes.db")
    now = time.time()
    for days in (0, 2, 40):
        at = now - days * 86400
        day = time.strftime("%Y-%m-%d", time.localtime(at))
        entry = Entry(int(at * 1e9), day, Account("s"), "p", "m", input=10, output=1, cost=1.0)
        store.ledger.settle_call(entry)
        store.ledger.settle_call(structs.replace(entry, id=entry.id + 1, cost=None))
    for i in range(20):  # more models than are shown among other tables
        store.ledger.settle_call(
            structs.replace(entry, id=entry.id + 2 + i, model=f"m{i}", cost=0.1)
        )
    await store.close()
    for days, calls in ((1, 2), (3, 4), (100, 26), (10**9, 26)):
        ran = await run_hermes(["insights", "--json", "--days", str(days)], home)
        total = ran.json["totals"]
        assert (total["calls"], total["unpriced_calls"]) == (calls, min(calls // 2, 3))
        assert total["cost_usd"] == (calls // 2 if calls < 20 else 5.0)
    everything = (await run_hermes(["insights", "--days", "100"], home)).stdout
    assert "... 6 more: hermes insights --by model" in everything and "p:m9" not in everything
    shown = (await run_hermes(["insights", "--days", "3", "--by", "day"], home)).stdout
    assert "2 calls of unknown price" in shown and shown.count("\n") == 1 + 1 + 3 + 1 + 3


async def test_on_a_terminal_it_fits_and_has_colour(tmp_path: Path) -> None:
    home = await filled(tmp_path)
    ours, theirs = pty.openpty()
    env = {**home.env, "TERM": "xterm"}
    subprocess.run(["stty", "cols", "60"], stdin=theirs, check=True)
    done = subprocess.run(
        [*program(), "insights"], stdout=theirs, stdin=theirs, env=env, cwd=home.work, check=False
    )
    os.close(theirs)
    text = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        text += piece
    os.close(ours)
    assert done.returncode == 0 and b"\x1b[32m#" in text
    plain = text.decode().replace("\x1b[32m", "").replace("\x1b[0m", "")
    assert all(len(line) <= 60 for line in plain.splitlines()[1:])


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (12_345, "12.3k"), (999_999, "1.0M"), (2.5e9, "2.5G")],
)
def test_short_numbers(number: float, text: str) -> None:
    assert format_count(number) == text


def test_bars_and_tables_fit() -> None:
    rows = [
        ("a", 0.0, format_money(0)),
        ("bb", 0.0001, format_money(0.0001)),
        ("c", 4.0, format_money(4.0)),
    ]
    drawn = draw_bars(rows, 40)
    assert all(len(line) <= 40 for line in drawn)
    assert drawn[0].count("#") == 0 and drawn[1].count("#") == 1 and drawn[2].count("#") > 10
    assert draw_bars([("a", 0.0, "0")], 40) and draw_bars([], 40) == []
    wide = format_table(("NAME", "N"), [("x" * 100, "1"), ("y", "22")], 30)
    assert all(len(line) <= 30 for line in wide) and "..." in wide[1]
