"""Runs commands in a container: one for each session, which shares only the workspace."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec import structs

from hermes.config.schema import DockerSection as DockerSettings
from hermes.core.errors import ToolError
from hermes.exec.backends import remote
from hermes.exec.backends.base import BackendSession
from hermes.exec.backends.docker_container import DockerContainer
from hermes.exec.backends.remote import BackendGone, ClientProcesses, RemoteCall
from hermes.exec.backends.remote_scripts import END_MARKED, RUN_BARE, RUN_ON_TERMINAL, RUN_REPORTED
from hermes.exec.process.local import MAX_COMMAND, CommandResult, CommandSpec
from hermes.exec.process.output_capture import OutputCapture

_RECREATED = b"[the container was gone and was made anew: only the workspace is kept]\n"
_GONE_PATTERN = "no such container|is not running"


class DockerBackend:
    """Runs, watches and ends commands in the session's container."""

    def __init__(self, settings: DockerSettings, site: BackendSession) -> None:
        self._settings = settings
        self._site = site
        self._spill = site.home / "outputs"
        self._container = DockerContainer(settings, site, self._spill)
        self._clients = ClientProcesses()
        self._count = 0

    @property
    def location(self) -> str:
        if self._settings.container:
            return f"in the container {self._settings.container}"
        return f"in a container of {self._settings.image}"

    @property
    def start_folder(self) -> Path:
        return self._site.workspace

    @property
    def workspace(self) -> Path:
        return self._site.workspace

    async def is_confined(self) -> bool:
        return await self._container.is_confined()

    async def run(self, command: CommandSpec, out: OutputCapture) -> CommandResult:
        if await self._container.ensure_running():
            out.feed(_RECREATED)
        try:
            return await self._run_once(command, out)
        except BackendGone:
            if self._container.is_external:
                raise
        await self._container.disconnect()  # somebody has just removed it
        await self._container.ensure_running()
        out.feed(_RECREATED)
        return await self._run_once(command, out)

    async def _run_once(self, command: CommandSpec, out: OutputCapture) -> CommandResult:
        mark = self._next_mark()
        end = partial(self._end_marked, mark)
        if command.pty:
            client = self._build_exec(mark, command, RUN_ON_TERMINAL, ("-t", "-i"))
            task = self._clients.start(client, out, out)
            return await remote.run_on_terminal(task, command.timeout, end)
        client = self._build_exec(mark, command, RUN_REPORTED)
        call = RemoteCall(self._clients, client, mark, self._spill)
        return await call.run(
            out,
            seconds=command.timeout,
            end=end,
            where=str(command.cwd),
            explain=self._container.explain_failure,
            gone=_GONE_PATTERN,
        )

    async def build_client(self, command: CommandSpec) -> CommandSpec:
        await self._container.ensure_running()
        options = ("-t", "-i") if command.pty else ("-i",)
        return self._build_exec(self._next_mark(), command, RUN_BARE, options)

    async def end_command(self, client: CommandSpec) -> None:
        await self._end_marked(client.text[client.text.index("hermes") + 1], 0)

    async def check_access(self) -> str:
        await self._container.remove_orphans()
        await self._container.ensure_running()
        facts = [self._container.greeting]
        settings = self._settings
        if not self._container.is_external:
            network = "no network" if settings.network == "none" else f"network {settings.network}"
            facts += [network, f"{settings.memory} memory", f"{settings.pids} processes"]
        return f"commands run {self.location} ({', '.join(filter(None, facts))})"

    async def close(self) -> None:
        await self._clients.close()
        await self._container.close()

    def _next_mark(self) -> str:
        self._count += 1
        return f"{self._container.agent}.{self._count}."

    def _build_exec(
        self, mark: str, command: CommandSpec, script: str, options: Sequence[str] = ()
    ) -> CommandSpec:
        text = command.text
        if not isinstance(text, str):
            raise ToolError("Only shell commands run in a container.")
        if len(text.encode("utf-8", "surrogateescape")) > MAX_COMMAND:
            raise ToolError("The command is too long (128 KB): write it to a file and run that.")
        if "\0" in text:
            raise ToolError("The command contains a NUL character; nothing was run.")
        shell = (self._container.name, "/bin/sh", "-c", script, "hermes")
        given = (mark, str(command.cwd), text, *remote.select_forwarded(command.env))
        client = self._container.build_exec(*options, *shell, *given)
        return structs.replace(client, pty=command.pty)

    async def _end_marked(self, mark: str, root: int) -> None:
        """End what was started under this mark; `root` is its first process, if known."""
        orphans = "" if self._container.is_external else "yes"
        words = ("/bin/sh", "-c", END_MARKED, "hermes", mark, str(root or ""), orphans)
        status, _, _ = await self._container.run_docker(
            "exec", self._container.name, *words, seconds=remote.END_SECONDS
        )
        if status:
            await self._container.remove_stuck()
