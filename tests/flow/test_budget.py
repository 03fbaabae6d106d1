"""Every model call is in the ledger, costs what it costs, and no cap is overstepped."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import Struct, structs

from hermes.app.agents import Options
from hermes.app.runtime import Runtime
from hermes.config.load import load_setup
from hermes.core.events import TurnResult
from hermes.core.ledger import UsageRow
from hermes.core.message import user_message
from hermes.core.tool import ToolContext, tool
from hermes.store.sqlite import SqliteStore
from tests.kit import (
    Gate,
    Home,
    Provider,
    Received,
    Reply,
    Tokens,
    call,
    run_hermes,
    say,
    start_hermes,
    status,
)
from tests.kit.rig import Rig, rig

PRICE = {"input": 10.0, "output": 100.0, "cache_read": 1.0}
"""Dollars per million tokens: 1,000 in and 1,000 out cost 0.11."""
COST = 0.11


def priced(budget: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    models = {"kit-model": {"price": PRICE, **settings}}
    return {"providers": {"custom": {"models": models}}, "budget": budget or {}}


def answer(text: str = "fine", *, read: int = 1000, wrote: int = 1000) -> Reply:
    return say(text).usage(Tokens(read, wrote))


def rows(database: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    db = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(f"SELECT {columns} FROM ledger ORDER BY id"))
    finally:
        db.close()


async def totals(r: Rig, by: Any = "model") -> list[UsageRow]:
    return await r.runtime.store.ledger.sum_calls(by, 0)


def budget_notices(r: Rig) -> list[str]:
    return [n.text for n in r.notices if n.code == "budget"]


# -- what a call costs ---------------------------------------------------------------------


async def test_a_turn_costs_what_its_classes_of_tokens_cost(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("alpha")
    steps = [
        call(("c1", "read_file", {"path": "a.txt"})).usage(Tokens(2000, 50, cached=0)),
        say("alpha").usage(Tokens(3000, 10, cached=2000)),
    ]
    async with rig(tmp_path, steps, config=priced()) as r:
        result = await r.turn()
        first = 2000 * 10e-6 + 50 * 100e-6
        second = 1000 * 10e-6 + 2000 * 1e-6 + 10 * 100e-6
        assert result.usage.cost == pytest.approx(first + second)
        stored = [m.usage for m in await r.stored() if m.usage is not None]
        assert [u.cost for u in stored] == [pytest.approx(first), pytest.approx(second)]
        (row,) = await totals(r)
        assert row.key == "custom:kit-model" and row.calls == 2 and not row.unpriced
        assert (row.input, row.output, row.cache_read) == (5000, 60, 2000)
        assert row.cost == pytest.approx(first + second) and row.seconds > 0
        (tool,) = await totals(r, "tool")
        assert (tool.key, tool.uses, tool.cost) == ("read_file", 1, pytest.approx(first))


async def test_without_a_price_the_cost_is_not_invented(tmp_path: Path) -> None:
    async with rig(tmp_path, [answer()]) as r:
        assert (await r.turn()).usage.cost is None
        (row,) = await totals(r)
        assert row.unpriced == 1 and row.cost == 0 and row.input == 1000


async def test_failed_calls_and_continuations_are_lines_of_their_own(tmp_path: Path) -> None:
    steps = [status(500), answer("half ").stop("length"), answer("done")]
    async with rig(tmp_path, steps, config=priced()) as r:
        result = await r.turn()
        assert result.status == "completed" and result.usage.cost == pytest.approx(2 * COST)
        found = rows(r.database, "outcome, input, cost, purpose, session, estimated")
    assert [row[:3] for row in found] == [
        ("server_error", 0, 0.0),
        ("", 1000, pytest.approx(COST)),
        ("", 1000, pytest.approx(COST)),
    ]
    assert {row[3:] for row in found} == {("main", r.session.id, 0)}


async def test_an_interrupted_call_counts_its_prompt_as_an_estimate(tmp_path: Path) -> None:
    gate = Gate()
    async with rig(tmp_path, [answer("some text").hold(gate)], config=priced()) as r:
        turn = r.begin()
        await gate.reached()
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and result.usage.estimated and result.usage.input > 0
        (row,) = await totals(r)
        assert row.failed == row.estimated == 1 and row.cost > 0
        gate.open()


async def test_a_line_is_as_durable_as_its_message(tmp_path: Path) -> None:
    async with rig(tmp_path, [answer(), answer()], config=priced()) as r:
        for n in (1, 2):
            await r.turn()
            assert len(rows(r.database, "id")) == n, "seen by another connection at the turn's end"


async def test_subagents_and_schedules_are_purposes(tmp_path: Path) -> None:
    async with rig(tmp_path, [], then=answer(), config=priced({"session_usd": 1})) as r:
        await r.turn()
        for source in ("subagent", "cron"):
            session = await r.runtime.open_session(source=source, cwd=r.home.work)
            session.transcript.meta = structs.replace(session.transcript.meta, parent=r.session.id)
            session.host.account = structs.replace(session.host.account, root="", user="u", job="j")
            assert (await session.submit(user_message("hi"))).status == "completed"
        assert {x.key: x.calls for x in await totals(r, "purpose")} == {
            "main": 1,
            "subagent": 1,
            "cron": 1,
        }
        assert {x.key: x.calls for x in await totals(r, "user")} == {"": 1, "u": 2}
        db = apsw.Connection(str(r.database), flags=apsw.SQLITE_OPEN_READONLY)
        spent = dict(db.execute("SELECT scope, tokens FROM spent"))
        db.close()
        assert spent[f"session:{r.session.id}"] == 6000, "a child's calls count to its parent"


class Params(Struct):
    question: str


@tool("Asks a model.")
async def consult(p: Params, ctx: ToolContext) -> str:
    return await ctx.services.models.consult("titles", user_message(p.question))


async def test_auxiliary_jobs_are_counted(tmp_path: Path) -> None:
    asks = call(("c1", "consult", {"question": "what is it?"})).usage(Tokens(1000, 1000))
    async with rig(
        tmp_path, [asks, answer("a title"), answer()], config=priced(), tools=[consult]
    ) as r:
        result = await r.turn()
        found = {x.key: (x.calls, x.cost) for x in await totals(r, "purpose")}
        assert found["auxiliary/titles"] == (1, pytest.approx(COST))
        assert found["main"] == (2, pytest.approx(2 * COST))
        assert result.usage.cost == pytest.approx(2 * COST), "the turn's own calls"


# -- caps ----------------------------------------------------------------------------------


async def test_warnings_come_once_each_also_across_processes(tmp_path: Path) -> None:
    config = priced({"daily_usd": 1.0}, max_tokens=1000)
    texts: list[str] = []
    for _ in range(2):
        async with rig(tmp_path, [], then=answer(), config=config, check=False) as r:
            for _ in range(4):
                await r.turn()
            texts += budget_notices(r)
    assert [t.split(" of")[0] for t in texts] == ["50 %", "75 %"]
    assert "$0.55 of $1.00 (budget.daily_usd)" in texts[0] and "midnight" in texts[0]


async def test_at_the_cap_the_turn_ends_before_the_call(tmp_path: Path) -> None:
    config = priced({"session_usd": 0.25}, max_tokens=1000)
    async with rig(tmp_path, [], then=answer(), config=config, check=False) as r:
        assert (await r.turn("one")).status == "completed" and (
            await r.turn("two")
        ).status == "completed"
        result = await r.turn("three")
        assert (
            result.status == "failed" and result.error_code == "budget" and len(result.error) <= 300
        )
        assert len(r.requests) == 2, "no request was made"
        for part in (
            "$0.25",
            "$0.22 spent",
            "Everything so far is kept",
            "new session",
            "session_usd",
        ):
            assert part in result.error, (part, result.error)
        assert [m.text for m in await r.stored() if m.role == "user"] == ["one", "two", "three"]
        assert await r.state() == "failed"


async def test_in_the_middle_of_work_the_turn_is_partial(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("alpha")
    steps = [call((f"c{n}", "read_file", {"path": "a.txt", "limit": n + 1})) for n in range(9)]
    steps = [s.usage(Tokens(1000, 1000)) for s in steps]
    config = priced({"session_usd": 0.3}, max_tokens=1000)
    async with rig(tmp_path, steps, config=config, check=False) as r:
        result = await r.turn()
        assert result.status == "partial" and result.error_code == "budget" and len(r.requests) == 2
        assert [m.role for m in await r.stored()] == ["user", *["assistant", "tool"] * 2]


async def test_what_was_written_before_a_refused_continuation_is_kept(tmp_path: Path) -> None:
    steps = [answer("the first half").stop("length")]
    config = priced({"session_usd": 0.12}, max_tokens=1000)
    async with rig(tmp_path, steps, config=config, check=False) as r:
        result = await r.turn()
        assert (
            result.status == "partial"
            and result.text == "the first half"
            and result.error_code == "budget"
        )


async def test_caps_in_tokens_need_no_price(tmp_path: Path) -> None:
    budget = {"daily_tokens": 5200, "daily_usd": 1}
    config = {"model": {"max_tokens": 1000}, "budget": budget}
    async with rig(tmp_path, [], then=answer(), config=config, check=False) as r:
        assert (await r.turn()).status == "completed" and (await r.turn()).status == "completed"
        result = await r.turn()
        assert result.error_code == "budget" and "4,000 tokens" in result.error
        unknown = [t for t in budget_notices(r) if "not known" in t]
        assert (
            len(unknown) == 1
            and "custom:kit-model" in unknown[0]
            and "Caps in tokens still apply" in unknown[0]
        )


async def test_an_unknown_price_is_said_once_and_stops_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, [], then=answer(), config={"budget": {"daily_usd": 0.01}}) as r:
        for _ in range(3):
            assert (await r.turn()).status == "completed"
        (text,) = budget_notices(r)
        assert "daily_tokens" in text and "price" in text


async def test_a_cost_told_afterwards_counts_to_the_cap(tmp_path: Path) -> None:
    """Nobody knows the price of the model, but the endpoint says what each call cost."""
    told = answer().each(
        lambda e: e.replace(b'"completion_tokens"', b'"cost":0.3,"completion_tokens"')
    )
    async with Provider([], then=told) as p:
        url = p.base_url.replace("127.0.0.1", "0.0.0.0")  # not an address of one's own
        config = {"model": {"base_url": url}, "budget": {"daily_usd": 0.5}}
        async with rig(tmp_path, p, config=config, check=False) as r:
            assert (await r.turn()).status == "completed" and (await r.turn()).status == "completed"
            result = await r.turn()
            assert result.error_code == "budget" and "$0.60 spent" in result.error
            assert "max_tokens" not in r.requests[0].json and len(r.requests) == 2


async def test_little_room_shortens_the_answer_instead_of_refusing_it(tmp_path: Path) -> None:
    """The longest answer would cost more than is left: it is asked to be shorter."""
    config = priced({"session_usd": 1.0})
    async with rig(tmp_path, [], then=answer(), config=config) as r:
        assert (await r.turn()).status == "completed"
        limit = r.requests[0].json["max_tokens"]
        assert 1024 <= limit <= 10_000 and limit & (limit - 1) == 0


async def test_without_caps_requests_are_as_they_were(tmp_path: Path) -> None:
    async with rig(tmp_path, [answer()], config=priced()) as r:
        await r.turn()
        assert "max_tokens" not in r.requests[0].json


async def test_users_and_jobs_have_caps_of_their_own(tmp_path: Path) -> None:
    config = priced({"user_usd": 0.25, "job_tokens": 100_000}, max_tokens=1000)
    async with rig(tmp_path, [], then=answer(), config=config) as r:
        codes = []
        for name in ("ann", "ann", "ann", "bob"):
            session = await r.runtime.open_session(cwd=r.home.work, options=Options(yolo=True))
            session.host.account = structs.replace(session.host.account, user=name, job="nightly")
            codes.append((await session.submit(user_message("hi"))).error_code)
        assert codes == ["", "", "budget", ""]


# -- many at once --------------------------------------------------------------------------


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[Runtime]:
    async with Runtime.open(load_setup("", home.env)) as runtime:
        yield runtime


async def _one(runtime: Runtime, home: Home) -> TurnResult:
    session = await runtime.open_session(cwd=home.work, options=Options(yolo=True))
    try:
        return await session.submit(user_message("hi"))
    finally:
        await session.close()


async def test_a_cap_holds_under_fifty_turns_at_once(tmp_path: Path) -> None:
    cap, limit = 2.0, 1000
    async with Provider([], then=answer().slow(0.001)) as p:
        home = Home.of(tmp_path, p, **priced({"daily_usd": cap}, max_tokens=limit))
        async with opened(home) as one, opened(home) as two:
            work = [_one(r, home) for _ in range(25) for r in (one, two)]
            results = await asyncio.gather(*work)
    spent = len(p.requests) * COST
    done = [r for r in results if r.status == "completed"]
    refused = [r for r in results if r.error_code == "budget"]
    assert len(done) + len(refused) == 50 and len(done) == len(p.requests)
    reservation = limit * 100e-6 + 0.05
    assert spent <= cap + reservation
    assert spent >= cap - 2 * reservation, "what is left is used, though calls were waiting"


async def test_a_cap_holds_across_kills(tmp_path: Path) -> None:
    """Processes are killed in the middle of their calls: what they reserved stays spent."""
    gate = Gate()

    def held(request: Received) -> Reply:
        return answer("some text").hold(gate)

    async with Provider([held] * 3, then=answer()) as p:
        budget = {"daily_usd": 0.7}
        home = Home.of(tmp_path, p, **priced(budget, max_tokens=1500))
        args = ["chat", "-q", "hi", "--output", "json", "--toolsets", "none"]
        running = [await start_hermes(args, home) for _ in range(3)]
        await _requests(p, 3)
        store = SqliteStore(home.path / "hermes.db")
        assert await store.ledger.sum_calls("purpose", 0) == [], "they run: nothing has ended"
        await store.close()
        for process in running:
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        gate.open()
        done, refused = 0, None
        for _ in range(6):
            ran = await run_hermes(args, home)
            if ran.rc != 0:
                refused = ran
                break
            done += 1
        assert refused is not None and refused.rc == 1
        assert refused.json["error"]["code"] == "budget"
        found = rows(home.path / "hermes.db", "outcome, estimated, cost")
        killed = [row for row in found if row[0] == "killed"]
        assert len(killed) == 3 and all(row[1] == 1 and row[2] >= 0.15 for row in killed)
        assert done == len(found) - 3 and sum(row[2] for row in found) <= 0.7 + killed[0][2]


async def test_without_a_cap_a_kill_loses_no_more_than_it_must(tmp_path: Path) -> None:
    """What was settled is there to the cent; the call that ran counts as an estimate."""
    gate = Gate()
    first = call(("c1", "read_file", {"path": "a.txt"})).usage(Tokens(1000, 1000))
    async with Provider([first, answer("some text").hold(gate)]) as p:
        home = Home.of(tmp_path, p, **priced())
        home.file("a.txt", "alpha")
        process = await start_hermes(["chat", "-q", "hi"], home)
        await gate.reached()
        async with asyncio.timeout(90):
            while not _running(home):
                await asyncio.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        gate.open()
        total = (await run_hermes(["insights", "--json"], home)).json["totals"]
        assert (total["calls"], total["failed_calls"], total["estimated_calls"]) == (2, 1, 1)
        found = rows(home.path / "hermes.db", "outcome, cost, tools")
        assert found[0] == ("", pytest.approx(COST), "read_file")
        assert found[1][0] == "killed" and found[1][1] > 0
        assert not _running(home)


def _running(home: Home) -> int:
    db = apsw.Connection(str(home.path / "hermes.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(db.execute("SELECT count(*) FROM reservations").get)
    finally:
        db.close()


async def _requests(p: Provider, count: int) -> None:
    async with asyncio.timeout(90):
        while len(p.requests) < count:
            await asyncio.sleep(0.01)


# -- the program ---------------------------------------------------------------------------


async def test_the_program_says_what_it_cost_and_stops_at_the_cap(tmp_path: Path) -> None:
    async with Provider([], then=answer()) as p:
        home = Home.of(tmp_path, p, **priced({"daily_usd": 0.15}, max_tokens=1000))
        args = ["chat", "-q", "hi", "--output", "stream-json", "--toolsets", "none"]
        ran = await run_hermes(args, home)
        assert ran.rc == 0 and ran.result["cost_usd"] == pytest.approx(COST)
        notices = [e for e in ran.events if e["type"] == "notice"]
        assert [n["code"] for n in notices] == ["budget"] and "50 %" in notices[0]["text"]
        ran = await run_hermes(args, home)
        assert ran.rc == 1 and ran.result["error"]["code"] == "budget"
        assert "hermes config set budget.daily_usd" in ran.result["error"]["message"]
        check = await run_hermes(["config", "check"], home)
        assert check.rc == 0 and "budget" not in check.stdout
