"""Commands in a container, through whole turns and a real Docker daemon."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.exec.backends import remote
from hermes.exec.backends.docker_container import machine_label, owner_label
from tests.flow.test_terminal_tool import TREE, command, results
from tests.kit.deadlines import Deadline
from tests.kit.engine import Engine, engine
from tests.kit.home import KEY, Home, finish, run_hermes, start_hermes
from tests.kit.processes import living, until
from tests.kit.replies import call, say
from tests.kit.rig import Rig, rig
from tests.kit.server import Provider

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def daemon() -> Iterator[Engine | str]:
    with engine() as found:
        yield found


@pytest.fixture
def docker(daemon: Engine | str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    if isinstance(daemon, str):
        pytest.skip(daemon)
    for name, value in daemon.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KIT_KEY", KEY)
    monkeypatch.setenv("EDITOR", "ours")
    yield daemon
    left = daemon.containers()
    for name in left:
        daemon.docker("rm", "-f", name)
    assert not left


def terminal(docker: Engine, **more: Any) -> dict[str, Any]:
    return {"backend": "docker", "docker": {"image": docker.image, **more}}


def boxed(
    root: Path, steps: Any, docker: Engine, options: Options | None = None, **more: Any
) -> AbstractAsyncContextManager[Rig]:
    config = {"terminal": terminal(docker, **more)}
    return rig(root, steps, config=config, options=options or Options())


async def texts(r: Rig) -> list[str]:
    return [p.text for p in await results(r)]


async def test_it_runs_unasked_with_the_workspace_and_nothing_else(
    tmp_path: Path, docker: Engine
) -> None:
    (tmp_path / "beside").write_text("not for it")
    look = "grep -E '^(CapEff|NoNewPrivs):' /proc/self/status; cat /proc/net/dev | wc -l; id -u"
    steps = [
        call(command("pwd; echo text > made; echo err >&2; exit 3")),
        call(command(look)),
        call(command("env")),
        call(command(f"cat {tmp_path}/beside; ls /home /root")),
        say("ok"),
    ]
    async with boxed(tmp_path, steps, docker) as r:
        assert (await r.turn()).status == "completed"
        ran, inside, env, outside = await texts(r)
        assert ran == f"{r.home.work}\nerr\n[exit status 3]"
        made = r.home.work / "made"
        assert made.read_text() == "text\n"
        assert made.stat().st_uid == os.getuid()
        caps, privileges, devices, uid = inside.splitlines()
        assert int(caps.split()[1], 16) == 0
        assert privileges.split()[1] == "1"
        assert int(devices) == 3  # two lines of heading, and loopback
        assert uid == str(os.getuid())
        assert KEY not in env
        assert "EDITOR=" not in env
        assert "HERMES_CHILD=1" in env
        assert outside.count("No such file") == 3
        assert f"in a container of {docker.image}" in r.session.transcript.meta.system
        assert len(docker.containers()) == 1  # one for the session


async def test_with_a_network_it_is_not_confined_and_asks(tmp_path: Path, docker: Engine) -> None:
    async with boxed(tmp_path, [call(command("touch made")), say("ok")], docker, network="x") as r:
        await r.turn()
        (text,) = await texts(r)
        assert text.startswith("Not run: ")
        assert not docker.containers()


async def test_protected_names_cannot_be_changed_or_made(tmp_path: Path, docker: Engine) -> None:
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    (work / ".git" / "config").write_text("[core]\n")
    (work / "lib" / "r" / ".git" / "hooks").mkdir(parents=True)
    (work / "AGENTS.md").write_text("mine\n")
    tries = "echo x >> .git/config; rm -rf .git; mkdir .hermes/x; rmdir .hermes; rm AGENTS.md; "
    tries += "mv lib old; mkdir -p lib/r/.git/hooks; echo x > lib/r/.git/hooks/post-commit; "
    tries += "echo x > AGENTS.md; mv AGENTS.md old"
    (work / "tries").write_text("# more than the gate reads\n" * 1000 + tries)
    steps = [call(command("sh tries; touch fine")), say("ok")]
    async with boxed(tmp_path, steps, docker) as r:
        r.session.interactions.user_present = True
        await r.turn()
    assert (work / ".git" / "config").read_text() == "[core]\n"
    assert not any((work / "lib/r/.git/hooks").iterdir())
    assert (work / "AGENTS.md").read_text() == "mine\n"
    names = {".git", "AGENTS.md", "fine", "lib", "tries"}
    await until(lambda: {p.name for p in work.iterdir()} == names)


async def test_out_of_time_nothing_lives_in_it(
    tmp_path: Path, docker: Engine, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = Deadline(monkeypatch, remote)
    tree = f"trap '' TERM; echo began; (env -i /bin/setsid sleep {mark} &); {TREE.format(mark)}"
    steps = [call(command(tree, timeout=2)), call(command("echo next")), say("ok")]
    async with boxed(tmp_path, steps, docker, Options(yolo=True)) as r:
        turn = r.begin()
        await until(lambda: len(living(mark)) == 4)
        deadline.expire()
        await turn
        first, second = await texts(r)
        assert first == "began\n[timed out after 2 s (killed)]"
        assert second == "next"
        assert not living(mark)


async def test_an_interrupt_ends_it_there(tmp_path: Path, docker: Engine, mark: str) -> None:
    steps = [call(command(TREE.format(mark)))]
    async with boxed(tmp_path, steps, docker, Options(yolo=True)) as r:
        turn = r.begin()
        await until(lambda: len(living(mark)) == 3)
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        assert not living(mark)


async def test_kill_9_of_the_program_leaves_no_container(
    tmp_path: Path, docker: Engine, mark: str
) -> None:
    async with Provider([call(command(TREE.format(mark)))]) as provider:
        home = Home.of(tmp_path, provider, terminal=terminal(docker))
        args = ["chat", "--yolo", "-q", "go"]
        process = await start_hermes(args, home, env=docker.env)
        await until(lambda: len(living(mark)) == 3)
        process.kill()
        await finish(process)
        await until(lambda: not living(mark))
        await until(lambda: not docker.containers())


async def test_containers_of_dead_agents_are_removed(tmp_path: Path, docker: Engine) -> None:
    def left(owner: str, machine: str) -> str:
        labels = ["--label", f"hermes.owner={owner}", "--label", f"hermes.machine={machine}"]
        words = ["run", "-d", "--network", "none", *labels, docker.image, "/bin/sleep", "100"]
        return docker.docker(*words)

    dead = left("1-2-3", machine_label())
    alive, elsewhere = left(owner_label(os.getpid()), machine_label()), left("1-2-3", "another")
    async with boxed(tmp_path, [call(command("echo x")), say("ok")], docker) as r:
        await r.turn()
        found = docker.docker("ps", "-q", "--no-trunc").split()
        assert dead not in found
        assert {alive, elsewhere} <= set(found)
    docker.docker("rm", "-f", alive, elsewhere)


async def test_a_container_that_was_removed_is_made_anew_and_said(
    tmp_path: Path, docker: Engine
) -> None:
    steps = [call(command("touch /tmp/x")), call(command("ls /tmp")), say("ok")]
    async with boxed(tmp_path, steps, docker) as r:
        await r.turn()
        first = docker.containers()
        docker.docker("rm", "-f", *first)
        r.provider.add(call(command("echo again", id="c3")))
        r.provider.add(say("ok"))
        await r.turn("more")
        *_, again = await texts(r)
        assert again.endswith("[the container was gone and was made anew: only the workspace is "
                              "kept]\nagain")  # fmt: skip
        assert docker.containers() != first


async def test_a_named_container_is_used_as_it_is(tmp_path: Path, docker: Engine) -> None:
    work = tmp_path / "work"
    work.mkdir()
    mount = f"type=bind,source={work},target={work}"
    name = f"named-{os.getpid()}"
    words = ["run", "-d", "--name", name, "--network", "none", "--mount", mount]
    docker.docker(*words, docker.image, "/bin/sleep", "100")
    try:
        steps = [call(command("touch made; cat /proc/1/cmdline")), say("ok")]
        async with boxed(tmp_path, steps, docker, container=name) as r:
            await r.turn()
            (text,) = await texts(r)
            assert text.startswith("/bin/sleep")
            assert (work / "made").exists()
        assert docker.docker("inspect", "-f", "{{.State.Running}}", name) == "true"
        assert docker.docker("exec", name, "sh", "-c", "ps -A | grep -c cat || true") == "0"
    finally:
        docker.docker("rm", "-f", name)


async def test_in_the_background_and_on_a_terminal(
    tmp_path: Path, docker: Engine, mark: str
) -> None:
    steps = [
        call(command("test -t 1 && test -t 2 && ! read x && echo yes", pty=True)),
        call(command(f"read x; echo got $x; {TREE.format(mark)}", background=True)),
        call(("c3", "process", {"action": "write", "id": "p1", "data": "hello"})),
        call(("c4", "process", {"action": "kill", "id": "p1"})),
        call(command("sleep 1000 & echo left", id="c5")),
        say("ok"),
    ]
    async with boxed(tmp_path, steps, docker, Options(yolo=True)) as r:
        await r.turn()
        pty, started, written, _, left = await texts(r)
        assert pty.endswith("yes")
        assert "in the background as p1" in started
        assert "got hello" in written
        assert not living(mark)
        assert left.startswith("left\n[1 background process(es)")


async def test_what_fills_it_up_ends_all_the_same(
    tmp_path: Path, docker: Engine, mark: str
) -> None:
    many = f"for i in $(seq 100); do sleep {mark} & done; wait"
    steps = [call(command(many, timeout=10)), call(command("echo next", id="c2")), say("ok")]
    async with boxed(tmp_path, steps, docker, Options(yolo=True), pids=32) as r:
        turn = r.begin()
        most = 0
        while not turn.done():
            most = max(most, len(living(mark)))
            await asyncio.sleep(0.05)
        await turn
        assert 10 < most < 32
        assert (await texts(r))[-1].endswith("next")
        assert not living(mark)


async def test_failures_in_plain_words(
    tmp_path: Path, docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def said(root: str, **more: Any) -> str:
        (tmp_path / root).mkdir()
        steps = [call(command("touch made")), say("no")]
        async with boxed(tmp_path / root, steps, docker, Options(yolo=True), **more) as r:
            await r.turn()
            (result,) = await results(r)
            assert result.error
            assert result.text.count("Nothing was run.") == 1
            assert not (r.home.work / "made").exists()
            return result.text

    image = await said("a", image="no-such:1")
    assert image.startswith("The image no-such:1 is missing: run `docker pull no-such:1`.")
    named = await said("b", container="nobody")
    assert named.startswith("There is no container nobody.")
    socket = docker.env.get("DOCKER_HOST", "")
    drop = shutil.which("setpriv")
    if socket and drop and os.geteuid() == 0:
        stranger = tmp_path / "bin" / "docker"
        stranger.parent.mkdir()
        drop += " --reuid 65534 --regid 65534 --clear-groups"
        stranger.write_text(f'#!/bin/sh\nexec {drop} {shutil.which("docker")} "$@"\n')
        stranger.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setenv("PATH", f"{stranger.parent}:{os.environ['PATH']}")
            assert (await said("e")).startswith(
                "You have no access to the Docker daemon: join the group"
            )
    with monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing")
        assert (await said("c")).startswith("The Docker daemon is not running: start it.")
        patch.setenv("PATH", str(tmp_path))
        assert "there is no program `docker` here" in await said("d")


async def test_doctor_says_whether_it_works(tmp_path: Path, docker: Engine) -> None:
    async with Provider([]) as provider:
        home = Home.of(tmp_path, provider, terminal=terminal(docker))
        works = await run_hermes(["doctor"], home, env=docker.env)
        said = rf"ok +terminal backend docker: commands run in a container of {docker.image} .*"
        assert re.search(said + "no network.*confined", works.stdout)
        assert not docker.containers()
        home.configure(terminal=terminal(docker, image="no-such:1"))
        broken = await run_hermes(["doctor"], home, env=docker.env)
        assert broken.rc == 1
        assert "FAILED  terminal backend docker: The image no-such:1 is missing" in broken.stdout
        assert "Nothing was run" not in broken.stdout
