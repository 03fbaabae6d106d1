"""`hermes replay` as a process: identical, different, branches, a live model on recorded tools."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Home, Provider, Received, Reply, call, run_hermes, say
from tests.kit.bodies import messages

pytestmark = pytest.mark.e2e


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider([], then=write_two) as p:
        yield p


@pytest.fixture
def home(tmp_path: Path, provider: Provider) -> Home:
    return Home.of(tmp_path, provider)


def write_two(request: Received) -> Reply:
    """Writes two files, reads one, then says so."""
    done = sum(len(m.results) for m in messages(request))
    match done:
        case 0:
            return call(("c1", "write_file", {"path": "one.txt", "content": "1"}))
        case 1:
            return call(("c2", "write_file", {"path": "two.txt", "content": "2"}))
        case 2:
            return call(("c3", "read_file", {"path": "two.txt"}))
    return say("Both are written.")


async def record(home: Home) -> str:
    words = ["chat", "-q", "Write both.", "--yolo", "--record", "--output", "json"]
    ran = await run_hermes(words, home)
    assert ran.rc == 0, ran
    return str(ran.json["session_id"])


async def test_a_recorded_session_is_identical_without_its_provider(
    home: Home, provider: Provider
) -> None:
    session = await record(home)
    await provider.close()
    ran = await run_hermes(["replay", session], home)
    assert (ran.rc, ran.stdout.strip()) == (0, "identical: 4 steps"), ran
    ran = await run_hermes(["replay", session, "--json"], home)
    assert ran.json == {"identical": True, "steps": 4, "difference": None}


async def test_there_is_no_network_to_replay_in(home: Home) -> None:
    alone = ("unshare", "--user", "--map-root-user", "--net")
    if shutil.which("unshare") is None or subprocess.run((*alone, "true"), check=False).returncode:
        pytest.skip("no network namespaces here")
    session = await record(home)
    process = await asyncio.create_subprocess_exec(
        *(*alone, sys.executable, "-m", "hermes", "replay", session),
        cwd=home.work,
        env=home.env,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    assert (process.returncode, said) == (0, b"identical: 4 steps\n")


async def test_a_tape_is_played_against_the_stored_session(home: Home) -> None:
    session = await record(home)
    words = ["sessions", "export", session, "--format", "tape", "-o", "s.tape"]
    assert (await run_hermes(words, home)).rc == 0
    file = home.work / "s.tape"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["type"] for row in rows[:3]] == ["tape", "agent", "turn"]
    assert (await run_hermes(["replay", "s.tape"], home)).rc == 0
    assert "Both" in file.read_text()
    file.write_text(file.read_text().replace("Both", "Bath"))
    ran = await run_hermes(["replay", "s.tape", "--json"], home)
    assert ran.rc == 1 and not ran.json["identical"]
    found = ran.json["difference"]
    assert found["step"] == 4 and found["kind"] == "message"
    assert "Both" in found["recorded"] and "Bath" in found["replayed"]
    file.write_text("no tape")
    ran = await run_hermes(["replay", "s.tape"], home)
    assert ran.rc == 2 and "line 1" in ran.stderr


@pytest.mark.parametrize(
    ("row", "change", "said"),
    [
        (1, {"digest": "other"}, "the agent"),
        (1, {"endpoints": [{"target": {"wire": "os"}}]}, "line 2, is not part of a tape"),
        (2, {"agent": "\x1b[2J"}, "the agent"),
        (2, {"session": "../../x"}, "session '../../x' is not part of the conversation"),
        (2, {"first": 10**15}, "is not stored"),
        (2, {"first": -5}, "is not stored"),
        (2, {"type": "exchange"}, "line 3, is not part of a tape (no turn has begun)"),
        (3, {"body": {"base64": "%"}}, "line 4, is not part of a tape"),
        (0, {"session": "../../etc/passwd"}, "There is no session"),
    ],
)
async def test_a_tape_that_somebody_changed_is_refused(
    home: Home, row: int, change: dict[str, Any], said: str
) -> None:
    session = await record(home)
    words = ["sessions", "export", session, "--format", "tape", "-o", "s.tape"]
    assert (await run_hermes(words, home)).rc == 0
    file = home.work / "s.tape"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[row] |= change
    file.write_text("\n".join(map(json.dumps, rows)))
    ran = await run_hermes(["replay", "s.tape"], home)
    assert ran.rc == 2 and said in ran.stderr, ran
    assert "\x1b" not in ran.stderr and "internal error" not in ran.stderr


async def test_without_a_tape_the_stored_messages_are_the_answers(home: Home) -> None:
    ran = await run_hermes(["chat", "-q", "Write.", "--yolo", "--output", "json"], home)
    ran = await run_hermes(["replay", ran.json["session_id"]], home)
    assert ran.rc == 0 and "identical: 4 steps" in ran.stdout and "No tape" in ran.stderr, ran


async def test_a_branch_at_a_step(home: Home) -> None:
    session = await record(home)
    ran = await run_hermes(["replay", session, "--to", "2", "--json"], home)
    assert ran.rc == 0 and ran.json["steps"] == 2, ran
    shown = await run_hermes(["sessions", "show", ran.json["branch"], "--json"], home)
    assert len(shown.json["messages"]) == 5 and shown.json["parent"] == session
    ran = await run_hermes(["replay", session, "--to", "9"], home)
    assert ran.rc == 2 and "4 steps" in ran.stderr


def list_files(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in folder.iterdir() if p.is_file()}


async def test_another_model_goes_on_with_recorded_tools(home: Home, provider: Provider) -> None:
    session = await record(home)
    (home.work / "one.txt").write_text("changed since")
    before = list_files(home.work)

    def other(request: Received) -> Reply:
        if "two.txt" not in messages(request)[-1].text:
            return call(("d1", "read_file", '{ "path" :\t"two.txt" }'))
        return say("Other says so.")

    provider.then = other
    words = ["replay", session, "--to", "2", "--model", "other", "--json"]
    ran = await run_hermes(words, home)
    live: dict[str, Any] = ran.json["live"]
    assert ran.rc in (0, 1) and live["diverged"] is None, ran

    provider.then = call(("d1", "read_file", {"path": "three.txt"}))
    ran = await run_hermes(words, home)
    assert ran.rc == 1 and ran.json["live"]["status"] == "diverged", ran
    found = ran.json["live"]["diverged"]
    assert found["step"] == 3 and found["tool"] == "read_file" and "three" in found["arguments"]
    assert list_files(home.work) == before


async def test_the_copy_of_a_home_folder_has_no_keys_and_not_itself(
    home: Home, provider: Provider
) -> None:
    root = home.work.parent
    (root / ".ssh").mkdir()
    (root / ".ssh" / "id").write_text("key")
    (root / "notes.txt").write_text("notes")
    os.mkfifo(root / "pipe")
    provider.then = lambda request: (
        say("It is there.")
        if messages(request)[-1].results
        else call(("c1", "read_file", {"path": "notes.txt"}))
    )
    home.work = root
    session = await record(home)
    words = ["replay", session, "--to", "1", "--model", "other", "--live-tools", "--json"]
    ran = await run_hermes(words, home)
    assert ran.rc == 0 and ran.json["live"]["status"] == "completed", ran
    copy = Path(ran.json["live"]["folder"])
    assert sorted(path.name for path in copy.iterdir()) == ["notes.txt", "work"]


@pytest.mark.parametrize("step", [1, 3])
async def test_live_tools_work_in_a_copy_of_the_files_as_they_were(
    home: Home, provider: Provider, step: int
) -> None:
    (home.work / "old.txt").write_text("old")
    session = await record(home)
    shown = await run_hermes(["sessions", "show", session], home)
    (home.work / "old.txt").write_text("newer")
    before = list_files(home.work)

    def other(request: Received) -> Reply:
        done = sum(len(m.results) for m in messages(request))
        if done == step:
            return call(("d1", "write_file", {"path": "three.txt", "content": "3"}))
        return say("Three is written.")

    provider.then = other
    words = ["replay", session, "--to", f"{step}", "--model", "other", "--live-tools", "--json"]
    ran = await run_hermes(words, home)
    assert ran.rc == 0 and ran.json["live"]["status"] == "completed", ran
    copy = Path(ran.json["live"]["folder"])
    made = {"old.txt": "old", "one.txt": "1", "two.txt": "2", "three.txt": "3"}
    if step == 1:
        del made["two.txt"]
    assert list_files(copy) == made
    assert list_files(home.work) == before
    assert (await run_hermes(["sessions", "show", session], home)).stdout == shown.stdout
