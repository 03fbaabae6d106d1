"""A home without a cluster moves into one, whatever interrupts it, and a tenant moves out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from hermes.config import paths
from hermes.core.message import Message, Text, user_message
from hermes.core.store import SessionMeta
from hermes.store.sqlite import SqliteStore
from tests.kit import Home, run_hermes, start_hermes
from tests.kit.postgres import create_database

pytestmark = pytest.mark.e2e
SESSIONS = 6
MESSAGES = int(os.environ.get("HERMES_IMPORT", "3000")) // SESSIONS * SESSIONS


@pytest.fixture
def url(postgres_server: str) -> Iterator[str]:
    with create_database(postgres_server) as made:
        yield made


async def fill_home(home: Home) -> None:
    store = SqliteStore(paths.database_file(home.path))
    each = MESSAGES // SESSIONS
    for number in range(SESSIONS):
        meta = SessionMeta(f"s-{number}", source="cli", title=f"Session {number}")
        rows = []
        for place in range(each):
            text = f"message {place} of {number} " + "x" * (place % 300)
            answer = Message("assistant", (Text(text),))
            rows.append(answer if place % 2 else user_message(text))
        await store.sessions.append(meta.id, rows[:1], create=meta)
        for first in range(1, each, 1000):
            await store.sessions.append(meta.id, rows[first : first + 1000])
    await store.close()


async def read_home(home: Home) -> dict[str, list[str]]:
    store = SqliteStore(paths.database_file(home.path))
    found = {
        f"s-{n}": [m.text for m in await store.sessions.load_messages(f"s-{n}")]
        for n in range(SESSIONS)
    }
    await store.close()
    return found


def count_messages(url: str) -> int:
    with psycopg.connect(url) as db:
        row = db.execute("SELECT coalesce(sum(count), 0) FROM public.sessions").fetchone()
        return int(row[0]) if row else 0


async def test_a_home_moves_in_and_out_though_it_is_killed_on_the_way(
    tmp_path: Path, url: str
) -> None:
    home = Home(tmp_path)
    home.env["HERMES_DATABASE_URL"] = url
    await fill_home(home)
    before = await read_home(home)
    assert (await run_hermes(["tenants", "add", "acme"], home)).rc == 0
    killed = 0
    for part in (1, 2):
        process = await start_hermes(["cluster", "import", "acme"], home)
        async with asyncio.timeout(90):
            while process.returncode is None and count_messages(url) < MESSAGES * part // 3:
                await asyncio.sleep(0.01)
        if process.returncode is None:
            process.kill()
        killed += await process.wait() == -signal.SIGKILL
    print(f"{MESSAGES} messages, killed {killed} times on the way")
    done = await run_hermes(["cluster", "import", "acme"], home)
    assert done.rc == 0 and done.stdout.startswith("Imported "), done.stderr
    assert count_messages(url) == MESSAGES
    again = await run_hermes(["cluster", "import", "acme"], home)
    assert f"{SESSIONS} sessions were there already" in again.stdout
    checked = await run_hermes(["cluster", "check", "--json"], home)
    assert (checked.rc, json.loads(checked.stdout)) == (0, {"findings": []})
    (tmp_path / "second").mkdir()
    moved = Home(tmp_path / "second")
    written = await run_hermes(["cluster", "export", "acme", "-o", str(moved.path)], home)
    assert written.rc == 0, written.stderr
    assert f"{SESSIONS} sessions with {MESSAGES} messages" in written.stdout
    assert await read_home(moved) == before
    found = await run_hermes(["sessions", "search", "message 77 of 3"], moved)
    assert found.rc == 0 and "s-3" in found.stdout
    nobody = await run_hermes(["cluster", "export", "nobody"], home)
    assert nobody.rc == 2 and "no tenant nobody" in nobody.stderr


async def test_check_finds_and_repairs(tmp_path: Path, url: str) -> None:
    home = Home(tmp_path)
    home.env["HERMES_DATABASE_URL"] = url
    await fill_home(home)
    assert (await run_hermes(["cluster", "import"], home)).rc == 0
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("UPDATE public.sessions SET count = 1 WHERE id = 's-0'")
        db.execute("UPDATE public.sessions SET state = 'running', owner = 'x#1' WHERE id = 's-1'")
        db.execute(
            "INSERT INTO public.spent (tenant, scope, usd, tokens, reserved_usd)"
            " VALUES (0, 'day:x', 0, 0, 1)"
        )
        db.execute("INSERT INTO public.objects VALUES (99, 'run', 'r', '', 0, 0, '')")
        db.execute(
            "INSERT INTO public.session_inbox (tenant, session, kind, ref, owner)"
            " VALUES (0, 's-2', 'run', 'r', '')"
        )
        db.execute(
            "DROP TABLE public.procrastinate_events, public.procrastinate_periodic_defers,"
            " public.procrastinate_jobs, public.procrastinate_workers CASCADE"
        )
    seen = await run_hermes(["cluster", "check"], home)
    assert seen.rc == 1 and len(seen.stdout.splitlines()) == 7, seen.stdout
    fixed = await run_hermes(["cluster", "check", "--fix"], home)
    assert fixed.rc == 0 and fixed.stdout.count("repaired") == 6, fixed.stdout + fixed.stderr
    clean = await run_hermes(["cluster", "check"], home)
    assert (clean.rc, clean.stdout) == (0, "Everything is in order.\n")
    with psycopg.connect(url) as db:
        rows = db.execute("SELECT lock FROM public.procrastinate_jobs").fetchall()
        assert rows == [("0/s-2",)]
