"""Commands in a container: one for each session, with the workspace and nothing else of ours."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from hermes.core.errors import ToolError
from hermes.exec.backends import Site
from hermes.exec.backends.remote import (
    END_SECONDS,
    LONG,
    Call,
    Clients,
    Lifeline,
    Vanished,
    ask,
    on_terminal,
    passed_on,
)
from hermes.exec.backends.remote_scripts import END, INIT, RUN, RUN_BARE, RUN_SHOWN, WARDEN
from hermes.exec.process.local import MAX_COMMAND, Command, Outcome
from hermes.exec.process.output_capture import Capture

if TYPE_CHECKING:
    from hermes.config.schema import Docker as Settings
    from hermes.exec.sandbox import Policy
    from hermes.exec.sandbox.protected_paths import Guards

_START_SECONDS = 60.0
_MACHINE, _OWNER = "hermes.machine", "hermes.owner"
"""Labels: where the agent runs that a container belongs to, and which process it is."""
_SECURITY = ("info", "--format", "{{.SecurityOptions}}")
_ANEW = b"[the container was gone and was made anew: only the workspace is kept]\n"
_GONE = "no such container|is not running"
_REASONS = (
    ("permission denied while trying to connect", "You may not use the Docker daemon: join its "
     "group (`docker`) and log in again, or use a rootless daemon."),
    ("cannot connect to the docker daemon", "The Docker daemon does not answer: start it."),
    ("error during connect", "The Docker daemon does not answer: start it."),
    ("no such image", "There is no image {image} here: `docker pull {image}`."),
    ("unable to find image", "There is no image {image} here: `docker pull {image}`."),
    ("no such container", "There is no container {container}."),
    ("is not running", "The container {container} is not running: `docker start {container}`."),
    ("invalid reference format", "{image} is not the name of an image."),
    ("executable file not found", "The image {image} has no /bin/sh."),
    ("/bin/sh: no such file", "The image {image} has no /bin/sh."),
)  # fmt: skip


class Docker:
    """Its container is made by the first command, ends with the agent, and is made anew when
    somebody removed it. A container named by the settings is used as it is, and left alone."""

    def __init__(self, settings: Settings, site: Site) -> None:
        self._settings = settings
        self._site = site
        self._spill = site.home / "outputs"
        self._agent = secrets.token_hex(8)
        self._container = settings.container or f"hermes-{self._agent}"
        self._count = 0
        self._clients = Clients()
        self._lifeline = Lifeline(self._spill)
        self._opening = asyncio.Lock()
        self._made = False
        self._rootless = False
        self._open_to: bool | None = None

    @property
    def where(self) -> str:
        if self._settings.container:
            return f"in the container {self._settings.container}"
        return f"in a container of {self._settings.image}"

    @property
    def folder(self) -> Path:
        return self._site.workspace

    @property
    def workspace(self) -> Path:
        return self._site.workspace

    async def confined(self) -> bool:
        if self._open_to is None:
            if self._settings.container:
                self._open_to = await self._is_open()
            else:
                self._open_to = self._settings.network != "none" or bool(self._guards().cover)
        return not self._open_to

    async def run(self, command: Command, out: Capture) -> Outcome:
        if await self._ready():
            out.feed(_ANEW)
        try:
            return await self._run(command, out)
        except Vanished:
            if self._settings.container:
                raise
        await self._lifeline.close()  # somebody has removed it just now
        await self._ready()
        out.feed(_ANEW)
        return await self._run(command, out)

    async def _run(self, command: Command, out: Capture) -> Outcome:
        mark = self._mark()

        async def end(root: int) -> None:
            await self._end(mark, root)

        if command.pty:
            client = self._exec(mark, command, RUN_SHOWN, ("-t", "-i"))
            return await on_terminal(self._clients.start(client, out, out), command.timeout, end)
        call = Call(self._clients, self._exec(mark, command, RUN), mark, self._spill)
        return await call.run(
            out,
            seconds=command.timeout,
            end=end,
            where=str(command.cwd),
            explain=self._explain,
            gone=_GONE,
        )

    async def client(self, command: Command) -> Command:
        await self._ready()
        return self._exec(self._mark(), command, RUN_BARE, ("-t", "-i") if command.pty else ("-i",))

    async def end(self, client: Command) -> None:
        await self._end(client.text[client.text.index("hermes") + 1], 0)

    async def check(self) -> str:
        await self._sweep()
        await self._ready()
        where, lifeline = self.where, self._lifeline.greeting
        return f"commands run {where} ({', '.join(filter(None, (lifeline, *self._facts())))})"

    async def close(self) -> None:
        await self._clients.close()
        await self._lifeline.close()
        if self._made and not self._settings.container:
            self._made = False
            await self._docker("rm", "-f", self._container)

    # Containers

    async def _ready(self) -> bool:
        """Whether it had to be made again."""
        async with self._opening:
            if self._lifeline.alive:
                return False
            again = self._made
            await self._lifeline.close()
            if self._settings.container:
                argv = self._argv("exec", "-i", self._container, "/bin/sh", "-c", WARDEN)
                argv = (*argv, "hermes", self._agent)
                held: tuple[str, ...] = ()
            else:
                if not again:
                    await self._sweep()
                    self._rootless = "rootless" in (await self._docker(*_SECURITY))[1]
                self._container = f"hermes-{self._agent}-{secrets.token_hex(3)}"
                argv, held = self._create()
            base = self._local(argv)

            def client(stdin: int) -> Command:
                return structs.replace(base, stdin=stdin, placeholders=held)

            await self._lifeline.open(client, _START_SECONDS, self._explain)
            self._made = True
            return again and not self._settings.container

    def _create(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        settings, site = self._settings, self._site
        workspace = os.path.realpath(site.workspace)
        writable = site.mode != "read-only" and settings.workspace == "rw"
        held: tuple[str, ...] = ()
        inner: list[str] = []
        if writable and site.mode != "full-access":
            found = self._guards()
            held = found.make
            writable = not found.barred
            inner = [_bind(path) for path in (*found.keep, *held)]
            inner += [_bind(path, writable=writable) for path in found.pin]
        mounts = [_bind(workspace, writable=writable), *inner]
        mounts += self._hidden(workspace)
        argv = self._argv(
            "run", "--rm", "--interactive", "--pull", "never", "--name", self._container,
            "--label", f"{_MACHINE}={_machine()}", "--label", f"{_OWNER}={_owner(os.getpid())}",
            "--network", settings.network, "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--ipc", "private",
            "--pids-limit", str(settings.pids), "--memory", settings.memory,
            "--memory-swap", settings.memory, "--cpus", f"{settings.cpus:g}",
            "--user", self._user(), "--env", "HOME=/tmp",
            "--tmpfs", "/tmp:exec,nosuid,nodev,mode=1777",
            "--log-driver", "none", "--workdir", workspace, "--entrypoint", "/bin/sh",
        )  # fmt: skip
        for mount in mounts:
            argv += ("--mount", mount)
        return (*argv, settings.image, "-c", INIT), held

    def _user(self) -> str:
        """Whose files are ours outside: in a rootless daemon that is root."""
        return "0:0" if self._rootless else f"{os.getuid()}:{os.getgid()}"

    def _guards(self) -> Guards:
        """Links among the protected names (`cover`) are what a mount cannot protect here."""
        from hermes.exec.sandbox.protected_paths import guards

        policy = self._policy()
        return guards(policy.workspace, policy.protected, policy.unmade)

    def _hidden(self, workspace: str) -> list[str]:
        """What covers files and folders inside the workspace that are no command's business."""
        hidden = [os.path.realpath(path) for path in self._policy().hidden]
        inside = [path for path in hidden if path.startswith(workspace + "/")]
        return [
            f"type=tmpfs,{_field('target', path)}"
            if os.path.isdir(path)  # noqa: PTH112 - a text already
            else f"type=bind,source={os.devnull},{_field('target', path)},readonly"
            for path in inside
        ]

    def _policy(self) -> Policy:
        from hermes.exec.sandbox import standard

        site = self._site
        return standard("workspace-write", site.workspace, site.home, site.user_home)

    async def _is_open(self) -> bool:
        """Whether a container that is not ours reaches more than the workspace."""
        import json

        status, text, _ = await self._docker("inspect", "--type", "container", self._container)
        if status:
            return True
        facts: dict[str, Any] = json.loads(text)[0]
        host = facts["HostConfig"]
        workspace = _real(self._site.workspace)
        shared = [Path(m.get("Source", "/")) for m in facts["Mounts"] if m.get("Type") == "bind"]
        return (
            host["NetworkMode"] != "none"
            or host["Privileged"]
            or bool(host.get("CapAdd") or host.get("Devices"))
            or "host" in (host.get("PidMode"), host.get("IpcMode"), host.get("UsernsMode"))
            or not all(path.is_relative_to(workspace) for path in shared)
        )

    async def _sweep(self) -> None:
        """Remove what agents of this machine left that are dead, however they died."""
        known = f"label={_MACHINE}={_machine()}"
        shown = '{{.ID}} {{.Label "' + _OWNER + '"}}'
        _, text, _ = await self._docker("ps", "-a", "--filter", known, "--format", shown)
        rows = [line.partition(" ") for line in text.splitlines()]
        dead = [name for name, _, owner in rows if owner and not _lives(owner)]
        if dead:
            await self._docker("rm", "-f", *dead)

    def _facts(self) -> list[str]:
        settings = self._settings
        if settings.container:
            return []
        network = "no network" if settings.network == "none" else f"network {settings.network}"
        return [network, f"{settings.memory} memory", f"{settings.pids} processes"]

    # Commands

    def _mark(self) -> str:
        self._count += 1
        return f"{self._agent}.{self._count}."

    def _exec(
        self, mark: str, command: Command, script: str, options: Sequence[str] = ()
    ) -> Command:
        text = command.text
        if not isinstance(text, str):
            raise ToolError("Only shell commands run in a container.")
        if len(text.encode("utf-8", "surrogateescape")) > MAX_COMMAND:
            raise ToolError("The command is too long (128 KB): write it to a file and run that.")
        if "\0" in text:
            raise ToolError("The command contains a NUL character; nothing was run.")
        argv = self._argv("exec", *options, self._container, "/bin/sh", "-c", script, "hermes")
        words = (*argv, mark, str(command.cwd), text, *passed_on(command.env))
        return structs.replace(self._local(words), pty=command.pty)

    async def _end(self, mark: str, root: int) -> None:
        own = "" if self._settings.container else "yes"
        words = (self._container, "/bin/sh", "-c", END, "hermes", mark, str(root or ""), own)
        status, _, _ = await self._docker("exec", *words, seconds=END_SECONDS)
        if status and own and self._lifeline.alive:  # not even that could be started in it
            await self._docker("rm", "-f", self._container)
            await self._lifeline.close()

    async def _docker(self, *words: str, seconds: float = 30) -> tuple[int, str, str]:
        return await ask(self._local(self._argv(*words)), self._spill, seconds)

    def _argv(self, *words: str) -> tuple[str, ...]:
        program = shutil.which("docker", path=self._site.client_env.get("PATH", os.defpath))
        if program is None:
            raise ToolError(
                "terminal.backend is docker, but there is no program `docker` here: install it, "
                "or set terminal.backend to local. Nothing was run."
            )
        return (program, *words)

    def _local(self, argv: tuple[str, ...]) -> Command:
        return Command(argv, Path("/"), self._site.client_env, LONG)

    def _explain(self, complaint: str) -> str:
        low = complaint.lower()
        names = {"image": self._settings.image, "container": self._container}
        for sign, sentence in _REASONS:
            if sign in low:
                return sentence.format(**names)
        lines = [line for line in complaint.splitlines() if "--help" not in line and line.strip()]
        return f"Docker: {lines[-1].strip()[:300]}" if lines else "Docker did not start it."


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _bind(path: str, *, writable: bool = False) -> str:
    both = f"{_field('source', path)},{_field('target', path)}"
    return f"type=bind,{both}" + ("" if writable else ",readonly")


def _field(name: str, value: str) -> str:
    """One field of a line of CSV."""
    text = f"{name}={value}"
    if not set(text) & set(',"\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _machine() -> str:
    """This machine and namespace of processes: only here a process number means something."""
    from hashlib import blake2b

    facts = [os.uname().nodename, str(os.getuid())]
    for path in ("/etc/machine-id", "/proc/self/ns/pid"):
        try:
            facts.append(
                os.readlink(path) if "/ns/" in path else Path(path).read_text(encoding="ascii")  # noqa: PTH115
            )
        except (OSError, ValueError):
            facts.append("")
    return blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()


def _owner(pid: int) -> str:
    """A process, so that another one with its number is not taken for it; empty: it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
        return f"{pid}-{stat.rpartition(b')')[2].split()[19].decode()}-{boot}"
    except OSError:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return ""
        except PermissionError:
            pass
        return str(pid) if not Path("/proc/self/stat").exists() else ""


def _lives(owner: str) -> bool:
    pid = owner.partition("-")[0]
    return pid.isdecimal() and _owner(int(pid)) == owner
