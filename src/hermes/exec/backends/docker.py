"""Runs commands in a container: one for each session, which shares only the workspace."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs
from typing_extensions import override

from hermes.config.schema import DockerSection as DockerSettings
from hermes.exec.backends import remote
from hermes.exec.backends.docker_container import DockerContainer
from hermes.exec.backends.remote import CommandBackend
from hermes.exec.backends.remote_scripts import END_MARKED
from hermes.exec.backends.session import BackendSession
from hermes.exec.process.local import CommandSpec
from hermes.exec.process.output_capture import OutputCapture

_RECREATED = b"[the container was gone and was made anew: only the workspace is kept]\n"


class DockerBackend(CommandBackend):
    """Runs, watches and ends commands in the session's container."""

    gone_pattern = "no such container|is not running"
    plain_options = ()
    input_options = ("-i",)
    terminal_options = ("-t", "-i")

    def __init__(self, settings: DockerSettings, site: BackendSession) -> None:
        super().__init__(site)
        self._settings = settings
        self._container = DockerContainer(settings, site, self._agent)

    @property
    @override
    def location(self) -> str:
        if self._settings.container:
            return f"in the container {self._settings.container}"
        return f"in a container of {self._settings.image}"

    @property
    @override
    def workspace(self) -> Path:
        return self._site.workspace

    @override
    async def is_confined(self) -> bool:
        return await self._container.is_confined()

    @override
    async def _connect(self, out: OutputCapture | None = None) -> None:
        if await self._container.ensure_running() and out:
            out.feed(_RECREATED)

    @override
    async def _disconnect(self) -> bool:
        if not self._container.is_external:
            await self._container.disconnect()
        return not self._container.is_external

    @override
    async def check_access(self) -> str:
        await self._container.remove_orphans()
        await self._container.ensure_running()
        facts = [self._container.greeting]
        settings = self._settings
        if not self._container.is_external:
            network = "no network" if settings.network == "none" else f"network {settings.network}"
            facts += [network, f"{settings.memory} memory", f"{settings.pids} processes"]
        return f"commands run {self.location} ({', '.join(filter(None, facts))})"

    @override
    async def close(self) -> None:
        await self._stop_clients()
        await self._container.close()

    @override
    def _build_session(
        self, options: Sequence[str], script: str, mark: str, command: CommandSpec
    ) -> CommandSpec:
        shell = (self._container.name, "/bin/sh", "-c", script, "hermes")
        words = (*shell, mark, str(command.cwd), self._require_text(command))
        client = self._container.build_exec(*options, *words, *remote.select_forwarded(command.env))
        return structs.replace(client, pty=command.pty)

    @override
    async def _end_marked(self, mark: str, root: int) -> None:
        orphans = "" if self._container.is_external else "yes"
        words = ("/bin/sh", "-c", END_MARKED, "hermes", mark, str(root or ""), orphans)
        status, _, _ = await self._container.run_docker(
            "exec", self._container.name, *words, seconds=remote.END_SECONDS
        )
        if status:
            await self._container.remove_stuck()

    @override
    def _explain_failure(self, complaint: str) -> str:
        return self._container.explain_failure(complaint)
