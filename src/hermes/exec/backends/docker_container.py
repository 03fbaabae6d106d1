"""Creates, checks and removes the Docker container of one session."""

import asyncio
import json
import os
import secrets
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from hermes.config.schema import DockerSection as DockerSettings
from hermes.exec.backends.remote import (
    UNLIMITED_SECONDS,
    Lifeline,
    find_client,
    find_reason,
    run_client,
)
from hermes.exec.backends.remote_scripts import CONTAINER_INIT, END_WITH_AGENT
from hermes.exec.backends.session import BackendSession
from hermes.exec.process.local import CommandSpec
from hermes.exec.sandbox import SandboxPolicy, build_policy
from hermes.exec.sandbox.protected_paths import PathGuards, plan_guards

_START_SECONDS = 60.0
_MACHINE_LABEL, _OWNER_LABEL = "hermes.machine", "hermes.owner"
"""Labels of a container: the machine its agent runs on, and the agent's process."""
_SECURITY_OPTIONS = ("info", "--format", "{{.SecurityOptions}}")


class ContainerMount(Struct, frozen=True):
    """A path of this machine inside a container. Without a source: an empty folder in memory."""

    source: str
    target: str
    writable: bool = False

    def move_target(self, old: str, new: str) -> "ContainerMount":
        """The same below another folder."""
        return structs.replace(self, target=new + self.target.removeprefix(old))

    def format_option(self) -> str:
        if not self.source:
            return f"type=tmpfs,{_format_field('target', self.target)}"
        both = f"{_format_field('source', self.source)},{_format_field('target', self.target)}"
        return f"type=bind,{both}" + ("" if self.writable else ",readonly")


class DockerContainer:
    """Created by the first command, ended with the agent, and created again when somebody removed
    it. A container named in the settings is used as it is and never removed."""

    def __init__(self, settings: DockerSettings, site: BackendSession, agent: str) -> None:
        self._settings = settings
        self._site = site
        self._agent = agent
        self.name = settings.container or f"hermes-{agent}"
        self._lifeline = Lifeline(site.outputs)
        self._opening = asyncio.Lock()
        self._created = False
        self._rootless = False
        self._confined: bool | None = None

    @property
    def is_external(self) -> bool:
        """Whether the settings name the container, so that it is not ours to create or remove."""
        return bool(self._settings.container)

    @property
    def greeting(self) -> str:
        """Operating system and processor, as the container reported them."""
        return self._lifeline.greeting

    async def ensure_running(self) -> bool:
        """Create or join the container; True when it had to be created again."""
        async with self._opening:
            if self._lifeline.is_alive:
                return False
            again = self._created
            await self._lifeline.close()
            placeholders: tuple[str, ...] = ()
            if self.is_external:
                argv = self._find_docker("exec", "-i", self.name, "/bin/sh", "-c", END_WITH_AGENT)
                argv = (*argv, "hermes", self._agent)
            else:
                if not again:
                    await self.remove_orphans()
                    self._rootless = "rootless" in (await self.run_docker(*_SECURITY_OPTIONS))[1]
                self.name = f"hermes-{self._agent}-{secrets.token_hex(3)}"
                argv, placeholders = self._build_run()
            client = structs.replace(self._local_command(argv), placeholders=placeholders)
            await self._lifeline.open(client, _START_SECONDS, self.explain_failure)
            self._created = True
            return again and not self.is_external

    async def disconnect(self) -> None:
        """Forget a container that somebody else has removed."""
        await self._lifeline.close()

    async def remove_stuck(self) -> None:
        """Remove our container when not even a command that ends others can be started in it."""
        if not self.is_external and self._lifeline.is_alive:
            await self.run_docker("rm", "-f", self.name)
            await self._lifeline.close()

    async def close(self) -> None:
        await self._lifeline.close()
        if self._created and not self.is_external:
            self._created = False
            await self.run_docker("rm", "-f", self.name)

    async def remove_orphans(self) -> None:
        """Remove containers left by agents of this machine that no longer run."""
        known = f"label={_MACHINE_LABEL}={machine_label()}"
        shown = '{{.ID}} {{.Label "' + _OWNER_LABEL + '"}}'
        _, text, _ = await self.run_docker("ps", "-a", "--filter", known, "--format", shown)
        rows = [line.partition(" ") for line in text.splitlines()]
        dead = [name for name, _, owner in rows if owner and not _is_owner_alive(owner)]
        if dead:
            await self.run_docker("rm", "-f", *dead)

    async def is_confined(self) -> bool:
        """Whether its commands can reach nothing but the workspace."""
        if self._confined is None:
            if self.is_external:
                status, text, _ = await self.run_docker("inspect", "--type", "container", self.name)
                facts = {} if status else json.loads(text)[0]
                self._confined = not status and _is_isolated(facts, self._site.workspace)
            else:
                links = self._guard_paths().links
                self._confined = self._settings.network == "none" and not links
        return self._confined

    def _build_run(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The `docker run` command line, and the protected names that need placeholders."""
        settings, site = self._settings, self._site
        workspace = os.path.realpath(site.workspace)
        writable = site.mode != "read-only" and settings.workspace == "rw"
        placeholders: tuple[str, ...] = ()
        inner: list[ContainerMount] = []
        if writable and site.mode != "full-access":
            found = self._guard_paths()
            placeholders = found.placeholders
            writable = not found.barred
            inner = [ContainerMount(path, path) for path in (*found.read_only, *placeholders)]
            inner += [ContainerMount(path, path, writable) for path in found.pinned]
        mounts = [ContainerMount(workspace, workspace, writable), *inner]
        mounts += self._hide_paths(workspace)
        if settings.mirror:
            mounts += [mount.move_target(workspace, settings.mirror) for mount in mounts]
        argv = self._find_docker(
            "run", "--rm", "--interactive", "--pull", "never", "--name", self.name,
            *label_container(),
            "--network", settings.network, "--cap-drop", "ALL",
            "--security-opt", "no-new-privileges", "--ipc", "private",
            "--pids-limit", str(settings.pids), "--memory", settings.memory,
            "--memory-swap", settings.memory, "--cpus", f"{settings.cpus:g}",
            # In a rootless daemon, root is whoever runs the daemon.
            "--user", "0:0" if self._rootless else f"{os.getuid()}:{os.getgid()}",
            "--env", "HOME=/tmp",
            "--tmpfs", "/tmp:exec,nosuid,nodev,mode=1777",
            "--log-driver", "none", "--workdir", workspace, "--entrypoint", "/bin/sh",
        )  # fmt: skip
        for mount in mounts:
            argv += ("--mount", mount.format_option())
        return (*argv, settings.image, "-c", CONTAINER_INIT), placeholders

    def _guard_paths(self) -> PathGuards:
        """How the protected names are guarded; a mount cannot protect links (`links`) here."""
        policy = self._build_policy()
        return plan_guards(policy.workspace, policy.protected, policy.kept_missing)

    def _hide_paths(self, workspace: str) -> list[ContainerMount]:
        """Mounts that cover the hidden files and folders inside the workspace."""
        hidden = [os.path.realpath(path) for path in self._build_policy().hidden]
        inside = [path for path in hidden if path.startswith(workspace + "/")]
        return [
            ContainerMount("" if os.path.isdir(path) else os.devnull, path)  # noqa: PTH112 - a text
            for path in inside
        ]

    def _build_policy(self) -> SandboxPolicy:
        site = self._site
        return build_policy("workspace-write", site.workspace, site.home, site.user_home)

    # The docker program

    def build_exec(self, *words: str) -> CommandSpec:
        """The command on this machine that executes something in the container."""
        return self._local_command(self._find_docker("exec", *words))

    async def run_docker(self, *words: str, seconds: float = 30) -> tuple[int, str, str]:
        """Run docker to its end: status (-1: too slow), stdout, stderr."""
        client = self._local_command(self._find_docker(*words))
        return await run_client(client, self._site.outputs, seconds)

    def explain_failure(self, complaint: str) -> str:
        """What a message of the docker program means, and what to do about it."""
        names = {"image": self._settings.image, "container": self.name}
        if reason := find_reason("docker", complaint, names):
            return reason
        lines = [line for line in complaint.splitlines() if "--help" not in line and line.strip()]
        last = lines[-1].strip()[:300] if lines else ""
        return f"Docker: {last}" if last else "Docker did not start the command."

    def _find_docker(self, *words: str) -> tuple[str, ...]:
        return (find_client("docker", self._site.client_env), *words)

    def _local_command(self, argv: tuple[str, ...]) -> CommandSpec:
        return CommandSpec(argv, Path("/"), self._site.client_env, UNLIMITED_SECONDS)


def _is_isolated(facts: dict[str, Any], workspace: Path) -> bool:
    """Whether `docker inspect` shows a container that shares only the workspace."""
    host = facts["HostConfig"]
    shared = [Path(m.get("Source", "/")) for m in facts["Mounts"] if m.get("Type") == "bind"]
    return not (
        host["NetworkMode"] != "none"
        or host["Privileged"]
        or bool(host.get("CapAdd") or host.get("Devices"))
        or "host" in (host.get("PidMode"), host.get("IpcMode"), host.get("UsernsMode"))
        or not all(path.is_relative_to(os.path.realpath(workspace)) for path in shared)
    )


def _format_field(name: str, value: str) -> str:
    """One field of a mount specification, quoted as CSV."""
    text = f"{name}={value}"
    if not set(text) & set(',"\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def label_container() -> tuple[str, ...]:
    """Options that say whose a container is, so that nothing a killed process made stays."""
    machine = f"{_MACHINE_LABEL}={machine_label()}"
    return ("--label", machine, "--label", f"{_OWNER_LABEL}={owner_label(os.getpid())}")


def machine_label() -> str:
    """Identifies this machine and its PID namespace, in which process numbers hold."""
    facts = [os.uname().nodename, str(os.getuid()), "", ""]
    with suppress(OSError, ValueError):
        facts[2] = Path("/etc/machine-id").read_text(encoding="ascii")
    with suppress(OSError):
        facts[3] = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    return blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()


def owner_label(pid: int) -> str:
    """Identifies a process even after its number is reused; empty: there is no such process."""
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


def _is_owner_alive(owner: str) -> bool:
    pid = owner.partition("-")[0]
    return pid.isdecimal() and owner_label(int(pid)) == owner
