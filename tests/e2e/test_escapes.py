"""Attempts to get out of the sandbox, on every tier this machine has. None may succeed.

An attempt is data: a script, and the witness outside the sandbox that would see it succeed. All
witnesses are asked after every attempt, whichever was named. The same scripts run without a sandbox
too, where the named witness must see them: an attempt that cannot succeed proves nothing.
"""

import contextlib
import hashlib
import itertools
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.core.errors import ToolError
from hermes.exec.launcher import cgroup
from hermes.exec.process.local import CommandSpec, run_command, stop_left_running
from hermes.exec.process.output_capture import OutputCapture
from hermes.exec.sandbox import ResourceLimits, SandboxPolicy, SandboxTier
from hermes.exec.sandbox.seccomp import CALL_NUMBERS
from tests.e2e.escape_attempts import ATTEMPTS, MEMORY_BOMBS, PRELUDE, Attempt, Witness
from tests.kit.tiers import had, tiers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes need Linux")

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LIMITS = ResourceLimits(memory=192 * 2**20, processes=60, file=8 * 2**20)
BEGUN = "the attempt has begun"
PROTECTED_NAMES = (".git", "AGENTS.md", "CLAUDE.md", ".cursorrules", ".hermes")


class World:
    """What is outside: the witnesses. It can be used again after an attempt they did not see."""

    def __init__(self, base: Path) -> None:
        self.token = f"KEY-{secrets.token_hex(16)}"
        self.mark = f"{200_000 + os.getpid()}.{next(_marks)}"
        self.base = base
        self.workspace, self.out = base / "workspace", base / "outside"
        self.agent_home, self.home = base / "agent", base / "home"
        self.unharmed = False
        self._build()
        self._fill()
        self._before = self._snapshot()
        self._open()

    def _build(self) -> None:
        for folder in (
            "workspace/.git/hooks",
            "outside/folder",
            "agent",
            "home/.ssh",
        ):
            (self.base / folder).mkdir(parents=True)
        for name, text in {
            "agent/.env": f"API_KEY={self.token}\n",
            "agent/config.yaml": "sandbox: {mode: workspace-write}\n",
            "home/.ssh/id_rsa": f"{self.token}\n",
            "outside/file": "as it was\n",
            "outside/folder/file": "as it was\n",
            "workspace/AGENTS.md": "as it was\n",
            "workspace/.git/HEAD": "ref: refs/heads/main\n",
            "workspace/.git/config": "[core]\n\trepositoryformatversion = 0\n",
            "workspace/.git/hooks/pre-commit": "as it was\n",
        }.items():
            (self.base / name).write_text(text)
            (self.base / name).chmod(0o600)
        (self.workspace / "CLAUDE.md").symlink_to("AGENTS.md")

    def _fill(self) -> None:
        """What may be changed, as it is before an attempt."""
        for path in self.workspace.iterdir():
            if path.name not in PROTECTED_NAMES:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (self.workspace / "sub").mkdir()
        for name, text in {"sub/file": "free\n", "escaped": ""}.items():
            (self.workspace / name).write_text(text)
            (self.workspace / name).chmod(0o600)
        (self.workspace / "sub/to-key").symlink_to(self.agent_home / ".env")
        (self.workspace / "sub/to-file").symlink_to(self.out / "file")

    def _open(self) -> None:
        self._key_file = (self.agent_home / ".env").open()
        self._victim = subprocess.Popen(
            ["cat"], env={"PATH": PATH, "API_KEY": self.token}, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        address = str(self.out / "docker.sock")
        self._tcp = _bound(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self._udp = _bound(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._sockets = {
            "tcp": self._tcp,
            "udp": self._udp,
            "unix": _bound(socket.AF_UNIX, socket.SOCK_STREAM, address),
            "unix datagram": _bound(socket.AF_UNIX, socket.SOCK_DGRAM, f"{address}.dgram"),
            "abstract": _bound(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.mark}"),
        }
        self._signals: list[int] = []
        self._listen()

    def _listen(self) -> None:
        for number in (signal.SIGUSR1, signal.SIGCONT):
            signal.signal(number, lambda number, _: self._signals.append(number))

    def renew(self) -> None:
        self._fill()
        self._listen()

    def close(self) -> None:
        for number in (signal.SIGUSR1, signal.SIGCONT):
            signal.signal(number, signal.SIG_DFL)
        for listener in self._sockets.values():
            listener.close()
        self._key_file.close()
        with self._victim:
            self._victim.kill()
        for path in self._litter():
            path.unlink(missing_ok=True)
        shutil.rmtree(self.base, ignore_errors=True)
        shutil.rmtree(f"{self.workspace}.old", ignore_errors=True)

    @property
    def policy(self) -> SandboxPolicy:
        return SandboxPolicy(
            "workspace-write",
            self.workspace,
            (self.agent_home, self.home),
            tuple(self.workspace / name for name in PROTECTED_NAMES),
            visible=(self.out, Path(sys.base_prefix)),
            limits=LIMITS,
        )

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": PATH,
            "OUT": str(self.out),
            "AGENT_HOME": str(self.agent_home),
            "HOME_": str(self.home),
            "AGENT": str(os.getpid()),
            "VICTIM": str(self._victim.pid),
            "FD": str(self._key_file.fileno()),
            "TCP": str(self._tcp.getsockname()[1]),
            "UDP": str(self._udp.getsockname()[1]),
            "SOCK": str(self.out / "docker.sock"),
            "ABSTRACT": self.mark,
            "MARK": self.mark,
            "DISKS": " ".join(str(path) for path in Path("/dev").glob("[vsn][dv][a-z]*")),
            "GROUPS_": " ".join(folder for _, folder in cgroup._find_parents()),
        }

    async def run(
        self, attempt: Attempt, policy: SandboxPolicy, tier: SandboxTier | None
    ) -> dict[Witness, str]:
        """What the witnesses saw."""
        text = attempt.script
        if attempt.python:
            number = CALL_NUMBERS["clone"][0 if os.uname().machine == "x86_64" else 1]
            script = self.workspace / "sub" / "attempt.py"
            script.write_text(f"print({BEGUN!r}, flush=True)\n{PRELUDE}\nCLONE = {number}\n{text}")
            text = f"{os.path.realpath(sys.executable)} -I -S sub/attempt.py"
        else:
            text = f"echo {BEGUN}\n{text}"
        out = OutputCapture(50_000_000, self.base / "spill")  # a leak must not be in a cut
        lost = ""
        try:
            await run_command(CommandSpec(text, self.workspace, self.env, 40, policy, tier), out)
        except ToolError as error:
            lost = str(error)
        finally:
            out.close()
        await stop_left_running()
        assert lost or BEGUN in out.text(), f"it did not even begin: {out.text()}"
        seen = self._seen(out.text())
        if lost:
            seen["signalled"] = lost
        self.unharmed = not seen
        return seen

    def _seen(self, output: str) -> dict[Witness, str]:
        after = self._snapshot()
        changed = {path for path, _ in self._before.items() ^ after.items()}
        files = [
            path for path in self.workspace.rglob("*") if path.is_file() and not path.is_symlink()
        ]
        kept = {path: path.stat() for path in files}
        leaked = [
            str(p)
            for p, s in kept.items()
            if s.st_size < 10**6 and self.token.encode() in p.read_bytes()
        ]
        contacted = [name for name, listener in self._sockets.items() if _contacted(listener)]
        found: dict[Witness, object] = {
            "changed": sorted(changed),
            "leaked": ["the output"] * (self.token in output) + leaked,
            "contacted": contacted,
            "signalled": self._signals + ["the victim"] * (not self._answers()),
            "left": [*_living(self.mark), *self._litter()],
            "claimed": _text(self.workspace / "escaped"),
            "oversized": [path for path, status in kept.items() if status.st_size > LIMITS.file],
        }
        return {witness: str(what) for witness, what in found.items() if what}

    def _answers(self) -> bool:
        """Whether the victim still does. Being killed takes it a moment, but it says no more."""
        stdin, stdout = self._victim.stdin, self._victim.stdout
        assert stdin is not None and stdout is not None
        try:
            stdin.write(b"?")
        except BrokenPipeError:
            return False
        return bool(select.select([stdout], [], [], 5)[0] and stdout.read(1))

    def _litter(self) -> list[Path]:
        places = (Path("/tmp") / self.mark, Path("/dev/shm") / self.mark)
        return [path for path in places if path.exists()]

    def _snapshot(self) -> dict[str, tuple[object, ...]]:
        """Everything outside the workspace, and what is protected in it."""
        found: dict[str, tuple[object, ...]] = {}
        mine = (self.workspace / name for name in PROTECTED_NAMES)
        roots = [self.out, self.agent_home, self.home, *mine]
        for root in roots:
            for path in (root, *root.rglob("*")) if os.path.lexists(root) else ():
                status = path.lstat()
                content: object = ""
                if path.is_symlink():
                    content = os.readlink(path)
                elif path.is_file():
                    content = hashlib.sha256(path.read_bytes()).digest()
                if path.is_socket() or (path == self.out):
                    continue  # its entries are looked at; its own time changes when we listen
                names_ = tuple(os.listxattr(path, follow_symlinks=False))
                identity = (status.st_mode, status.st_uid, status.st_nlink, status.st_mtime_ns)
                found[str(path.relative_to(self.base))] = (*identity, content, names_)
        return found


_marks = itertools.count(1)


def _bound(family: int, kind: int, address: object) -> socket.socket:
    found = socket.socket(family, kind)
    found.bind(address)  # type: ignore[arg-type]
    found.setblocking(False)
    if kind == socket.SOCK_STREAM:
        found.listen()
    return found


def _contacted(listener: socket.socket) -> bool:
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(100)
    except BlockingIOError:
        return False
    return True


def _living(mark: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path("/proc", name, "cmdline").read_bytes().split(b"\0")  # a zombie's is empty
            if words[:2] == [b"sleep", mark.encode()]:
                found.append(int(name))
    return found


def _text(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


@pytest.fixture(scope="module")
def spare() -> Iterator[list[World]]:
    """A world that an attempt did no harm to."""
    found: list[World] = []
    yield found
    for world in found:
        world.close()


@pytest.fixture
def world(spare: list[World]) -> Iterator[World]:
    if spare:
        found = spare.pop()
        found.renew()
    else:
        found = World(Path(tempfile.mkdtemp(prefix="hx")))
    found.unharmed = False
    yield found
    spare.append(found) if found.unharmed else found.close()


@pytest.fixture(params=tiers(), ids=lambda tier: f"tier{tier.level}")
async def tier(request: pytest.FixtureRequest) -> SandboxTier:
    return await had(request.param)


def _name(attempt: Attempt) -> str:
    return attempt.name


def test_there_are_enough_of_them() -> None:
    assert len({attempt.name for attempt in ATTEMPTS}) == len(ATTEMPTS) >= 60


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=_name)
async def test_no_way_out(world: World, tier: SandboxTier, attempt: Attempt) -> None:
    if attempt.script == MEMORY_BOMBS and not cgroup.can_limit():
        pytest.skip("there are no control groups for us: memory is limited per process")
    assert await world.run(attempt, world.policy, tier) == {}


@pytest.mark.parametrize("attempt", [a for a in ATTEMPTS if a.control == "always"], ids=_name)
async def test_the_attempt_works_without_a_sandbox(world: World, attempt: Attempt) -> None:
    free = SandboxPolicy("full-access", world.workspace)
    assert attempt.witness in await world.run(attempt, free, None)


async def test_most_others_work_as_root(tmp_path: Path) -> None:
    """Which ones depends on the machine."""
    if os.geteuid() or not _effective_capabilities() >> 21 & 1:
        pytest.skip("needs a root that may administer the machine")
    others = [a for a in ATTEMPTS if a.control == "often"]
    failed = []
    for attempt in others:
        world = World(Path(tempfile.mkdtemp(prefix="hx")))
        try:
            free = SandboxPolicy("full-access", world.workspace)
            if attempt.witness not in await world.run(attempt, free, None):
                failed.append(attempt.name)
        finally:
            world.close()
    assert len(failed) <= len(others) // 4, failed


def _effective_capabilities() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("CapEff:\t")[2].split()[0], 16)


BENIGN = {
    "git": "cd sub && git -c init.defaultBranch=m init -q && git -c user.name=n -c user.email=e "
    "commit -q --allow-empty -m x && git status -s -uno && git log --oneline | wc -l",
    "python": f"{os.path.realpath(sys.executable)} -c 'import json, asyncio; print(1)'",
    "write": "mkdir -p sub/a/b && echo 1 > sub/a/b/c && mv sub/a sub/d && cat sub/d/b/c",
    "compile": "cd sub && echo 'int main(void) { return 0; }' > a.c && cc a.c && ./a.out && echo 1",
    "temporary": "f=$(mktemp) && echo 1 > $f && cat $f",
    "pipes": "seq 5 | grep -c 1 2>/dev/null > /dev/stdout",
    "devices": "head -c 4 /dev/urandom | wc -c | tr 4 1; echo > /dev/null",
    "modes and times": "cp -p sub/file sub/g && chmod 755 sub/g && touch -d 2001-02-03 sub/g && "
    "stat -c '%a %Y' sub/g | grep -c '755 98'",
    "processes": "(sleep 0.01 & wait; kill -0 $$; kill $(sleep 9 >/dev/null & echo $!)); echo 1",
    "threads": f"{os.path.realpath(sys.executable)} -c 'import subprocess as s, threading as t; "
    'x = t.Thread(target=s.run, args=(["true"],)); x.start(); x.join(); print(1)\'',
    "home": "mkdir -p ~/.cache && echo 1 > ~/.cache/x && cat ~/.cache/x",
    "read the system": "ls /usr/bin/env /etc/passwd | wc -l | tr 2 1",
}


@pytest.mark.parametrize("name", BENIGN)
async def test_ordinary_work_goes_on(world: World, tier: SandboxTier, name: str) -> None:
    for program in ("git", "cc"):
        if program in BENIGN[name].split() and not shutil.which(program):
            pytest.skip(f"there is no {program} here")
    policy = SandboxPolicy(
        "workspace-write",
        world.workspace,
        (world.home,),
        world.policy.protected,
        visible=(Path(sys.base_prefix),),
    )
    out = OutputCapture(10_000, world.base)
    env = {"PATH": PATH, "HOME": str(world.home)}
    outcome = await run_command(
        CommandSpec(BENIGN[name], world.workspace, env, 60, policy, tier), out
    )
    assert (outcome.status, out.text().strip()) == (0, "1")
