"""The parts of the sandbox, and commands that run inside it on every tier this machine has."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.core.errors import ConfigError, ToolError
from hermes.exec import sandbox_probe
from hermes.exec.launcher import cgroup
from hermes.exec.launcher.process_tree import list_processes
from hermes.exec.process import local
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.supervisor_client import CommandResult
from hermes.exec.sandbox import (
    ResourceLimits,
    SandboxPolicy,
    SandboxTier,
    build_policy,
    confine_command,
)
from hermes.exec.sandbox.limits import describe_hits
from hermes.exec.sandbox.protected_paths import PathGuards, plan_guards
from tests.kit.deadlines import Deadline
from tests.kit.processes import living, until
from tests.unit.exec.sandbox.sandbox_shell import ENV, command_lines, linux, sh


def test_how_protected_paths_are_kept(workspace: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / "AGENTS.md").touch()
    (workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    (workspace / "rules").symlink_to("sub/rules")
    (workspace / "far").symlink_to("/etc/passwd")
    (workspace / "loop").symlink_to("loop")
    names = [".git/hooks", ".git/commondir", "CLAUDE.md", "rules", "far", "loop", ".h/a/b", "../x"]
    found = plan_guards(workspace, tuple(workspace / name for name in names))

    def at(*names: str) -> tuple[str, ...]:
        return tuple(sorted(f"{workspace}/{name}" for name in names))

    assert found == PathGuards(
        read_only=at(".git/hooks", "AGENTS.md"),
        placeholders=at(".git/commondir", "sub/rules", ".h"),
        links=at("CLAUDE.md", "rules", "far", "loop"),
        pinned=at(".git", "sub"),
    )


def test_decoys_do_not_take_the_protection_from_older_files(tmp_path: Path) -> None:
    mine = tmp_path / "work/z/deep/.envrc"
    mine.parent.mkdir(parents=True)
    mine.touch()
    for number in range(20):
        decoy = tmp_path / f"work/a{number}/.envrc"
        decoy.parent.mkdir()
        decoy.touch()
        while decoy.stat().st_ctime_ns <= mine.stat().st_ctime_ns:
            decoy.touch()
    policy = build_policy("workspace-write", tmp_path / "work", tmp_path / "a", tmp_path / "h")
    assert mine in policy.protected


def test_folders_that_a_command_made_do_not_hide_a_repository(tmp_path: Path) -> None:
    """Only so many folders are searched; a hook in a repository behind them would be run."""
    hooks = tmp_path / "work/z/deep/.git/hooks"
    hooks.mkdir(parents=True)
    (hooks.parent / "config").touch()
    last = hooks.stat().st_ctime_ns
    for number in range(1100):
        decoy = tmp_path / f"work/a{number}"
        decoy.mkdir()
        while decoy.stat().st_ctime_ns <= last:
            decoy.rmdir()
            decoy.mkdir()
    (hooks.parent.parent / "bump").touch()  # the folder itself may look new
    policy = build_policy("workspace-write", tmp_path / "work", tmp_path / "a", tmp_path / "h")
    assert {hooks, hooks.parent / "config"} <= set(policy.protected)


@linux
async def test_missing_names_are_held_only_while_a_command_runs(
    workspace: Path, tier: SandboxTier
) -> None:
    policy = SandboxPolicy("workspace-write", workspace, (), (workspace / "AGENTS.md",))
    os.mkfifo(workspace / "sub" / "gate")
    waiting = asyncio.create_task(sh("read x < sub/gate; echo evil > AGENTS.md", policy, tier))
    outcome, text = await sh("echo evil > AGENTS.md; mkdir AGENTS.md/x", policy, tier)
    assert outcome.status != 0
    # The first command still runs: what holds the name must have stayed for it.
    (workspace / "sub" / "gate").write_text("go\n")
    outcome, text = await waiting
    assert outcome.status == 1, text
    assert sorted(os.listdir(workspace)) == ["sub"]


@linux
async def test_a_name_held_by_a_killed_supervisor_is_released(
    workspace: Path, tier: SandboxTier
) -> None:
    (workspace / "AGENTS.md").mkdir()
    (workspace / "AGENTS.md").chmod(0o501)
    (workspace / "empty").mkdir()
    protected = (workspace / "AGENTS.md", workspace / "empty")
    await sh("true", SandboxPolicy("workspace-write", workspace, (), protected), tier)
    expected = ["empty", "sub"] if tier.level == 1 else ["AGENTS.md", "empty", "sub"]
    assert sorted(os.listdir(workspace)) == expected


# Policies.


def test_the_standard_policy(tmp_path: Path) -> None:
    home, agent, work = tmp_path / "u", tmp_path / "u" / ".hermes", tmp_path / "u" / "work"
    for folder in (agent, work, home / ".ssh", home / ".cargo" / "bin"):
        folder.mkdir(parents=True)
    (work / "AGENTS.md").touch()
    found = build_policy("workspace-write", work, agent, home)
    assert {home, agent} <= set(found.hidden)
    assert home / ".cargo" / "bin" in found.visible
    assert {work / ".git", work / "AGENTS.md", work / ".hermes"} <= set(found.protected)
    assert work / "CLAUDE.md" not in found.protected, "nothing in its place shows in listings"
    at_home = build_policy("workspace-write", home, agent, home)
    assert {home / ".ssh", agent} <= set(at_home.hidden)
    assert home not in at_home.hidden
    with pytest.raises(ConfigError):
        build_policy("workspace-write", Path("/"), agent, home)


@linux
async def test_a_workspace_at_home_hides_the_rest_of_it(tmp_path: Path, tier: SandboxTier) -> None:
    home, agent, work = tmp_path / "u", tmp_path / "u" / ".hermes", tmp_path / "u" / "work"
    for folder in (agent, work / "sub", home / ".ssh"):
        folder.mkdir(parents=True)
    (home / ".ssh" / "key").write_text("SECRET")
    (agent / ".env").write_text("SECRET")
    for workspace in (work, home):
        policy = build_policy("workspace-write", workspace, agent, home)
        _, text = await sh(f"cat {home}/.ssh/key {agent}/.env; ls {agent}", policy, tier)
        assert "SECRET" not in text
        assert ".env" not in text.replace(f"{agent}/.env", "")
        outcome, text = await sh(f"echo fine > {work}/sub/f && cat {work}/sub/f", policy, tier)
        assert (outcome.status, text) == (0, "fine\n")


@linux
async def test_read_only(workspace: Path, tier: SandboxTier) -> None:
    policy = SandboxPolicy("read-only", workspace)
    outcome, text = await sh("ls; echo x > $(mktemp) && echo x > sub/new", policy, tier)
    assert outcome.status == 1
    assert text.startswith("sub\n")
    assert os.listdir(workspace / "sub") == []


async def test_full_access_is_no_sandbox(workspace: Path, tmp_path: Path) -> None:
    policy = SandboxPolicy("full-access", workspace, (tmp_path,))
    outcome, _ = await sh(f"echo x > {tmp_path}/new", policy, SandboxTier(3, "none"))
    assert outcome == CommandResult(0)
    assert confine_command(["a"], policy, SandboxTier(1, "x"), env={"B": "c"}).setup is None


# How commands run and end.


@linux
async def test_environment_status_and_output(workspace: Path, tier: SandboxTier) -> None:
    policy = SandboxPolicy("workspace-write", workspace)
    outcome, text = await sh("env | grep -v -e ^_= -e SHLVL -e PWD -e TMPDIR -e HOME", policy, tier)
    assert (outcome, text.split()) == (CommandResult(0), [f"PATH={ENV['PATH']}"])
    assert (await sh("exit 1", policy, tier))[0] == CommandResult(1)
    assert (await sh("exit 77", policy, tier))[0] == CommandResult(77)
    assert (await sh("kill -KILL $$", policy, tier))[0].status in (-9, 137)
    _, text = await sh("ls /proc/self/fd; pwd", policy, tier)
    assert text.split() == ["0", "1", "2", "3", str(workspace)]
    _, text = await sh("tr '\\0' '\\n' < /proc/1/environ", policy, tier)
    assert tier.level == 2 or text == ""


@linux
async def test_out_of_time_it_may_say_goodbye(
    workspace: Path, tier: SandboxTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadline = Deadline(monkeypatch, local)
    script = "trap 'echo bye > sub/bye; exit' TERM; echo ready; touch sub/ready; "
    script += "while :; do sleep 0.02; done"
    task = asyncio.create_task(sh(script, SandboxPolicy("workspace-write", workspace), tier))
    await until((workspace / "sub" / "ready").exists)
    deadline.expire()
    outcome, text = await task
    assert (outcome, text.split()[0]) == (CommandResult(None), "ready")
    assert (workspace / "sub" / "bye").read_text() == "bye\n"


@linux
async def test_out_of_time_a_fork_bomb_ends(
    workspace: Path, tier: SandboxTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = SandboxPolicy("workspace-write", workspace, limits=ResourceLimits(processes=40))
    mark = f"{400_000 + os.getpid()}.{tier.level}"
    script = f"trap '' TERM; f() {{ sleep {mark} & f & f; }}; f 2>/dev/null"
    if not cgroup.can_limit():
        pytest.skip("there are no control groups for us")
    deadline = Deadline(monkeypatch, local)
    task = asyncio.create_task(sh(script, policy, tier))
    await until(lambda: command_lines().count(f"sleep\0{mark}") > 10)
    deadline.expire()
    outcome, _ = await task
    assert outcome == CommandResult(None)
    assert f"sleep\0{mark}" not in command_lines()


HOLD = """
import os, sys, time
held, children = bytearray(int(sys.argv[1]) << 20), 0
try:
    while children < int(sys.argv[2]):
        if not os.fork():
            time.sleep(60)
        children += 1
except BlockingIOError:
    print("no more")
open("sub/ready", "w").close()
open("sub/gate").read()
os.killpg(0, 9)
"""


@linux
@pytest.mark.parametrize(("amount", "hit"), [("150 0", 0), ("0 60", 1)])
async def test_limits_hold_for_the_commands_of_a_session_together(
    workspace: Path, tier: SandboxTier, amount: str, hit: int
) -> None:
    if not cgroup.can_limit():
        pytest.skip("there are no control groups for us")
    limits = ResourceLimits(memory=250 << 20, processes=80)
    policy = SandboxPolicy("workspace-write", workspace, limits=limits)
    (workspace / "hold.py").write_text(HOLD)
    os.mkfifo(workspace / "sub" / "gate")
    hold = f"python3 hold.py {amount}"
    first = asyncio.create_task(sh(hold, policy, tier, session="one"))
    await until((workspace / "sub" / "ready").exists)
    alone = f"{hold.replace('hold.py', 'alone.py')}; exit 0"
    (workspace / "alone.py").write_text(HOLD.partition("open(")[0] + "os.killpg(0, 9)")
    outcome, text = await sh(alone, policy, tier, session="two")
    assert outcome.limit_hits == (0, 0) and "no more" not in text
    outcome, text = await sh(alone, policy, tier, session="one")
    if not any(outcome.limit_hits):  # the kernel has chosen the other one
        outcome, text = await first
    assert outcome.limit_hits[hit] > 0 and outcome.limit_hits[1 - hit] == 0
    (note,) = describe_hits(outcome.limit_hits)
    assert "together the commands of this session may have" in note
    first.cancel()
    await asyncio.wait([first])


@linux
async def test_nothing_is_left_behind(workspace: Path, tier: SandboxTier) -> None:
    policy = SandboxPolicy("workspace-write", workspace, (), (workspace / ".git",))
    _, text = await sh("mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; echo $TMPDIR", policy, tier)
    assert tier.level == 1 or not Path(text.strip()).exists()
    assert os.listdir(workspace) == ["sub"]
    _, text = await sh("grep -o 'hermes-[0-9-]*' /proc/self/cgroup", policy, tier)
    groups = [Path(folder) / name for _, folder in cgroup._find_parents() for name in text.split()]
    await until(lambda: not any(group.exists() for group in groups))


@linux
async def test_a_sandbox_that_cannot_be_set_up_runs_nothing(
    workspace: Path, first: SandboxTier
) -> None:
    elsewhere = workspace.parent / "elsewhere"  # in the shared /tmp, of which it sees none
    elsewhere.mkdir()
    policy = SandboxPolicy("workspace-write", workspace)
    out = OutputCapture(1000, workspace)
    with pytest.raises(ToolError, match=r"sandbox cannot be used.*Nothing was run.*chdir"):
        await run_command(CommandSpec("echo x > f", elsewhere, ENV, 60, policy, first), out)
    with pytest.raises(ToolError):
        await sh("true", SandboxPolicy("workspace-write", Path("/proc")), first)
    assert os.listdir(workspace) == ["sub"]


AGENT = """
import asyncio, sys
from pathlib import Path
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.sandbox import SandboxPolicy
from hermes.exec.sandbox_probe import list_candidates
async def main():
    folder = Path(sys.argv[2])
    (tier,) = [tier for tier in list_candidates() if tier.level == int(sys.argv[3])]
    policy = SandboxPolicy("workspace-write", folder)
    command = CommandSpec(sys.argv[1], folder, {env!r}, 60, policy, tier)
    await run_command(command, OutputCapture(1000, folder))
asyncio.run(main())
"""


@linux
async def test_a_killed_agent_takes_its_commands_along(workspace: Path, tier: SandboxTier) -> None:
    mark = f"{300_000 + os.getpid()}.{tier.level}"
    command = f"trap '' HUP TERM; setsid sleep {mark} & (setsid sleep {mark} &); sleep {mark}; true"
    agent = subprocess.Popen(
        [sys.executable, "-c", AGENT.format(env=ENV), command, workspace, str(tier.level)],
        env={"PYTHONPATH": str(Path(sandbox_probe.__file__).parents[3])},
    )
    try:
        await until(lambda: command_lines().count(f"sleep\0{mark}") == 3)
        agent.send_signal(signal.SIGKILL)
        await until(lambda: f"sleep\0{mark}" not in command_lines())
    finally:
        agent.kill()
        agent.wait()


@linux
@pytest.mark.parametrize("victim", ["wrapper", "supervisor", "launcher and supervisors"])
async def test_a_command_ends_with_whoever_watches_it(
    workspace: Path, first: SandboxTier, mark: str, victim: str
) -> None:
    policy = SandboxPolicy("workspace-write", workspace)
    command = f"(trap '' HUP TERM; setsid sleep {mark}) & sleep {mark}"
    running = asyncio.create_task(sh(command, policy, first))
    await until(lambda: len(living(mark)) >= 2)
    parents = {pid: (parent, name) for pid, parent, name in list_processes()}
    pid = living(mark)[0]
    while parents[pid][1] != b"bwrap" or parents[parents[pid][0]][1] == b"bwrap":
        pid = parents[pid][0]
    supervisor = parents[pid][0]
    launcher = parents[supervisor][0]
    supervisors = [child for child, (parent, _) in parents.items() if parent == launcher]
    victims = {"wrapper": [pid], "supervisor": [supervisor]}.get(victim, [launcher, *supervisors])
    for number in victims:
        os.kill(number, signal.SIGKILL)
    await until(lambda: not living(mark))
    running.cancel()
    await asyncio.wait([running])


@linux
async def test_the_network_is_the_proxys_socket(workspace: Path, first: SandboxTier) -> None:
    address = workspace.parent / "p"
    lines: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(await reader.readline())
        writer.write(b"HTTP/1.1 403 no\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, address)
    async with server:
        policy = SandboxPolicy(
            "workspace-write", workspace, (workspace.parent,), network=str(address)
        )
        script = (
            "echo $HTTP_PROXY; exec 3<>/dev/tcp/127.0.0.1/3128; echo 'CONNECT a.b:443' >&3; cat <&3"
        )
        outcome, text = await sh(script, policy, first)
    assert outcome == CommandResult(0)
    assert text.split()[:3] == ["http://127.0.0.1:3128", "HTTP/1.1", "403"]
    assert lines == [b"CONNECT a.b:443\n"]
    with pytest.raises(ToolError):
        confine_command(["x"], policy, SandboxTier(2, "x", landlock=7), env={})
