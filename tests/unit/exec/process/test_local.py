"""The process layer against real processes. A test marks its processes by a sleep of a duration
nobody else uses, and asks /proc who still has it."""

import asyncio
import os
import resource
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import ToolError
from hermes.exec.process import local
from hermes.exec.process.ansi import to_plain_text
from hermes.exec.process.local import CommandSpec, run_command, stop_left_running
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.supervisor_client import CommandResult
from tests.kit.deadlines import Deadline
from tests.kit.processes import alive, living, parent_of, until

LINUX = sys.platform == "linux"
needs_proc = pytest.mark.skipif(not LINUX, reason="needs /proc and a subreaper")
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Shell:
    """Runs commands in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spill = folder / "spill"

    async def __call__(
        self, text: str, *, timeout: float = 60, limit: int = 10_000, cwd: Path | None = None
    ) -> tuple[CommandResult, OutputCapture]:
        out = OutputCapture(limit, self.spill)
        try:
            return await run_command(CommandSpec(text, cwd or self.folder, ENV, timeout), out), out
        finally:
            out.close()


@pytest.fixture
def sh(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def deadline(monkeypatch: pytest.MonkeyPatch) -> Deadline:
    return Deadline(monkeypatch, local)


async def test_output_status_and_folder(sh: Shell, tmp_path: Path) -> None:
    outcome, out = await sh("pwd; echo problem >&2; exit 3")
    assert outcome == CommandResult(3)
    assert out.text() == f"{tmp_path}\nproblem\n"


async def test_streams_apart(tmp_path: Path) -> None:
    out, err = OutputCapture(100, tmp_path), OutputCapture(100, tmp_path)
    assert await run_command(
        CommandSpec("echo o; echo e >&2", tmp_path, ENV, 60), out, err
    ) == CommandResult(0)
    assert (out.text(), err.text()) == ("o\n", "e\n")


async def test_the_environment_is_exactly_the_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-not-for-children")
    out = OutputCapture(10_000, tmp_path)
    env = {"PATH": ENV["PATH"], "NAME": "väl=ue", "LC_ALL": "C.UTF-8"}
    await run_command(CommandSpec("exec env -u PWD -u SHLVL -u _ env", tmp_path, env, 60), out)
    assert dict(line.split("=", 1) for line in out.text().splitlines()) == env


@needs_proc
async def test_the_environment_of_a_commands_parent_is_empty(sh: Shell) -> None:
    _, out = await sh("wc -c < /proc/$PPID/environ")
    assert out.text().strip() == "0"


async def test_stdin_is_empty_and_nothing_is_inherited(sh: Shell) -> None:
    outcome, out = await sh("cat; ls /proc/self/fd 2>/dev/null || echo 0 1 2 3")
    assert outcome == CommandResult(0)
    assert out.text().split() == ["0", "1", "2", "3"]  # 3: the folder ls itself reads


async def test_ended_by_a_signal(sh: Shell) -> None:
    outcome, _ = await sh("kill -SEGV $$")
    assert outcome.status == -signal.SIGSEGV


async def test_default_signals(sh: Shell) -> None:
    outcome, out = await sh("yes | head -1; kill -TERM $$; echo unreachable")
    assert (outcome.status, out.text()) == (-signal.SIGTERM, "y\n")


@pytest.mark.parametrize("cwd", ["missing", "file"])
async def test_a_folder_that_is_none(sh: Shell, tmp_path: Path, cwd: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="working directory cannot be used"):
        await sh("touch ran", cwd=tmp_path / cwd)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", ["echo \0", "#" + "x" * 128 * 1024], ids=["nul", "long"])
async def test_a_command_no_shell_can_take(sh: Shell, command: str) -> None:
    with pytest.raises(ToolError):
        await sh(command)


async def test_a_long_command_runs(sh: Shell) -> None:
    _, out = await sh(f"echo {'x' * 100_000} | wc -c")
    assert out.text().strip() == "100001"


async def test_commands_run_side_by_side(sh: Shell) -> None:
    (tmp := sh.folder / "pipe").unlink(missing_ok=True)
    os.mkfifo(tmp)
    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(sh("cat pipe"))
        tasks.create_task(sh("echo met > pipe"))
    assert reader.result()[1].text() == "met\n"


TREES = {
    "plain": "sleep {}",
    "child": "sleep {}; true",
    "group": "sleep {0} & sleep {0}; true",
    "pipeline": "sleep {0} | sleep {0} | cat",
    "new session": "setsid sleep {0} & sleep {0}; true",
    "double fork": "(setsid sh -c 'sleep {0} & sleep {0} & wait' >/dev/null &); sleep {0}; true",
    "daemon": "(setsid sh -c '(setsid sleep {0} &) &' </dev/null >/dev/null &); sleep {0}; true",
    "nohup": "nohup sleep {0} >/dev/null 2>&1 & sleep {0}; true",
    "no stop": "trap '' INT HUP; sleep {0}; true",
}


@needs_proc
@pytest.mark.parametrize("tree", TREES.values(), ids=TREES.keys())
async def test_out_of_time_ends_the_whole_tree(
    sh: Shell, mark: str, tree: str, deadline: Deadline
) -> None:
    task = asyncio.create_task(sh("echo before; " + tree.format(mark)))
    await until(lambda: len(living(mark)) == tree.count("sleep"))
    deadline.expire()
    outcome, out = await task
    assert outcome == CommandResult(None)
    assert out.text() == "before\n"
    assert not living(mark)


@needs_proc
async def test_who_ignores_term_is_asked_first_and_killed_then(
    sh: Shell, mark: str, deadline: Deadline
) -> None:
    """The sleeps ignore TERM, and the shell that waits for them merely says that it came."""
    stubborn = f"(trap '' TERM; setsid sleep {mark}) & (trap '' TERM; sleep {mark}) &"
    task = asyncio.create_task(sh(f"trap 'echo asked' TERM; {stubborn} wait; wait; wait"))
    await until(lambda: len(living(mark)) == 2)
    deadline.expire()
    outcome, out = await task
    assert (outcome, out.text()) == (CommandResult(None), "asked\n")
    assert not living(mark)


@needs_proc
@pytest.mark.parametrize("tree", ["plain", "group", "daemon"])
async def test_cancelling_ends_the_whole_tree(sh: Shell, mark: str, tree: str) -> None:
    task = asyncio.create_task(sh(TREES[tree].format(mark)))
    await until(lambda: living(mark))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not living(mark)


@needs_proc
async def test_cancelling_twice_still_ends_it(sh: Shell, mark: str) -> None:
    task = asyncio.create_task(sh(f"trap '' TERM; sleep {mark}; sleep {mark}"))
    await until(lambda: living(mark))
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not living(mark))


@needs_proc
async def test_cancelling_at_any_moment_leaves_nothing(sh: Shell, mark: str) -> None:
    for delay in range(12):
        task = asyncio.create_task(sh(f"sleep {mark} & sleep {mark}"))
        for _ in range(delay):
            await asyncio.sleep(0.0007)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not living(mark)


@needs_proc
async def test_background_processes_live_on_until_all_is_stopped(sh: Shell, mark: str) -> None:
    """The sleeps last for days: that it returns at all shows that nobody waits for them."""
    outcome, out = await sh(f"sleep {mark} & sleep {mark} >/dev/null 2>&1 & echo started")
    assert (outcome, out.text()) == (CommandResult(0, left=2), "started\n")
    assert len(living(mark)) == 2
    await stop_left_running()
    assert not living(mark)


async def test_a_background_process_may_go_on_writing(sh: Shell) -> None:
    """It neither blocks on a full pipe nor dies of a broken one."""
    await sh("(sleep 0.5; head -c 300000 /dev/zero; touch written) & echo started")
    await until((sh.folder / "written").exists)
    await stop_left_running()


async def test_late_words_of_a_background_process_are_heard(sh: Shell) -> None:
    _, out = await sh("echo late > >(sleep 0.05; cat)")
    assert out.text() == "late\n"


@needs_proc
async def test_a_command_that_kills_its_supervisor_takes_everything_along(
    sh: Shell, mark: str
) -> None:
    with pytest.raises(ToolError, match="lost"):
        await sh(f"setsid sleep {mark} & (setsid sleep {mark} &); kill -9 $PPID; sleep {mark}")
    await until(lambda: not living(mark))


@needs_proc
async def test_a_killed_launcher_is_replaced_and_running_commands_go_on(
    sh: Shell, mark: str
) -> None:
    running = asyncio.create_task(sh(f"sleep {mark}; true"))
    await until(lambda: living(mark))
    supervisor = parent_of(living(mark)[0])
    while "launcher" not in Path(f"/proc/{supervisor}/cmdline").read_text():
        supervisor = parent_of(supervisor)
    launcher = parent_of(supervisor)
    os.killpg(launcher, signal.SIGKILL)
    await until(lambda: not alive(launcher))
    outcome, out = await sh("echo again")
    assert (outcome, out.text()) == (CommandResult(0), "again\n")
    assert living(mark) and not running.done()
    running.cancel()
    await asyncio.wait([running])
    assert not living(mark)


AGENT = """
import asyncio, sys
from pathlib import Path
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.local import CommandSpec, run_command
async def main():
    folder = Path(sys.argv[2])
    await run_command(CommandSpec(sys.argv[1], folder, {env!r}, 60), OutputCapture(1000, folder))
asyncio.run(main())
"""


@needs_proc
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["KILL", "TERM"])
async def test_a_dying_agent_takes_its_commands_along(
    tmp_path: Path, mark: str, number: signal.Signals
) -> None:
    command = f"trap '' HUP; setsid sleep {mark} & (setsid sleep {mark} &) ; sleep {mark}; true"
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT.format(env=ENV), command, tmp_path],
        env={"PYTHONPATH": str(Path(local.__file__).parents[3])},
    )
    try:
        await until(lambda: len(living(mark)) == 3)
        agent.send_signal(number)
        await until(lambda: not living(mark))
    finally:
        agent.kill()
        agent.wait()


@needs_proc
async def test_memory_stays_flat_under_endless_output(sh: Shell) -> None:
    await sh("yes | head -c 100000", limit=40_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome, out = await sh("yes | head -c 200000000", limit=40_000)
    assert outcome == CommandResult(0)
    assert out.size == 200_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
    (big, *_) = sorted(sh.spill.iterdir(), key=lambda p: -p.stat().st_size)
    assert big.stat().st_size == 200_000_000
    big.unlink()


async def test_a_long_output_is_shown_by_its_ends_and_kept_whole(sh: Shell) -> None:
    _, out = await sh("seq 100000", limit=2000)
    text = out.text()
    assert text.startswith("1\n2\n3\n")
    assert text.endswith("\n99999\n100000\n")
    assert len(text) < 2300
    head, note, tail = text.split("\n\n")
    assert [int(n) for n in head.split()] == list(range(1, len(head.split()) + 1))
    assert [int(n) for n in tail.split()] == list(range(100_001 - len(tail.split()), 100_001))
    path = Path(note.partition("full output: ")[2].removesuffix(" …]"))
    assert path.read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(2, 60))
def test_a_capture_shows_the_ends_of_anything(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[bytes], limit: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "captures"
    capture = OutputCapture(limit, folder)
    for chunk in chunks:
        capture.feed(chunk)
    capture.close()
    whole = b"".join(chunks)
    assert capture.size == len(whole)
    text = capture.text()
    text.encode()
    if len(whole) <= limit:
        assert text == to_plain_text(whole.decode("utf-8", "replace"))
        assert not capture.saved
    else:
        saved = Path(capture.saved.partition("full output: ")[2])
        assert saved.read_bytes() == whole
        saved.unlink()


def test_a_cut_never_splits_a_character(tmp_path: Path) -> None:
    for limit in range(20, 32):
        capture = OutputCapture(limit, tmp_path)
        capture.feed("é€😀".encode() * 20)
        capture.close()
        assert "\ufffd" not in capture.text()


def test_a_cut_leaves_no_half_of_a_word_that_could_be_a_secret(tmp_path: Path) -> None:
    for before in range(3960, 4040, 7):
        capture = OutputCapture(8000, tmp_path)
        token = "ghp_" + "a1B2c3D4" * 5
        capture.feed(b"x" * before + f" {token} ".encode() + b"y" * 8000 + f" {token} ".encode())
        capture.feed(b"z" * (before - 50))
        capture.close()
        assert "a1B2c3D4" not in capture.text().replace(token, "")


def test_a_file_that_cannot_be_written_is_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    capture = OutputCapture(10, tmp_path / "file")
    capture.feed(b"x" * 100)
    capture.feed(b"y" * 100)
    assert "could not be saved" in capture.text()
    assert capture.text().endswith("yyyyy")


def test_a_file_is_bounded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.exec.process.output_capture.FILE_LIMIT", 2**20)
    capture = OutputCapture(10, tmp_path)
    for _ in range(40):
        capture.feed(b"x" * 2**16)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_size == 2**20
    assert "its first 1 MB" in capture.text()


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m \x1b[2Kx\x1b[?25l", "red x"),
        (
            "\x1b]0;title\x07a\x1b]52;c;aGk=\x1b\\b\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\",
            "ablink",
        ),
        ("\x1bP1$r\x1b\\dcs\x1b_apc\x1b\\\x9b31mc1\x1b(B", "dcsc1"),
        ("unterminated \x1b]52;c;aGk=", "unterminated 52;c;aGk="),
        ("lone \x1b", "lone "),
        ("a\x00\x00b", "a\ufffdb"),
        ("10%\r50%\r100%\ndone\r\n", "100%\ndone\n"),
        ("keep\r", "keep"),
        ("bell\x07 back\x08 del\x7f vt\x0b", "bell back del vt"),
        (
            "what only hides\u200b is shown\U000e0041 later",
            "what only hides\u200b is shown\U000e0041 later",
        ),
        ("family 👨\u200d👩\u200d👧 ok", "family 👨\u200d👩\u200d👧 ok"),
    ],
)
def test_plain_text_has_no_hidden_power(raw: str, shown: str) -> None:
    assert to_plain_text(raw) == shown


@settings(deadline=None)
@given(st.text() | st.text("\x1b\x9b[]P\\;0m\x07\r\n\x00ab"))
def test_plain_text_is_stable(text: str) -> None:
    once = to_plain_text(text)
    assert not any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in once)
    assert to_plain_text(once) == once


async def test_bytes_that_are_no_text(sh: Shell) -> None:
    _, out = await sh(r"printf 'a\377\376b\000c \360\237\230'")
    assert out.text() == "a\ufffd\ufffdb\ufffdc \ufffd"
