"""Commands on another machine, through whole turns and a real OpenSSH server."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hermes.app.agents import Options
from hermes.core.errors import ConfigError
from hermes.exec.backends import remote
from hermes.exec.backends.ssh import encode_script
from hermes.exec.snapshots.checkpoints import list_checkpoints
from tests.flow.test_terminal_tool import TREE, command, results
from tests.kit.deadlines import Deadline
from tests.kit.home import KEY, Home, finish, run_hermes, start_hermes
from tests.kit.processes import living, until
from tests.kit.replies import call, say
from tests.kit.rig import Rig, rig
from tests.kit.server import Provider
from tests.kit.sshd import Sshd, missing, sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    if missing():
        pytest.skip(missing())
    with sshd(tmp_path_factory.mktemp("ssh") / "d") as found:
        yield found


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Sshd]:
    """For tests that damage it."""
    if missing():
        pytest.skip(missing())
    with sshd(tmp_path / "d") as found:
        yield found


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The folder that commands begin in."""
    folder = tmp_path / "there"
    folder.mkdir()
    return folder


def far(
    root: Path, steps: Any, server: Sshd, cwd: Path, **more: Any
) -> AbstractAsyncContextManager[Rig]:
    more.setdefault("options", Options(yolo=True))
    terminal = {"backend": "ssh", "ssh": {**server.settings, "cwd": str(cwd)}}
    config = {"terminal": terminal, **more.pop("config", {})}
    return rig(root, steps, config=config, **more)


@pytest.fixture(autouse=True)
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("server", "own_server"):
        if name in request.fixturenames:
            monkeypatch.setenv("PATH", request.getfixturevalue(name).path)
    monkeypatch.setenv("KIT_KEY", KEY)
    monkeypatch.setenv("EDITOR", "ours")


async def texts(r: Rig) -> list[str]:
    return [p.text for p in await results(r)]


async def test_it_runs_there_over_one_connection(tmp_path: Path, server: Sshd, there: Path) -> None:
    before = server.accepted()
    odd = "printf '%s|' \"it's\" 'a\\\\b' '!' ü $'x\\ty'; exit 3"
    steps = [
        call(command("pwd; env; echo err >&2; cat")),
        call(command(odd)),
        call(command("pwd", workdir="sub"), ("c2", "terminal", {"command": "exit 255"})),
        say("ok"),
    ]
    (there / "sub").mkdir()
    async with far(tmp_path, steps, server, there) as r:
        assert (await r.turn()).status == "completed"
        first, second, third, fourth = await texts(r)
        assert first.startswith(f"{there}\n")
        assert first.endswith("\nerr")
        assert "SSH_CONNECTION=" in first
        assert "HERMES_CHILD=1" in first
        assert KEY not in first
        assert "EDITOR=" not in first
        assert second == "it's|a\\\\b|!|ü|x\ty|\n[exit status 3]"
        assert third == str(there / "sub")
        assert fourth.endswith("[exit status 255]")
    assert server.accepted() == before + 1


async def test_the_connections_socket_is_ours_alone_and_goes_with_it(
    server: Sshd, there: Path
) -> None:
    with TemporaryDirectory(prefix="h", dir="/tmp") as short:
        run = Path(short) / "home" / "run" / "ssh"
        async with far(Path(short), [call(command("echo x")), say("ok")], server, there) as r:
            await r.turn()
            (socket,) = run.glob("*/s")
            assert stat.S_IMODE(run.stat().st_mode) == 0o700
            assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
        assert not list(run.iterdir())


async def test_file_tools_are_not_offered_and_the_prompt_says_where(
    tmp_path: Path, server: Sshd, there: Path
) -> None:
    async with far(tmp_path, [call(command("touch made")), say("ok")], server, there) as r:
        await r.turn()
        request = r.requests[0]
        names = {t["function"]["name"] for t in request.json["tools"]}
        assert "terminal" in names
        assert not names & {"read_file", "write_file", "patch", "search_files", "execute_code"}
        assert f"Commands run on {server.user}@there over ssh" in r.session.transcript.meta.system
        assert (there / "made").exists()
        assert not await list_checkpoints(r.home.work, r.home.path)
        with pytest.raises(ConfigError, match="read_file cannot be used: commands run on there"):
            await r.runtime.open_session(options=Options(toolsets=("read_file",)))


async def test_what_does_not_only_read_asks(tmp_path: Path, server: Sshd, there: Path) -> None:
    steps = [call(command("touch made"), ("c2", "terminal", {"command": "ls -a"})), say("ok")]
    async with far(tmp_path, steps, server, there, options=Options()) as r:
        await r.turn()
        asked, read = await texts(r)
        assert asked.startswith("Not run: ")
        assert "no sandbox" in asked
        assert read == ".\n.."
        assert not (there / "made").exists()


async def test_a_required_sandbox_refuses(tmp_path: Path, server: Sshd, there: Path) -> None:
    config = {"sandbox": {"required": True}}
    async with far(tmp_path, [call(command("ls")), say("ok")], server, there, config=config) as r:
        await r.turn()
        (text,) = await texts(r)
        assert "sandbox.required is true, but commands run on" in text


async def test_out_of_time_nothing_lives_there(
    tmp_path: Path, server: Sshd, there: Path, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = Deadline(monkeypatch, remote)
    stubborn = f"trap '' TERM; echo began; {TREE.format(mark)}"
    steps = [call(command(stubborn, timeout=1.5)), call(command("echo next")), say("ok")]
    async with far(tmp_path, steps, server, there) as r:
        turn = r.begin()
        await until(lambda: len(living(mark)) == 3)
        deadline.expire()
        await turn
        first, second = await texts(r)
        assert first == "began\n[timed out after 1.5 s (killed)]"
        assert second == "next"
        assert not living(mark)


async def test_an_interrupt_ends_it_there(
    tmp_path: Path, server: Sshd, there: Path, mark: str
) -> None:
    async with far(tmp_path, [call(command(TREE.format(mark)))], server, there) as r:
        turn = r.begin()
        await until(lambda: len(living(mark)) == 3)
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        assert not living(mark)


async def test_what_it_left_running_ends_with_the_agent(
    tmp_path: Path, server: Sshd, there: Path, mark: str
) -> None:
    steps = [call(command(f"sleep {mark} & echo left")), call(command("echo more")), say("ok")]
    async with far(tmp_path, steps, server, there) as r:
        await r.turn()
        first, second = await texts(r)
        assert first == "left\n[1 background process(es) still running until this agent ends]"
        assert second == "more"
        assert len(living(mark)) == 1
    await until(lambda: not living(mark))


async def test_kill_9_of_the_program_leaves_nothing_there(
    tmp_path: Path, server: Sshd, there: Path, mark: str
) -> None:
    async with Provider([call(command(TREE.format(mark)))]) as provider:
        terminal = {"backend": "ssh", "ssh": {**server.settings, "cwd": str(there)}}
        home = Home.of(tmp_path, provider, terminal=terminal)
        env = {"PATH": server.path}
        process = await start_hermes(["chat", "--yolo", "-q", "go"], home, env=env)
        await until(lambda: len(living(mark)) == 3)
        process.kill()
        await finish(process)
        await until(lambda: not living(mark))


async def test_a_lost_connection_is_said_and_made_again(
    tmp_path: Path, own_server: Sshd, there: Path, mark: str
) -> None:
    steps = [call(command(f"sleep {mark}")), call(command("echo again")), say("ok")]
    async with far(tmp_path, steps, own_server, there) as r:
        others = own_server.sessions()
        turn = r.begin()
        await until(lambda: living(mark))
        for pid in set(own_server.sessions()) - set(others):
            os.kill(pid, signal.SIGKILL)
        await turn
        first, second = await texts(r)
        assert "contact with the command was lost" in first
        assert second == "again"
        await until(lambda: not living(mark))
    assert own_server.accepted() == 2


async def test_in_the_background_and_on_a_terminal(
    tmp_path: Path, server: Sshd, there: Path, mark: str
) -> None:
    steps = [
        call(command("test -t 1 && test -t 2 && ! read x && echo yes", pty=True)),
        call(command(f"read x; echo got $x; {TREE.format(mark)}", background=True)),
        call(("c3", "process", {"action": "write", "id": "p1", "data": "hello"})),
        call(("c4", "process", {"action": "kill", "id": "p1"})),
        call(command("nothing", id="c5", workdir="/no/such/folder")),
        say("ok"),
    ]
    async with far(tmp_path, steps, server, there) as r:
        await r.turn()
        pty, started, written, killed, nowhere = await texts(r)
        assert pty.endswith("yes")
        assert "in the background as p1" in started
        assert "got hello" in written
        assert "p1" in killed
        assert not living(mark)
        assert "/no/such/folder on " in nowhere
        assert "does not exist there. Nothing was run" in nowhere


async def test_a_flood_is_capped_and_complete(tmp_path: Path, server: Sshd, there: Path) -> None:
    steps = [call(command("seq 200000; (sleep 5; echo late) & echo end")), say("ok")]
    async with far(tmp_path, steps, server, there) as r:
        await r.turn()
        (text,) = await texts(r)
        assert len(text) < 50_000
        path = text.partition("full output: ")[2].partition(" …]")[0]
        assert Path(path).read_text().endswith("199999\n200000\nend\n")
        assert "late" not in text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("known", "The host key of there is unknown: connect once by hand"),
        ("changed", "The host key of there has changed"),
        ("key", "there accepts none of the keys"),
        ("port", "there refuses connections: check that its ssh server runs"),
        ("program", "there is no program `ssh` here"),
    ],
)
async def test_failures_in_plain_words(
    tmp_path: Path,
    own_server: Sshd,
    there: Path,
    monkeypatch: pytest.MonkeyPatch,
    wrong: str,
    said: str,
) -> None:
    settings: dict[str, Any] = dict(own_server.settings)
    match wrong:
        case "known":
            own_server.forget_host()
        case "changed":
            other = (own_server.folder / "key.pub").read_text()
            line = f"[127.0.0.1]:{own_server.port} {other}"
            (own_server.folder / "known_hosts").write_text(line)
        case "key":
            own_server.refuse_key()
        case "port":
            settings["port"] = 1
        case "program":
            monkeypatch.setenv("PATH", str(tmp_path))
    terminal = {"backend": "ssh", "ssh": {**settings, "cwd": str(there)}}
    async with rig(
        tmp_path, [call(command("touch made")), say("no")], config={"terminal": terminal}
    ) as r:
        await r.turn()
        (result,) = await results(r)
        assert result.error
        assert said in result.text
        assert result.text.count("Nothing was run.") == 1
        assert not (there / "made").exists()


async def test_doctor_says_whether_it_works(tmp_path: Path, own_server: Sshd) -> None:
    async with Provider([]) as provider:
        terminal = {"backend": "ssh", "ssh": own_server.settings}
        home = Home.of(tmp_path, provider, terminal=terminal)
        env = {"PATH": own_server.path}
        works = await run_hermes(["doctor"], home, env=env)
        line = f"terminal backend ssh: commands run on {own_server.user}@there over ssh (Linux"
        assert line in works.stdout
        own_server.refuse_key()
        broken = await run_hermes(["doctor"], home, env=env)
        assert broken.rc == 1
        assert "FAILED  terminal backend ssh: there accepts none of the keys" in broken.stdout
        assert "Nothing was run" not in broken.stdout


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60))
@example("a'b\\c\nd!e\\\\f$(x)`y`%s\"")
def test_any_text_reaches_the_shell_unchanged(text: str) -> None:
    line = encode_script('printf "%s." "$1"', text)
    inside = line.partition("hermes '")[2].removesuffix("'")
    assert not set(inside) & set("'!\n")
    assert "\\\\" not in inside
    got = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=True, timeout=60)
    assert got.stdout.decode() == text + "."
