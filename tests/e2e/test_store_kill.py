"""kill -9 at random moments of the store's life: nothing acknowledged is lost or doubled (R1).

    python tests/e2e/test_store_kill.py --seed 7 --kills 10000

Two processes at a time write to one database; an acknowledgement goes over a pipe only after the
append has returned. Both are killed, others take over, and every few lives all is compared. They
are forked from a process that has imported everything and opened nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest

KILLS = 1500
MEMORY = Path("/dev/shm")
"""A third of the kills happens on a real disk, where syncs take time; the rest, closer together,
in memory where there is such a place: to a killed process they are the same."""
LIVES = 10
"""Kills a database lives through before it is examined and replaced by a new one."""


# -- one life --------------------------------------------------------------------------------------


def live(path: Path, name: str, seed: int, pipe: int) -> None:
    rnd = random.Random(seed)
    asyncio.run(write(path, name, rnd, pipe))


async def write(path: Path, name: str, rnd: random.Random, pipe: int) -> None:
    """Appends until it is killed: alone and in groups, small and large, with checkpoints, index
    batches, backups, closing and opening again in between."""
    from hermes.core.store import SessionMeta
    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(path)
    for number in itertools.count():
        if number == 0 or rnd.random() < 0.1:
            if number:
                await store.close()
                store = SqliteStore(path)
            await store._database.writer.submit(lambda db: db.wal_autocheckpoint(12), mode="alone")
        create = SessionMeta(name, cwd="/work") if number == 0 else None
        if create is not None or rnd.random() < 0.5:
            await put(store, name, rnd, pipe, number * 10, create)
        else:
            many = range(number * 10, number * 10 + rnd.randint(2, 5))
            await asyncio.gather(*(put(store, name, rnd, pipe, n, None) for n in many))
        if rnd.random() < 0.05:
            await store.search.find_messages(name)
        if rnd.random() < 0.02:
            await store.maintenance.back_up(f"{path}.{name}.{number}")


async def put(
    store: object, name: str, rnd: random.Random, pipe: int, number: int, create: object
) -> None:
    from hermes.core.message import user_message
    from hermes.store.sqlite import SqliteStore

    assert isinstance(store, SqliteStore)
    text = f"{name}x{number} " + "pad " * rnd.choice((1, 10, 100, 2000))
    await store.sessions.append(name, [user_message(text)], state="running", create=create)  # type: ignore[arg-type]
    os.write(pipe, f"{name} {number}\n".encode())


class Life:
    """A forked process, and what it said was stored."""

    def __init__(self, path: Path, name: str, rnd: random.Random) -> None:
        self.name = name
        self._wanted = rnd.choice((0, 0, 1, 1, 2, 3, 5, 8))
        self._delay = rnd.random() * rnd.choice((0.001, 0.004, 0.016))
        self._heard = b""
        self._pipe, child_end = os.pipe()
        seed = rnd.randrange(1 << 30)
        self._pid = os.fork()
        if self._pid == 0:
            try:
                live(path, name, seed, child_end)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(child_end)

    def end(self) -> list[int]:
        """Kill it after so many acknowledgements and a random moment more."""
        deadline = time.monotonic() + 0.15
        while self._heard.count(b"\n") < self._wanted:
            if not select.select([self._pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                break
            more = os.read(self._pipe, 65536)
            if not more:
                break
            self._heard += more
        time.sleep(self._delay)
        os.kill(self._pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        if status != -signal.SIGKILL:
            raise AssertionError(f"{self.name} ended by itself: {status}")
        while more := os.read(self._pipe, 65536):
            self._heard += more
        os.close(self._pipe)
        return [int(line.split()[1]) for line in self._heard.decode().splitlines()]


# -- the examination -------------------------------------------------------------------------------


def examine(path: Path, acked: dict[str, list[int]]) -> list[str]:
    """In a process of its own, so that no connection is ever open when the next life is forked."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            problems = asyncio.run(compare(path, acked))
        except BaseException as error:
            problems = [f"{type(error).__name__}: {error}"]
        os.write(write_end, json.dumps(problems[:20]).encode())
        os._exit(0)
    os.close(write_end)
    said = b""
    while more := os.read(read_end, 65536):
        said += more
    os.close(read_end)
    os.waitpid(pid, 0)
    return json.loads(said)  # type: ignore[no-any-return]


async def compare(path: Path, acked: dict[str, list[int]]) -> list[str]:
    import apsw

    from hermes.store.sqlite import SqliteStore

    store = SqliteStore(path)
    problems = [*await store.wait_until_open(), *await store.maintenance.check_integrity()]
    metas = {m.id: m for m in await store.sessions.list_recent(limit=10_000)}
    for name, numbers in acked.items():
        meta = metas.pop(name, None)
        if meta is None:
            problems += [f"{name}: session lost"] if numbers else []
            continue
        rows = [row async for row in store.sessions.stream_messages(name)]
        stored = [int(row.message.text.split()[0].rpartition("x")[2]) for row in rows]
        if [row.seq for row in rows] != list(range(meta.messages)):
            problems.append(
                f"{name}: numbered {[row.seq for row in rows]}, {meta.messages} counted"
            )
        if len(set(stored)) != len(stored):
            problems.append(f"{name}: stored twice {stored}")
        if lost := set(numbers) - set(stored):
            problems.append(f"{name}: acknowledged and lost {sorted(lost)}")
        if meta.state != "interrupted":
            problems.append(f"{name}: {meta.state}")
        if numbers and not await store.search.find_messages(f"{name}x{numbers[-1]}"):
            problems.append(f"{name}: {numbers[-1]} cannot be found")
    problems += [f"{name}: came from nowhere" for name in metas]
    if any(acked.values()) and await store.sessions.find_latest(cwd="/work") is None:
        problems.append("nothing to continue")
    await store.close()
    for copy in path.parent.glob(path.name + ".*"):
        if copy.suffix[1:].isdigit():  # not what an interrupted backup left
            db = apsw.Connection(str(copy))
            found = db.execute("PRAGMA integrity_check").get
            problems += [] if found == "ok" else [f"{copy.name}: {found}"]
            db.close()
    return problems


# -- the run ---------------------------------------------------------------------------------------


def run(folder: Path, seed: int, kills: int) -> dict[str, object]:
    import apsw  # noqa: F401 - what the lives will need

    import hermes.store.sqlite  # noqa: F401

    rnd = random.Random(seed)
    done = acknowledged = databases = 0
    problems: list[str] = []
    while done < kills and not problems:
        home = folder / f"{databases}"
        databases += 1
        path = home / "state.db"
        acked: dict[str, list[int]] = {}
        for round_ in range(0, LIVES, 2):
            lives = [Life(path, f"s{round_ + n}", rnd) for n in range(2)]
            for one in lives:
                acked[one.name] = one.end()
            done += 2
        acknowledged += sum(map(len, acked.values()))
        problems = [f"database {home.name}: {p}" for p in examine(path, acked)]
        if not problems:
            shutil.rmtree(home)
    return {"kills": done, "acknowledged": acknowledged, "problems": problems}


def killing(folder: Path, seed: int, kills: int) -> subprocess.Popen[str]:
    arguments = ["--seed", str(seed), "--kills", str(kills), "--folder", str(folder)]
    return subprocess.Popen(
        [sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.timeout(180)
def test_r1_kill_minus_nine(tmp_path: Path) -> None:
    seed = int(os.environ.get("HERMES_TEST_SEED", "0")) or random.randrange(1 << 30)
    print(f"HERMES_TEST_SEED={seed}")
    results = []
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as memory:
        running = [
            killing(tmp_path, seed, KILLS // 3),
            killing(Path(memory), seed + 1, KILLS - KILLS // 3),
        ]
        for process in running:
            out, _ = process.communicate(timeout=150)
            assert process.returncode == 0, out
            results.append(json.loads(out))
    print(results)
    kills = sum(r["kills"] for r in results)
    acknowledged = sum(r["acknowledged"] for r in results)
    problems = [p for r in results for p in r["problems"]]
    if problems:
        pytest.fail(f"seed {seed}: " + "\n".join(problems))
    assert kills >= KILLS
    assert acknowledged >= kills, "too little was written for this to mean anything"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--folder", type=Path, help="is kept; by default a temporary one is not")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = run(options.folder or Path(temporary), options.seed, options.kills)
    print(json.dumps({"seed": options.seed, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
