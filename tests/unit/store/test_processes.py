"""Many processes on one database (R3), whose file nobody but SQLite opens (R2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from hermes.store.sqlite import SqliteStore
from tests.unit.store.children import PRELUDE, STRACE, run_child

# -- many processes (R3) ---------------------------------------------------------------------------

NEIGHBOUR = """
import time
async def main():
    name, count = sys.argv[2], int(sys.argv[3])
    waits = []
    for n in range(count):
        start = time.monotonic()
        await store.sessions.append(
            name, [user_message(f"{name} {n}")], create=SessionMeta(name) if n == 0 else None
        )
        waits.append(time.monotonic() - start)
        if n % 50 == 7:
            assert len(await store.sessions.load_messages(name)) == n + 1
        if n % 100 == 33:
            await store.search.find_messages(name)
    await store.close()
    waits.sort()
    print(json.dumps({"p99": waits[len(waits) * 99 // 100], "max": waits[-1]}))
asyncio.run(main())
"""


def _checkpoint(db: apsw.Connection) -> None:
    with contextlib.suppress(apsw.BusyError):  # another process is at it
        db.wal_checkpoint()


@pytest.mark.timeout(120)
async def test_r3_eight_processes_a_reader_checkpoints_and_backups(
    path: Path, tmp_path: Path
) -> None:
    count, processes = 500, 8
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PRELUDE + NEIGHBOUR,
            str(path),
            f"p{n}",
            str(count),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for n in range(processes)
    ]
    outputs = asyncio.gather(*(c.communicate() for c in children))
    store = SqliteStore(path)
    backups = 0
    while not outputs.done():
        await store.maintenance.back_up(str(tmp_path / f"{backups}.bak"))
        backups += 1
        for meta in await store.sessions.list_recent():
            assert len(await store.sessions.load_messages(meta.id)) >= meta.messages
        await store._database.writer.submit(_checkpoint, mode="alone")
        await asyncio.wait([outputs], timeout=0.2)
    figures = []
    for out, err in await outputs:
        assert not err, err.decode()
        figures.append(json.loads(out))
    print(f"{backups} backups; {figures}")
    for n in range(processes):
        expected = [f"p{n} {k}" for k in range(count)]
        assert [m.text for m in await store.sessions.load_messages(f"p{n}")] == expected
    assert await store.maintenance.check_integrity() == []
    assert len(await store.search.find_messages("p3", limit=1000)) == count
    await store.close()
    for n in range(backups):
        db = apsw.Connection(str(tmp_path / f"{n}.bak"))
        assert db.execute("PRAGMA integrity_check").get == "ok"
        counts = db.execute(
            "SELECT s.count - (SELECT count(*) FROM messages m WHERE m.session = s.n)"
            " FROM sessions s"
        )
        assert all(difference == 0 for (difference,) in counts)
        db.close()


# -- nobody opens the file (R2) --------------------------------------------------------------------


@pytest.mark.skipif(not STRACE, reason="needs strace")
def test_files_are_born_private_and_opened_by_sqlite_only(path: Path, tmp_path: Path) -> None:
    """Every file is created with at most 0600, never widened, and the database is opened by no
    code but the library's: Python's own opens would show as openat without O_NOFOLLOW."""
    log = tmp_path / "trace"
    code = """
import asyncio, os
async def main():
    await store.sessions.append("s", [user_message("x")], state="running", create=SessionMeta("s"))
    await store.search.find_messages("x")
    await store.maintenance.back_up(str(path.parent / "copy.db"))
    await store.close()
    report()
os.umask(0)
asyncio.run(main())
"""
    trace = ("-f", "-qq", "-o", str(log), "-e", "trace=openat,creat,chmod,fchmod,fchmodat,open")
    run_child(code, path, prefix=(str(STRACE), *trace))
    home = str(path.parent)
    lines = [line for line in log.read_text().splitlines() if home in line or "fchmod(" in line]
    created = [line for line in lines if "O_CREAT" in line]
    assert any("state.db" in line for line in created)
    for line in created:
        assert "0600)" in line, line
    for line in lines:
        if "chmod" in line:
            assert "0600)" in line, line
    opens = [line for line in lines if ".db" in line and "openat" in line]
    assert opens
    for line in opens:
        assert "O_NOFOLLOW" in line, line
