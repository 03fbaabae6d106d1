"""Runs commands on another machine over one shared connection of the user's OpenSSH client."""

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs
from typing_extensions import override

from hermes.config.paths import make_private_folder
from hermes.config.schema import SshSection as SshSettings
from hermes.core.errors import ToolError
from hermes.exec.backends import remote, remote_scripts
from hermes.exec.backends.remote import CommandBackend, Lifeline
from hermes.exec.backends.session import BackendSession
from hermes.exec.process.local import MAX_COMMAND, CommandSpec
from hermes.exec.process.output_capture import OutputCapture

_MAX_SOCKET_PATH = 80
"""Most bytes in the path of the control socket: of about 100, ssh needs 17 for itself."""
_FIXED_OPTIONS = """
    BatchMode=yes ClearAllForwardings=yes ForwardAgent=no ForwardX11=no PermitLocalCommand=no
    RemoteCommand=none EscapeChar=none Tunnel=no LogLevel=ERROR
""".split()
_KEEPALIVE_OPTIONS = ("ServerAliveInterval=15", "ServerAliveCountMax=4")


class SshBackend(CommandBackend):
    """Connects for the first command, and again when the connection was lost. Everything that
    commands started ends with the connection, for whatever reason that ends."""

    gone_pattern = "control socket"
    plain_options = ("-n", "-T")
    input_options = ("-T",)
    terminal_options = ("-tt",)

    def __init__(self, settings: SshSettings, site: BackendSession) -> None:
        super().__init__(site)
        self._settings = settings
        self._lifeline = Lifeline(site.outputs)
        self._opening = asyncio.Lock()
        self._socket = ""
        self._socket_folder = ""

    @property
    @override
    def location(self) -> str:
        user = f"{self._settings.user}@" if self._settings.user else ""
        return f"on {user}{self._settings.host} over ssh"

    @property
    @override
    def start_folder(self) -> Path:
        return Path(self._settings.cwd)

    @property
    @override
    def workspace(self) -> Path:
        """Resolved as if the remote home were ours, because `~` in a command is judged that way."""
        cwd = self._settings.cwd
        return self._site.user_home / (cwd.removeprefix("~").lstrip("/") if cwd[:1] == "~" else cwd)

    @override
    async def is_confined(self) -> bool:
        return False

    @override
    async def check_access(self) -> str:
        await self._connect()
        return f"commands run {self.location} ({self._lifeline.greeting})"

    @override
    async def close(self) -> None:
        await self._stop_clients()
        await self._lifeline.close()
        if self._socket_folder:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
            self._socket_folder = ""

    # The connection

    @override
    async def _connect(self, out: OutputCapture | None = None) -> None:
        async with self._opening:
            if self._lifeline.is_alive:
                return
            await self._lifeline.close()
            self._choose_socket_path()
            options = ["-M", "-T", "-o", "ControlPersist=no"]
            seconds = self._settings.connect_timeout
            options += ["-o", f"ConnectTimeout={max(1, round(seconds))}"]
            line = encode_script(remote_scripts.END_WITH_AGENT, self._agent)
            client = self._build_ssh(options, line)
            await self._lifeline.open(client, seconds + 5, self._explain_failure)

    @override
    async def _disconnect(self) -> bool:
        await self._lifeline.close()
        return True

    def _choose_socket_path(self) -> None:
        """Create a private folder for the socket, in the agent's home if the path is short."""
        if self._socket_folder:
            shutil.rmtree(self._socket_folder, ignore_errors=True)
        parent = self._site.home / "run" / "ssh"
        if len(os.fsencode(parent)) > _MAX_SOCKET_PATH - 14:
            self._socket_folder = tempfile.mkdtemp(prefix="hermes-")
        else:
            make_private_folder(parent)
            _remove_stale(parent)
            self._socket_folder = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent)
        self._socket = f"{self._socket_folder}/s"

    # Commands

    @override
    def _build_session(
        self, options: Sequence[str], script: str, mark: str, command: CommandSpec
    ) -> CommandSpec:
        text = self._require_text(command)
        env = remote.select_forwarded(command.env)
        line = encode_script(script, mark, str(command.cwd), text, *env)
        if len(line.encode("utf-8", "surrogateescape")) > MAX_COMMAND:
            raise ToolError("The command is too long for ssh (128 KB when encoded): make it "
                            "shorter.")  # fmt: skip
        return structs.replace(self._join_connection(options, line), pty=command.pty)

    @override
    async def _end_marked(self, mark: str, root: int) -> None:
        """End a command over a second session. Where that fails the connection is gone, and its
        remote end has ended everything."""
        if not self._lifeline.is_alive:
            return
        line = encode_script(remote_scripts.END_MARKED, mark, str(root or ""), "")
        client = self._join_connection(("-n",), line)
        await remote.run_client(client, self._site.outputs, remote.END_SECONDS)

    def _join_connection(self, options: Sequence[str], line: str) -> CommandSpec:
        """Use the existing connection, or fail."""
        fixed = ("-o", "ControlMaster=no", "-o", "ProxyCommand=false")
        return self._build_ssh((*options, *fixed), line)

    def _build_ssh(self, options: Sequence[str], line: str) -> CommandSpec:
        settings = self._settings
        program = remote.find_client("ssh", self._site.client_env)
        argv = [program, *options, "-S", self._socket.replace("%", "%%"), "-a", "-x"]
        for option in (*_FIXED_OPTIONS, *_KEEPALIVE_OPTIONS):
            argv += ["-o", option]
        if settings.port:
            argv += ["-p", str(settings.port)]
        if settings.user:
            argv += ["-l", settings.user]
        if settings.key_file:
            key = Path(settings.key_file).expanduser()
            argv += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
        argv += ["--", settings.host, line]
        env = self._site.client_env
        return CommandSpec(tuple(argv), Path("/"), env, remote.UNLIMITED_SECONDS)

    @override
    def _explain_failure(self, complaint: str) -> str:
        lines = [line.strip() for line in complaint.splitlines() if line.strip()] or [""]
        names = {
            "host": self._settings.host,
            "key": self._settings.key_file or "those of your ssh configuration and agent",
            "last": lines[0][:200],
        }
        if reason := remote.find_reason("ssh", complaint, names):
            return reason
        return f"ssh: {lines[-1][:300]}" if lines[-1] else f"{names['host']} ended the connection."


def encode_script(text: str, *arguments: str) -> str:
    """A line that any login shell, also csh and fish, passes to sh unchanged: characters that one
    of them might interpret are written as octal numbers."""
    raw = f"set -- {shlex.join(arguments)}\n{text}".encode("utf-8", "surrogateescape")
    octal = "".join(chr(b) if chr(b) in _SAFE_CHARACTERS else f"\\0{b:03o}" for b in raw)
    return f"""exec /bin/sh -c 'eval "$(printf %b "$1")"' hermes '{octal}'"""


_SAFE_CHARACTERS = frozenset(
    'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "#$%&()*+,-./:;<=>?@[]^_`{|}~'
)


def _remove_stale(parent: Path) -> None:
    """Remove the folders of agents that were killed."""
    for folder in parent.iterdir():
        pid = folder.name.partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)
