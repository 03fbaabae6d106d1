"""Commands in the background against real processes, with agents that die at any moment."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.core.errors import ToolError
from hermes.exec.launcher.background_supervisor import OutputLog
from hermes.exec.launcher.protocol import LOCK, OPERATION, SEGMENT_SIZE, SOCKET, TOKEN, WRITE
from hermes.exec.process import background, background_records, local, output_files
from hermes.exec.process.background import BackgroundProcesses, ProcessOwner
from hermes.exec.process.background_records import ProcessState
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.output_files import remove_old_outputs
from hermes.exec.process.supervisor_client import CommandResult
from tests.kit.deadlines import Deadline
from tests.kit.processes import living, parent_of, until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
ME = ProcessOwner("session-1")
TREE = "setsid sleep {0} & (setsid sh -c 'trap \"\" TERM; sleep {0} & wait' &) ; sleep {0}; true"


def launchers_above(pid: int) -> list[int]:
    """The supervisor of a process, and the launcher of that."""
    found = []
    while pid > 1:
        pid = parent_of(pid)
        if pid and b"hermes.exec.launcher.main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(pid)
    return found


class Harness:
    """Commands in the background of one home, in a folder of their own."""

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self.folder = folder
        self.processes = BackgroundProcesses(folder / "processes", keep=keep)

    async def start(self, text: str, *, pty: bool = False) -> ProcessState:
        return await self.processes.start(CommandSpec(text, self.folder, ENV, 60, pty=pty), ME)

    async def shows(self, state: ProcessState, text: str) -> str:
        """All its output, once this is in it."""
        await until(lambda: text in background_records.read_log(state.folder))
        return background_records.read_log(state.folder)

    def look(self, state: ProcessState) -> ProcessState:
        return self.processes.find_process(state.record.id, ME)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    one = Harness(tmp_path)
    yield one
    await one.processes.close()


def words(state: ProcessState) -> str:
    return state.describe(state.record.started)


async def test_a_command_runs_on_and_its_end_is_known(harness: Harness) -> None:
    state = await harness.start("echo one; read word; echo got $word; exit 3")
    assert state.record.id == "p1" and state.running
    await harness.shows(state, "one\n")
    assert background_records.take_new_output(state, 1000) == "one\n"
    await harness.processes.write(state, "two\n")
    state = await harness.processes.wait(state, 10)
    assert background_records.take_new_output(state, 1000) == "got two\n"
    assert background_records.take_new_output(state, 1000) == ""
    assert not state.alive and state.end and state.end.status == 3
    assert words(state).startswith("exited with status 3")
    assert (await harness.start("true")).record.id == "p2"


async def test_only_the_owner_can_read_what_is_kept(harness: Harness, tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        harness.processes.keep = True
        state = await harness.start("echo hi; cat")
        await harness.shows(state, "hi")
        await harness.processes.write(state, "x\n")
        background_records.take_new_output(state, 10)
    finally:
        os.umask(old)
    folder = state.folder
    names = {p.name for p in folder.iterdir()}
    assert {"record", "lock", "socket", "out.0", "seen", "input"} <= names
    for path in folder.iterdir():
        assert stat.S_IMODE(path.lstat().st_mode) & 0o077 == 0, path.name
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    await harness.processes.kill(state)


async def test_a_terminal_of_its_own(harness: Harness) -> None:
    state = await harness.start("tty -s && stty size; exec cat", pty=True)
    await harness.shows(state, "24 80\n")
    await harness.processes.write(state, "typed\r")
    shown = await harness.shows(state, "typed\ntyped\n")
    assert shown.count("typed") == 2, "the echo, and what cat says"
    await harness.processes.write(state, "\x03")
    state = await harness.processes.wait(state, 10)
    assert words(state).startswith("killed by SIGINT")


async def test_a_repl_answers(harness: Harness) -> None:
    state = await harness.start("exec python3 -i -q")
    await harness.processes.write(state, "print(6 * 7)\n")
    await harness.shows(state, "42\n")
    await harness.processes.write(state, "raise SystemExit(7)\n")
    state = await harness.processes.wait(state, 10)
    assert state.end and state.end.status == 7
    with pytest.raises(ToolError, match=r"p1 takes no input: exited with status 7"):
        await harness.processes.write(state, "more\n")


@pytest.mark.parametrize("pty", [False, True], ids=["pipe", "pty"])
async def test_the_end_of_input_is_an_end(harness: Harness, pty: bool) -> None:
    state = await harness.start("cat; echo over", pty=pty)
    await harness.processes.write(state, "last\n", close=True)
    state = await harness.processes.wait(state, 10)
    assert background_records.read_log(state.folder).endswith("last\nover\n")


async def test_who_does_not_read_is_given_no_more_than_fits(harness: Harness, mark: str) -> None:
    state = await harness.start(f"exec sleep {mark}")
    big = "x" * 1_000_000
    assert await harness.processes.write(state, big) > 0
    with pytest.raises(ToolError, match="does not read its input"):
        await harness.processes.write(state, big)
    await harness.processes.kill(state)


async def test_kill_ends_the_whole_tree(harness: Harness, mark: str) -> None:
    state = await harness.start(TREE.format(mark))
    await until(lambda: len(living(mark)) == 3)
    state = await harness.processes.kill(state)
    assert not living(mark), "TERM, and KILL to who ignores it"
    assert not state.alive and words(state).startswith("ended on request (killed by SIGTERM)")
    assert await harness.processes.kill(state) == state


async def test_what_a_command_leaves_behind_is_said_and_can_be_ended(
    harness: Harness, mark: str
) -> None:
    state = await harness.start(f"sleep {mark} & exit 0")
    state = await harness.processes.wait(state, 10)
    assert state.alive and not state.running
    assert words(state).endswith("1 process(es) it started still run")
    await harness.processes.kill(state)
    assert not living(mark)


async def test_there_is_a_limit(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MAX_RUNNING", 2)
    first = await harness.start("cat")
    await harness.start("cat")
    with pytest.raises(ToolError, match=r"2 background processes.*Nothing was started.*p1, p2"):
        await harness.start("cat")
    await harness.processes.kill(first)
    assert (await harness.start("cat")).running


async def test_unknown_and_foreign_ids(harness: Harness) -> None:
    with pytest.raises(ToolError, match=r"no background process 'p1'. None was started"):
        harness.processes.find_process("p1", ME)
    state = await harness.start("cat")
    for wrong in ("p9", "", "../p1", "1"):
        with pytest.raises(ToolError, match="There are: p1"):
            harness.processes.find_process(wrong, ME)
    with pytest.raises(ToolError, match="None was started"):
        harness.processes.find_process("p1", ProcessOwner("another"))
    assert harness.processes.find_process("p1", ME).record == state.record
    harness.processes.move_to_child(ME.session, "child")
    assert harness.processes.find_process("p1", ProcessOwner("child")).running


async def test_what_cannot_start_leaves_no_record(harness: Harness) -> None:
    command = CommandSpec("true", harness.folder / "missing", ENV, 60)
    with pytest.raises(ToolError, match=r"working directory cannot be used.*Nothing was run"):
        await harness.processes.start(command, ME)
    assert harness.processes.list_all(ME) == []


async def test_a_gigabyte_leaves_three_megabytes(harness: Harness) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = await harness.start("echo first; head -c 1000000000 /dev/zero; echo; echo last")
    state = await harness.processes.wait(state, 50)
    assert state.end and state.end.status == 0
    sizes = [p.stat().st_size for p in state.folder.glob("out.*")]
    assert sum(sizes) <= 3 * SEGMENT_SIZE
    shown = background_records.take_new_output(state, 2000)
    assert shown.startswith("first\n") and shown.endswith("\nlast\n") and len(shown) < 3000
    assert background_records.count_output(state.folder) == 1_000_000_000 + len("first\n\nlast\n")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert after - before < 20 * 1024


def test_a_full_disk_is_a_gap_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = OutputLog()
    log.feed(b"before\n")
    real = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    log.feed(b"lost")
    monkeypatch.setattr(os, "write", real)
    log.feed(b"after\n")
    assert (
        background_records.read_log(tmp_path)
        == "before\n\n[... 4 bytes were not kept ...]\nafter\n"
    )


async def test_half_a_word_waits_until_it_is_whole(harness: Harness) -> None:
    """Half a secret cannot be recognised as one."""
    state = await harness.start("printf 'key: sk-half-of-'; read x; printf 'a-secret\\n> '; read x")
    await harness.shows(state, "half-of-")
    assert background_records.take_new_output(state, 1000) == "key: "
    await harness.processes.write(state, "\n")
    await harness.shows(state, "> ")
    assert background_records.take_new_output(state, 1000) == "sk-half-of-a-secret\n> "


async def test_a_word_that_stays_alone_is_shown_at_last(harness: Harness) -> None:
    state = await harness.start("printf 'Continue-or-not'; read x")
    await harness.shows(state, "not")
    assert background_records.take_new_output(state, 1000) == ""
    assert background_records.take_new_output(state, 1000) == "Continue-or-not"


# -- agents that die -------------------------------------------------------------------------

AGENT = """
import asyncio, sys
from pathlib import Path
from hermes.exec.process.background import BackgroundProcesses, ProcessOwner
from hermes.exec.process.local import CommandSpec
async def main():
    folder = Path(sys.argv[2])
    processes = BackgroundProcesses(folder / "processes", keep=sys.argv[3] == "keep")
    await processes.start(CommandSpec(sys.argv[1], folder, {env!r}, 60), ProcessOwner("session-1"))
    print("started", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


def agent(command: str, folder: Path, keep: str = "") -> subprocess.Popen[bytes]:
    code = AGENT.format(env=ENV)
    argv = [sys.executable, "-c", code, command, str(folder), keep]
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


async def dies(process: subprocess.Popen[bytes], mark: str, count: int) -> None:
    await until(lambda: len(living(mark)) == count)
    assert process.stdout and process.stdout.readline() == b"started\n"
    process.kill()
    process.wait()
    process.stdout.close()


async def test_nothing_survives_the_agent_by_default(tmp_path: Path, mark: str) -> None:
    await dies(agent("echo began; " + TREE.format(mark), tmp_path), mark, 3)
    after = Harness(tmp_path)
    (state,) = after.processes.list_all(ME)
    await until(lambda: not living(mark) and not after.look(state).alive)
    state = after.look(state)
    assert words(state).startswith("ended when the agent stopped (killed by SIGTERM)")
    assert background_records.take_new_output(state, 1000) == "began\n"


async def test_what_is_kept_is_found_again(tmp_path: Path, mark: str) -> None:
    deep = tmp_path / ("a" * 100) / ("b" * 100)  # longer than a socket's path may be
    deep.mkdir(parents=True)
    await dies(agent(f"echo began; sleep {mark} & cat; echo over; wait", deep, "keep"), mark, 1)
    next_agent = Harness(deep)
    (state,) = next_agent.processes.list_all(ME)
    assert state.running
    assert background_records.take_new_output(state, 1000) == "began\n"
    await next_agent.processes.write(state, "still there?\n", close=True)
    await next_agent.shows(state, "still there?\nover\n")
    waited = await next_agent.processes.wait(state, 0.05)
    assert waited.running and living(mark)
    await next_agent.processes.close()
    assert living(mark), "an agent that ends does not end it either"
    for pid in launchers_above(living(mark)[0])[1:]:
        os.kill(pid, signal.SIGKILL)  # the supervisor can do without the launcher that made it
    third = Harness(deep)
    state = await third.processes.kill(third.look(state))
    assert not living(mark)
    assert words(state).startswith("ended on request")
    await third.processes.close()


async def test_an_agent_killed_at_any_moment_leaves_nothing(tmp_path: Path, mark: str) -> None:
    for number in range(6):
        process = agent(f"sleep {mark}", tmp_path)
        await asyncio.sleep(0.08 + 0.05 * number)
        process.kill()
        process.wait()
        assert process.stdout
        process.stdout.close()
    after = Harness(tmp_path)
    await until(lambda: not living(mark) and not after.processes.list_running(ME))


async def test_a_start_that_is_interrupted_leaves_nothing(tmp_path: Path, mark: str) -> None:
    """Not even when it would have been kept."""
    harness = Harness(tmp_path, keep=True)
    for number in range(12):
        starting = asyncio.create_task(harness.start(f"sleep {mark}"))
        await asyncio.sleep(0.002 * number)
        if not starting.done():
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
        else:
            await harness.processes.kill(starting.result())
    await until(lambda: not living(mark) and not harness.processes.list_running(ME))
    await harness.processes.close()


async def test_a_killed_supervisor_takes_its_command_along_and_is_told(
    tmp_path: Path, mark: str
) -> None:
    harness = Harness(tmp_path, keep=True)
    state = await harness.start(f"setsid sleep {mark} & sleep {mark}")
    await until(lambda: len(living(mark)) == 2)
    os.kill(launchers_above(living(mark)[0])[0], signal.SIGKILL)
    await until(lambda: not living(mark) and not harness.look(state).alive)
    assert (state.folder / SOCKET).exists(), "a stale socket is no sign of life"
    fresh = Harness(tmp_path)
    found = fresh.look(state)
    assert "exit status unknown: its supervisor was killed" in words(found)
    with pytest.raises(ToolError, match="takes no input"):
        await fresh.processes.write(found, "x\n")
    assert await fresh.processes.kill(found) == found
    await harness.processes.close()


async def test_a_stranger_without_the_token_is_not_served(tmp_path: Path) -> None:
    harness = Harness(tmp_path, keep=True)
    state = await harness.start("cat")
    wrong = OPERATION.pack(TOKEN, 5) + b"wrong"
    for first in (wrong, b"", OPERATION.pack(TOKEN, 1 << 31)):
        stranger = socket.socket(socket.AF_UNIX)
        stranger.connect(str(state.folder / SOCKET))
        stranger.settimeout(5)
        stranger.sendall(first + OPERATION.pack(WRITE, 4) + b"bad\n")
        assert await asyncio.to_thread(stranger.recv, 1) == b""
        stranger.close()
    await harness.processes.write(state, "good\n", close=True)
    state = await harness.processes.wait(state, 10)
    assert background_records.read_log(state.folder) == "good\n"
    await harness.processes.close()


async def test_another_agents_command_can_be_seen_but_not_ended(harness: Harness) -> None:
    state = await harness.start("echo hi; cat")
    await harness.shows(state, "hi")
    other = Harness(harness.folder)
    seen = other.look(state)
    assert seen.running
    assert not (await other.processes.wait(seen, 0.3)).end
    with pytest.raises(ToolError, match="started by another agent"):
        await other.processes.kill(seen)
    with pytest.raises(ToolError, match="started by another agent"):
        await other.processes.write(seen, "x\n")


async def test_old_records_go_and_running_ones_stay(harness: Harness) -> None:
    old = await harness.start("true")
    await harness.processes.wait(old, 10)
    await until(lambda: not harness.look(old).alive)
    live = await harness.start("cat")
    for state in (old, live):
        os.utime(state.folder, (1, 1))
    background_records.remove_old(harness.processes.root)
    assert [s.record.id for s in harness.processes.list_all(ME)] == ["p2"]
    assert (live.folder / LOCK).exists()
    assert (await harness.start("true")).record.id == "p3"


# -- in the foreground -----------------------------------------------------------------------


async def test_a_foreground_command_on_a_terminal(tmp_path: Path) -> None:
    out = OutputCapture(1000, tmp_path)
    text = "test -t 0 && test -t 1 && test -t 2 && stty size; read x; echo over; exit 4"
    command = CommandSpec(text, tmp_path, ENV, 60, pty=True)
    assert await run_command(command, out) == CommandResult(4)
    assert out.text() == "24 80\nover\n"


async def test_a_terminal_is_killed_like_everything(
    tmp_path: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = Deadline(monkeypatch, local)
    command = CommandSpec(TREE.format(mark), tmp_path, ENV, 60, pty=True)
    task = asyncio.create_task(run_command(command, OutputCapture(1000, tmp_path)))
    await until(lambda: len(living(mark)) == 3)
    deadline.expire()
    assert await task == CommandResult(None)
    assert not living(mark)


def test_spilled_outputs_are_kept_for_a_week_and_half_a_gigabyte(tmp_path: Path) -> None:
    for age in range(10):
        path = tmp_path / f"s-{age}.txt"
        path.write_bytes(b"x" * 100)
        when = time.time() - age * 86400 - 60
        os.utime(path, (when, when))
    (tmp_path / "folder").mkdir()
    old = tmp_path / "conversation" / "s-9.txt"
    old.parent.mkdir()
    old.write_bytes(b"x")
    (tmp_path / "abandoned").mkdir()
    for path in (old, tmp_path / "abandoned"):
        os.utime(path, (0, 0))
    assert remove_old_outputs(tmp_path) == 4
    (tmp_path / "conversation").rmdir()
    assert remove_old_outputs(tmp_path) == 0
    assert remove_old_outputs(tmp_path, most=250) == 5
    assert {p.name for p in tmp_path.iterdir()} == {"folder", "s-0.txt", "s-1.txt"}
    assert remove_old_outputs(tmp_path / "missing") == 0


def test_a_server_that_runs_for_weeks_tidies_every_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((10.0, 20.0, 10.0 + output_files.CHECK_SECONDS, 20.0 + output_files.CHECK_SECONDS))
    monkeypatch.setattr(output_files.time, "monotonic", lambda: next(clock))
    assert [output_files.is_cleanup_due(tmp_path) for _ in range(4)] == [True, False, True, False]
