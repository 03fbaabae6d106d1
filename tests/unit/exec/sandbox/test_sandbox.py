"""The parts of the sandbox, and commands that run inside it on every tier this machine has."""

import asyncio
import errno
import os
import signal
import stat
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.core.errors import ConfigError, ToolError
from hermes.exec import sandbox_probe
from hermes.exec.launcher import cgroup
from hermes.exec.process.local import CommandResult, CommandSpec, run_command
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import (
    ResourceLimits,
    SandboxPolicy,
    SandboxTier,
    build_policy,
    confine_command,
    describe_tier,
    require_confinement,
    seccomp,
)
from hermes.exec.sandbox.protected_paths import PathGuards, plan_guards
from hermes.exec.sandbox_probe import probe_tier
from tests.kit.tiers import had, tiers

LINUX = sys.platform == "linux"
linux = pytest.mark.skipif(not LINUX, reason="sandboxes need Linux")
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
ALLOW, ASK = 0x7FFF0000, 0x7FC00000


@pytest.fixture(params=tiers(), ids=lambda tier: f"tier{tier.level}")
async def tier(request: pytest.FixtureRequest) -> SandboxTier:
    return await had(request.param)


@pytest.fixture
async def first(tmp_path: Path) -> SandboxTier:
    """The tier with namespaces."""
    for candidate in sandbox_probe.list_candidates():
        if candidate.level == 1 and (await sandbox_probe.try_tier(candidate))[0]:
            return candidate
    pytest.skip("bubblewrap does not work here")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    (path / "sub").mkdir(parents=True)
    return path


async def sh(
    text: str, policy: SandboxPolicy, tier: SandboxTier, *, timeout: float = 20
) -> tuple[CommandResult, str]:
    out = OutputCapture(20_000, policy.workspace.parent / "spill")
    command = CommandSpec(text, policy.workspace, ENV, timeout, policy, tier)
    try:
        return await run_command(command, out), out.text()
    finally:
        out.close()


# Seccomp programs, run by an interpreter of our own: so also those of the other machine.


def verdict(program: bytes, arch: int, number: int, *args: int) -> int:
    data = struct.pack("=iIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator, position = 0, 0
    while True:
        op, yes, no, value = code[position]
        position += 1
        match op:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x06:
                return value
            case 0x15 | 0x25 | 0x35 | 0x45:
                holds = {
                    0x15: accumulator == value,
                    0x25: accumulator > value,
                    0x35: accumulator >= value,
                    0x45: bool(accumulator & value),
                }[op]
                position += yes if holds else no
            case _:
                raise AssertionError(f"unknown instruction {op:#x}")


def no(number: int) -> int:
    return 0x00050000 | number


MACHINES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (
        0xC000003E,
        {"read": 0, "socket": 41, "clone": 56, "clone3": 435, "mount": 165, "ptrace": 101}
        | {"bpf": 321, "openat": 257, "fchmodat": 268, "io_uring_setup": 425, "ioctl": 16}
        | {"prlimit64": 302, "unshare": 272, "execve": 59, "fsetxattr": 190, "socketpair": 53}
        | {"connect": 42, "bind": 49, "listen": 50, "accept": 43, "accept4": 288, "sendto": 44}
        | {"sendmsg": 46, "sendmmsg": 307},
    ),
    "aarch64": (
        0xC00000B7,
        {"read": 63, "socket": 198, "clone": 220, "clone3": 435, "mount": 40, "ptrace": 117}
        | {"bpf": 280, "openat": 56, "fchmodat": 53, "io_uring_setup": 425, "ioctl": 29}
        | {"prlimit64": 261, "unshare": 97, "execve": 221, "fsetxattr": 7, "socketpair": 199}
        | {"connect": 203, "bind": 200, "listen": 201, "accept": 202, "accept4": 242, "sendto": 206}
        | {"sendmsg": 211, "sendmmsg": 269},
    ),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_what_the_filters_refuse(machine: seccomp.Machine) -> None:
    arch, numbers = MACHINES[machine]
    isolated = seccomp.build_namespace_filter(machine)
    confined = seccomp.build_landlock_filter(machine, truncation=False)

    def both(name: str, *args: int) -> tuple[int, int]:
        number = numbers[name]
        return verdict(isolated, arch, number, *args), verdict(confined, arch, number, *args)

    assert both("read") == both("execve") == both("socketpair", 1, 0o2000001) == (ALLOW, ALLOW)
    assert both("socketpair", 1, 2) == both("socketpair", 1, 0o4003) == (ALLOW, no(1))
    assert both("connect") == both("bind") == both("sendto", 3, 0, 0, 0x20000000) == (ALLOW, ALLOW)
    assert both("mount") == both("bpf") == both("unshare") == (no(1), no(1))
    assert both("clone", 17) == (ALLOW, ALLOW)
    for flag in (0x20000, 0x02000000, 0x10000000, 0x20000000, 0x40000000):
        assert both("clone", 17 | flag) == (no(1), no(1))
    assert both("clone3") == both("io_uring_setup") == (no(errno.ENOSYS), no(errno.ENOSYS))
    assert both("ptrace") == (ALLOW, no(1))
    assert (
        both("socket", 1, 1, 0) == both("socket", 2, 1, 0) == both("socket", 10) == (ALLOW, no(1))
    )
    assert both("socket", 16, 3, 0) == (ALLOW, ALLOW)
    for family in (16, 17, 38, 40, 44, 3, 0):
        assert both("socket", family, 3, 4) == (no(1), no(1))
    assert both("ioctl", 0, 0x5401) == (ALLOW, ALLOW)
    assert both("ioctl", 0, 0x5412) == both("ioctl", 0, 0xFFFFFFFF00005412) == (no(1), no(1))
    assert both("openat", 0, 0, 0o100, 0o644) == both("openat", 0, 0, 0, 0o4755) == (ALLOW, ALLOW)
    assert both("openat", 0, 0, 0o100, 0o4755) == (no(1), no(1))
    assert both("openat", 0, 0, 0o1000, 0) == (ALLOW, no(errno.EACCES))
    assert both("openat", 0, 0, 0o1001, 0) == (ALLOW, ALLOW)
    assert both("fchmodat", 0, 0, 0o755) == (ALLOW, ASK)
    assert both("fchmodat", 0, 0, 0o4755) == (no(1), ASK)
    assert both("prlimit64", 0) == (ALLOW, ALLOW)
    assert both("prlimit64", 4711) == (ALLOW, no(1))
    assert both("fsetxattr") == (ALLOW, no(errno.EOPNOTSUPP))


@pytest.mark.parametrize("machine", MACHINES)
def test_with_network_there_is_tcp_and_the_supervisor_connects_it(machine: seccomp.Machine) -> None:
    arch, numbers = MACHINES[machine]
    online = seccomp.build_landlock_filter(machine, truncation=True, online=True)

    def got(name: str, *args: int) -> int:
        return verdict(online, arch, numbers[name], *args)

    assert got("socket", 2, 0o2004001, 0) == got("socket", 2, 1, 6) == ALLOW
    for other in ((2, 2, 0), (2, 3, 1), (2, 1, 132), (2, 1, 262), (2, 5, 0), (10, 1, 0), (1, 1, 0)):
        assert got("socket", *other) == no(1)
    assert got("socket", 16, 3, 0) == ALLOW and got("socket", 16, 3, 4) == no(1)
    assert got("connect", 3) == ASK
    for serving in ("bind", "listen", "accept", "accept4"):
        assert got(serving, 3) == no(1)
    assert got("sendto", 3, 0, 9, 0x4000) == got("sendmsg", 3, 0, 0x4000) == ALLOW
    assert got("sendto", 3, 0, 9, 0x20000000) == got("sendmmsg", 3, 0, 1, 0x20000000) == no(1)
    assert got("sendmsg", 3, 0, 0x20000000) == no(1)


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(471, 2**31 - 1), other=st.integers(0, 2**32 - 1))
def test_what_a_filter_does_not_know_does_not_exist(
    machine: seccomp.Machine, number: int, other: int
) -> None:
    arch, numbers = MACHINES[machine]
    for program in (
        seccomp.build_namespace_filter(machine),
        seccomp.build_landlock_filter(machine, truncation=True),
    ):
        assert verdict(program, arch, number) == no(errno.ENOSYS)
        assert verdict(program, arch, numbers["read"] | 0x40000000) == no(errno.ENOSYS)
        if other != arch:
            assert verdict(program, other, numbers["read"]) == no(errno.ENOSYS)
        assert len(program) // 8 < 4096


# Protected paths.


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
async def test_out_of_time_it_may_say_goodbye(workspace: Path, tier: SandboxTier) -> None:
    script = "trap 'echo bye > sub/bye; exit' TERM; echo ready; while :; do sleep 0.02; done"
    outcome, text = await sh(script, SandboxPolicy("workspace-write", workspace), tier, timeout=1)
    assert (outcome, text.split()[0]) == (CommandResult(None), "ready")
    assert (workspace / "sub" / "bye").read_text() == "bye\n"


@linux
async def test_out_of_time_a_fork_bomb_ends(workspace: Path, tier: SandboxTier) -> None:
    policy = SandboxPolicy("workspace-write", workspace, limits=ResourceLimits(processes=40))
    mark = f"{400_000 + os.getpid()}.{tier.level}"
    script = f"trap '' TERM; f() {{ sleep {mark} & f & f; }}; f 2>/dev/null"
    if not cgroup.can_limit():
        pytest.skip("there are no control groups for us")
    outcome, _ = await sh(script, policy, tier, timeout=0.5)
    assert outcome == CommandResult(None)
    assert f"sleep\0{mark}" not in _command_lines()


def _command_lines() -> str:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                found.append((folder / "cmdline").read_text(errors="replace"))
            except OSError:
                continue
    return "\n".join(found)


@linux
async def test_nothing_is_left_behind(workspace: Path, tier: SandboxTier) -> None:
    policy = SandboxPolicy("workspace-write", workspace, (), (workspace / ".git",))
    _, text = await sh("mkdir -p $TMPDIR/a/b; chmod 0 $TMPDIR/a; echo $TMPDIR", policy, tier)
    assert tier.level == 1 or not Path(text.strip()).exists()
    assert os.listdir(workspace) == ["sub"]
    _, text = await sh("grep -o 'hermes-[0-9]*' /proc/self/cgroup", policy, tier)
    groups = [Path(folder) / name for _, folder in cgroup._find_parents() for name in text.split()]
    async with asyncio.timeout(5):
        while any(group.exists() for group in groups):
            await asyncio.sleep(0.01)


@linux
async def test_a_sandbox_that_cannot_be_set_up_runs_nothing(
    workspace: Path, first: SandboxTier
) -> None:
    elsewhere = workspace.parent / "elsewhere"  # in the shared /tmp, of which it sees none
    elsewhere.mkdir()
    policy = SandboxPolicy("workspace-write", workspace)
    out = OutputCapture(1000, workspace)
    with pytest.raises(ToolError, match=r"sandbox cannot be used.*Nothing was run.*chdir"):
        await run_command(CommandSpec("echo x > f", elsewhere, ENV, 5, policy, first), out)
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
        async with asyncio.timeout(10):
            while _command_lines().count(f"sleep\0{mark}") < 3:
                await asyncio.sleep(0.02)
            agent.send_signal(signal.SIGKILL)
            while f"sleep\0{mark}" in _command_lines():
                await asyncio.sleep(0.02)
    finally:
        agent.kill()
        agent.wait()


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


# Tiers.


@linux
async def test_the_probe_remembers_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[SandboxTier] = []

    async def counted(tier: SandboxTier) -> tuple[SandboxTier | None, str]:
        runs.append(tier)
        return tier, ""

    monkeypatch.setattr(sandbox_probe, "try_tier", counted)
    monkeypatch.setattr(
        sandbox_probe, "list_candidates", lambda: [SandboxTier(2, "x", ("tried",), ("y",), 7)]
    )

    async def again() -> SandboxTier:
        monkeypatch.setattr(sandbox_probe, "_known_tier", None)
        return await probe_tier(tmp_path / "cache")

    found = await again()
    assert (found.level, await again(), len(runs)) == (2, found, 1)
    file = tmp_path / "cache" / "sandbox.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setattr(sandbox_probe, "_PROBE_VERSION", 10**6)
    assert (await again(), len(runs)) == (found, 2)
    file.write_bytes(b"{")
    assert (await again(), len(runs)) == (found, 3)
    assert await probe_tier(tmp_path / "cache", fresh=True) == found and len(runs) == 4


@linux
async def test_a_weaker_tier_is_never_taken_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    strong, weak = SandboxTier(1, "x", bwrap="/usr/bin/bwrap"), SandboxTier(2, "y", landlock=7)
    here, broken = [strong, weak], False
    runs: list[int] = []

    async def attempt(tier: SandboxTier) -> tuple[SandboxTier | None, str]:
        runs.append(tier.level)
        return (None, "it broke") if broken and tier == strong else (tier, "")

    monkeypatch.setattr(sandbox_probe, "try_tier", attempt)
    monkeypatch.setattr(sandbox_probe, "list_candidates", lambda: list(here))

    async def process(*, fresh: bool = False) -> SandboxTier:
        monkeypatch.setattr(sandbox_probe, "_known_tier", None)
        caplog.clear()
        return await probe_tier(tmp_path / "cache", fresh=fresh)

    assert (await process()).level == 1 and runs == [1]
    broken = True
    assert (await process()).level == 1 and runs == [1], "what cannot be kept fails by itself"
    for _ in range(2):  # a canary's failure is not remembered, what it once was is
        found = await process(fresh=not runs[1:])
        assert found.level == 2 and found.lowered
        assert "tier 2 instead of 1" in found.evidence[0] and "tier 2 instead of 1" in caplog.text
    assert runs == [1, 1, 2, 1, 2]
    broken = False
    found = await process()
    assert (found.level, found.lowered, caplog.text) == (1, False, "")
    del here[0]
    monkeypatch.setattr(sandbox_probe, "_PROBE_VERSION", 10**6)  # its parts are gone
    assert (await process()).lowered
    found = await process()
    assert (found.level, found.lowered, len(runs)) == (2, False, 7), "the strongest there is now"


@linux
async def test_a_wrapper_that_confines_nothing_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ $1 != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sandbox_probe, "_known_tier", None)
    monkeypatch.setattr(
        sandbox_probe, "list_candidates", lambda: [SandboxTier(1, "bubblewrap", bwrap=str(fake))]
    )
    found = await probe_tier()
    monkeypatch.setattr(sandbox_probe, "_known_tier", None)
    assert found.level == 3
    assert "write outside the workspace" in found.evidence[0]
    assert "reach the network" in found.evidence[0]
    with pytest.raises(ConfigError, match=r"sandbox\.required"):
        require_confinement(found)


@linux
@pytest.mark.parametrize("version", range(1, sandbox_probe.landlock_version() + 1))
async def test_older_kernels_confine_as_well(workspace: Path, version: int) -> None:
    tier, why = await sandbox_probe.try_tier(SandboxTier(2, "Landlock", landlock=version))
    assert tier is not None, why
    target = workspace.parent / "target"
    target.write_text("as it was")
    script = f"""
    truncate -s 0 {target}; mv {target} sub; ln {target} sub/l; chmod 777 {target}; rm {target}
    {sys.executable} -c 'import os; os.open("{target}", os.O_RDONLY | os.O_TRUNC)'
    {sys.executable} -c 'import os; os.truncate("{target}", 1)'
    """
    before = target.stat()
    policy = SandboxPolicy("workspace-write", workspace, visible=(workspace.parent,))
    outcome, _ = await sh(script, policy, tier)
    assert outcome.status not in (0, None)
    after = target.stat()
    assert target.read_text() == "as it was"
    assert (before.st_mode, before.st_nlink) == (after.st_mode, after.st_nlink)


@linux
async def test_a_missing_wrapper_is_no_tier(tmp_path: Path) -> None:
    tier, why = await sandbox_probe.try_tier(
        SandboxTier(1, "bubblewrap", bwrap=str(tmp_path / "none"))
    )
    assert tier is None
    assert "cannot be used" in why


def test_a_tier_is_described_with_what_it_loses() -> None:
    tier = SandboxTier(2, "Landlock", ("tried to write: denied",), ("signals",))
    assert describe_tier(tier) == [
        "sandbox tier 2: Landlock",
        "  tried to write: denied",
        "  not protected: signals",
    ]
    require_confinement(tier)


@linux
async def test_the_probe_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox_probe, "_known_tier", None)
    found = await probe_tier()
    assert found.evidence
    assert found.level == min((t.level for t in sandbox_probe.list_candidates()), default=3)
    assert found.lost
    assert msgspec.json.decode(msgspec.json.encode(found), type=SandboxTier) == found


NOBODY = """
import asyncio, json, os, sys
from pathlib import Path
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.process.local import CommandSpec, run_command
from hermes.exec.sandbox import SandboxPolicy
from hermes.exec.sandbox_probe import list_candidates, try_tier
async def main():
    found, work = {}, Path(sys.argv[1])
    for candidate in list_candidates():
        tier, why = await try_tier(candidate)
        out = OutputCapture(1000, work)
        if tier:
            policy = SandboxPolicy("workspace-write", work, (), (work / "AGENTS.md",))
            text = "echo evil > AGENTS.md; echo fine > sub/f; cat sub/f; ulimit -u; rm sub/f"
            env = {"PATH": "/usr/bin:/bin"}
            await run_command(CommandSpec(text, work, env, 10, policy, tier), out)
        found[candidate.level] = [why, out.text(), os.listdir(work)]
    print(json.dumps(found))
asyncio.run(main())
"""


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="already runs as an ordinary user")
def test_an_ordinary_user_has_the_same_tiers(tmp_path: Path) -> None:
    paths = [str(Path(sandbox_probe.__file__).parents[3]), sysconfig.get_path("purelib")]
    work = Path("/tmp") / f"hermes-nobody-{os.getpid()}"
    (work / "sub").mkdir(parents=True)
    for folder in (work, work / "sub"):
        os.chown(folder, 65534, 65534)
    try:
        for python in (os.path.realpath(sys.executable), "/usr/bin/python3"):
            result = subprocess.run(
                [python, "-B", "-c", NOBODY, str(work)],
                env={"PYTHONPATH": ":".join(paths), "PATH": ENV["PATH"]},
                user=65534, group=65534, extra_groups=[], cwd="/", capture_output=True, text=True,
            ) if os.access(python, os.X_OK) and _reachable(python) else None  # fmt: skip
            if result and "No module named" not in result.stderr:
                break
        else:
            pytest.skip("no interpreter that an ordinary user may run")
        found = msgspec.json.decode(result.stdout)
    finally:
        (work / "sub").rmdir()
        work.rmdir()
    assert set(found) == {str(tier.level) for tier in sandbox_probe.list_candidates()}
    for why, text, left in found.values():
        assert why == ""
        assert text.splitlines()[1] == "fine"
        assert int(text.splitlines()[2]) < 100_000
        assert left == ["sub"]


def _reachable(path: str) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in Path(path).parents)
