"""The files of sessions follow them from node to node."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hermes.app.cluster.folder_archive import hash_folder, pack_folder, unpack_folder
from tests.kit import call, run_hermes, say
from tests.kit.postgres import create_database
from tests.kit.server import Provider, Received
from tests.server.serve_process import serve
from tests.server.test_cluster import find_runner, make_home, read_run, start_run

pytestmark = pytest.mark.e2e


@pytest.fixture
def url(postgres_server: str) -> Any:
    with create_database(postgres_server, tables=False) as made:
        yield made


async def test_files_of_a_session_are_there_on_the_next_node(tmp_path: Path, url: str) -> None:
    effects = [tmp_path / f"work-{name}" for name in "ab"]

    def answer(request: Received) -> Any:
        messages = request.json["messages"]
        if messages[-1]["role"] == "tool":
            return say(f"It said: {messages[-1]['content']}")
        said = next(m["content"] for m in reversed(messages) if m["role"] == "user")
        if "read" in str(said):
            return call(("c2", "terminal", {"command": "cat notes/one.txt; ls big.bin"}))
        command = "mkdir notes; echo kept > notes/one.txt; head -c 3000000 /dev/zero > big.bin"
        return call(("c1", "terminal", {"command": command}))

    async with Provider(then=answer) as provider:
        homes = []
        for name, work in zip("ab", effects, strict=True):
            work.mkdir()
            settings = {"lease_seconds": 3, "workspaces": "snapshot", "snapshot_mb": 1}
            home = make_home(tmp_path / name, provider, url, **settings)
            home.configure(terminal={"cwd": str(work)})
            homes.append(home)
        assert (await run_hermes(["cluster", "init"], homes[0])).rc == 0
        async with serve(homes[0]) as a:
            run = await start_run(a, "Write it.", "talk")
            assert (await read_run(a, run))[-1][0] == "run.completed"
            async with asyncio.timeout(90):
                while True:
                    with psycopg.connect(url) as db:
                        sql = "SELECT session, version, missing FROM snapshots"
                        if (row := db.execute(sql).fetchone()) is not None:
                            break
                    await asyncio.sleep(0.05)
            assert row == ("talk", 1, "big.bin")
            assert await a.stop() == 0
        async with serve(homes[1]) as b:
            run = await start_run(b, "Now read it.", "talk")
            events = await read_run(b, run)
            assert events[-1][0] == "run.completed", events
            assert "kept" in events[-1][1]["output"], events
        told = json.dumps(provider.last.json["messages"])
        assert "too large to be brought along: big.bin" in told
        assert (effects[1] / "0-talk" / "notes" / "one.txt").read_text() == "kept\n"


async def test_the_model_is_told_that_files_of_a_cut_turn_may_be_missing(
    tmp_path: Path, url: str
) -> None:
    def answer(request: Received) -> Any:
        messages = request.json["messages"]
        if messages[-1]["role"] == "tool" or "node" in str(messages[-1]["content"]):
            return say("Went on.")
        return call(("c1", "terminal", {"command": "echo x > y; touch begun; sleep 600"}))

    async with Provider(then=answer) as provider:
        homes = []
        for name in "ab":
            work = tmp_path / f"work-{name}"
            work.mkdir()
            home = make_home(tmp_path / name, provider, url, lease_seconds=3, workspaces="snapshot")
            home.configure(terminal={"cwd": str(work)})
            homes.append(home)
        assert (await run_hermes(["cluster", "init"], homes[0])).rc == 0
        async with serve(homes[0]) as a, serve(homes[1]) as b:
            run = await start_run(a, "Write it.", "talk")
            async with asyncio.timeout(90):
                while not any(tmp_path.glob("work-*/0-talk/begun")):
                    await asyncio.sleep(0.05)
            runner, other = await find_runner(url, [a, b], "ab")
            runner.process.send_signal(signal.SIGKILL)
            events = await read_run(other, run)
            assert events[-1][1]["output"] == "Went on.", events
        told = json.dumps(provider.last.json["messages"])
        assert "what this turn wrote may be missing" in told


def test_an_archive_leads_nowhere_else(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "a").write_text("a")
    (folder / "near").symlink_to("deep/a")
    (folder / "far").symlink_to(secret)
    os.mkfifo(folder / "pipe")
    other = tmp_path / "other"
    other.mkdir()
    (other / "stale").write_text("stale")
    packed = pack_folder(folder, 1000)
    assert b"hidden" not in packed.body and packed.missing == ()
    unpack_folder(packed.body, other)
    assert sorted(p.name for p in other.iterdir()) == ["deep", "near"]
    assert (other / "near").read_text() == "a"
    before = hash_folder(other)
    (other / "deep" / "a").write_text("changed")
    assert hash_folder(other) != before
    (tmp_path / "none").mkdir()
    assert hash_folder(tmp_path / "none") == ""
