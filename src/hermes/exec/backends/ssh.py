"""Commands on another machine, through the user's own OpenSSH client and one shared connection."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from hermes.config.paths import private_folder
from hermes.config.schema import Ssh as SshSettings
from hermes.core.errors import ToolError
from hermes.exec.backends.base import Site
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
from hermes.exec.backends.remote_scripts import END, RUN, RUN_BARE, RUN_SHOWN, WARDEN
from hermes.exec.process.local import MAX_COMMAND, Command, Outcome
from hermes.exec.process.output_capture import Capture

_SOCKET = 80
"""Most bytes of our socket's path: the system allows some 100, of which ssh adds 17 for a while."""
_NEVER = """
    BatchMode=yes ClearAllForwardings=yes ForwardAgent=no ForwardX11=no PermitLocalCommand=no
    RemoteCommand=none EscapeChar=none Tunnel=no LogLevel=ERROR
""".split()
_ALIVE = ("ServerAliveInterval=15", "ServerAliveCountMax=4")
_REASONS = (
    ("remote host identification has changed", "The key of {host} is not the one known from "
     "before: somebody may be in between. If the change is known, `ssh-keygen -R {host}`, and "
     "connect once by hand."),
    ("host key verification failed", "The key of {host} is not known: connect once by hand "
     "(`ssh {host}`) and check it."),
    ("unprotected private key", "The key file may be read by others, so ssh does not use it: "
     "chmod 600."),
    ("permission denied (", "{host} does not accept us: no key it knows ({key})."),
    ("too many authentication failures", "{host} refused after too many keys: name the right one "
     "in terminal.ssh.key_file."),
    ("could not resolve hostname", "There is no host {host}: its name cannot be resolved."),
    ("connection refused", "{host} refuses connections: is its ssh server running, and the port "
     "right?"),
    ("timed out", "{host} does not answer."),
    ("no route to host", "{host} cannot be reached from here."),
    ("network is unreachable", "{host} cannot be reached from here."),
    ("session open refused", "{host} allows no more commands at once (MaxSessions)."),
    ("control socket", "The connection to {host} was lost."),
    ("connection closed", "{host} closed the connection."),
    ("connection reset", "{host} closed the connection."),
    ("bad configuration option", "The ssh configuration has an error: {last}"),
)  # fmt: skip


class SshBackend:
    """The connection is made by the first command and made anew when it was lost. What commands
    started is ended when it ends, for whatever reason."""

    def __init__(self, settings: SshSettings, site: Site) -> None:
        self._settings = settings
        self._site = site
        self._spill = site.home / "outputs"
        self._agent = secrets.token_hex(8)
        self._count = 0
        self._clients = Clients()
        self._lifeline = Lifeline(self._spill)
        self._opening = asyncio.Lock()
        self._socket = ""
        self._folder = ""

    @property
    def where(self) -> str:
        user = f"{self._settings.user}@" if self._settings.user else ""
        return f"on {user}{self._settings.host} over ssh"

    @property
    def folder(self) -> Path:
        return Path(self._settings.cwd)

    @property
    def workspace(self) -> Path:
        """As if our home were theirs: that is what a `~` in a command is taken for."""
        cwd = self._settings.cwd
        return self._site.user_home / (cwd.removeprefix("~").lstrip("/") if cwd[:1] == "~" else cwd)

    async def confined(self) -> bool:
        return False

    async def run(self, command: Command, out: Capture) -> Outcome:
        await self._ready()
        try:
            return await self._run(command, out)
        except Vanished:
            await self._lifeline.close()  # the connection was lost before anything was sent
        await self._ready()
        return await self._run(command, out)

    async def _run(self, command: Command, out: Capture) -> Outcome:
        mark = self._mark()

        async def end(root: int) -> None:
            await self._end(mark, root)

        if command.pty:
            client = self._client(("-tt",), RUN_SHOWN, mark, command)
            return await on_terminal(self._clients.start(client, out, out), command.timeout, end)
        client = self._client(("-n", "-T"), RUN, mark, command)
        call = Call(self._clients, client, mark, self._spill)
        where = f"{command.cwd} {self.where}"
        return await call.run(
            out,
            seconds=command.timeout,
            end=end,
            where=where,
            explain=self._explain,
            gone="control socket",
        )

    async def client(self, command: Command) -> Command:
        await self._ready()
        return self._client(("-tt" if command.pty else "-T",), RUN_BARE, self._mark(), command)

    async def end(self, client: Command) -> None:
        found = re.search(rf"{self._agent}\.\d+\.", client.text[-1])
        if found:
            await self._end(found[0], 0)

    async def check(self) -> str:
        await self._ready()
        return f"commands run {self.where} ({self._lifeline.greeting})"

    async def close(self) -> None:
        await self._clients.close()
        await self._lifeline.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""

    # The connection

    async def _ready(self) -> None:
        async with self._opening:
            if self._lifeline.alive:
                return
            await self._lifeline.close()
            self._place_socket()
            options = ["-M", "-T", "-o", "ControlPersist=no"]
            seconds = self._settings.connect_timeout
            options += ["-o", f"ConnectTimeout={max(1, round(seconds))}"]
            base = self._local(options, _script(WARDEN, self._agent))

            def client(stdin: int) -> Command:
                return structs.replace(base, stdin=stdin)

            await self._lifeline.open(client, seconds + 5, self._explain)

    def _place_socket(self) -> None:
        """In a folder of our own, in the home unless its path is too long for a socket."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        parent = self._site.home / "run" / "ssh"
        if len(os.fsencode(parent)) > _SOCKET - 14:
            self._folder = tempfile.mkdtemp(prefix="hermes-")
        else:
            private_folder(parent)
            _remove_stale(parent)
            self._folder = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent)
        self._socket = f"{self._folder}/s"

    # Commands

    def _mark(self) -> str:
        self._count += 1
        return f"{self._agent}.{self._count}."

    def _client(self, options: Sequence[str], script: str, mark: str, command: Command) -> Command:
        if not isinstance(command.text, str):
            raise ToolError("Only shell commands run on another machine.")
        if "\0" in command.text:
            raise ToolError("The command contains a NUL character; nothing was run.")
        folder = str(command.cwd)
        line = _script(script, mark, folder, command.text, *passed_on(command.env))
        if len(line.encode("utf-8", "surrogateescape")) > MAX_COMMAND:
            raise ToolError("The command is too long for one line over ssh (128 KB when written "
                            "out): make it shorter.")  # fmt: skip
        return structs.replace(self._joined(options, line), pty=command.pty)

    async def _end(self, mark: str, root: int) -> None:
        """Over a second session. Where that fails the connection is gone, and the far end of it
        has ended everything."""
        if not self._lifeline.alive:
            return
        client = self._joined(("-n",), _script(END, mark, str(root or ""), ""))
        await ask(client, self._spill, END_SECONDS)

    def _joined(self, options: Sequence[str], line: str) -> Command:
        """Over the connection that is there, or not at all."""
        return self._local((*options, "-o", "ControlMaster=no", "-o", "ProxyCommand=false"), line)

    def _local(self, options: Sequence[str], line: str) -> Command:
        settings = self._settings
        program = shutil.which("ssh", path=self._site.client_env.get("PATH", os.defpath))
        if program is None:
            raise ToolError(
                "terminal.backend is ssh, but there is no program `ssh` here: install OpenSSH's "
                "client, or set terminal.backend to local. Nothing was run."
            )
        argv = [program, *options, "-S", self._socket.replace("%", "%%"), "-a", "-x"]
        for option in (*_NEVER, *_ALIVE):
            argv += ["-o", option]
        if settings.port:
            argv += ["-p", str(settings.port)]
        if settings.user:
            argv += ["-l", settings.user]
        if settings.key_file:
            key = Path(settings.key_file).expanduser()
            argv += ["-i", str(key), "-o", "IdentitiesOnly=yes"]
        return Command((*argv, "--", settings.host, line), Path("/"), self._site.client_env, LONG)

    def _explain(self, complaint: str) -> str:
        low = complaint.lower()
        lines = [line.strip() for line in complaint.splitlines() if line.strip()] or [""]
        names = {
            "host": self._settings.host,
            "key": self._settings.key_file or "those of your ssh configuration and agent",
            "last": lines[0][:200],
        }
        for sign, sentence in _REASONS:
            if sign in low:
                return sentence.format(**names)
        return f"ssh: {lines[-1][:300]}" if lines[-1] else f"{self._settings.host} ended it."


def _script(text: str, *arguments: str) -> str:
    """A line that any login shell (also csh and fish) hands on to sh unchanged: everything that
    one of them might read differently is written as octal numbers."""
    whole = f"set -- {shlex.join(arguments)}\n{text}"
    return f"""exec /bin/sh -c 'eval "$(printf %b "$1")"' hermes '{_octal(whole)}'"""


def _octal(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(b) if chr(b) in _SAFE else f"\\0{b:03o}" for b in raw)


_SAFE = frozenset(
    'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "#$%&()*+,-./:;<=>?@[]^_`{|}~'
)


def _remove_stale(parent: Path) -> None:
    """Folders of agents that died without a chance to clean up."""
    for folder in parent.iterdir():
        pid = folder.name.partition("-")[0]
        if pid.isdecimal() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)
