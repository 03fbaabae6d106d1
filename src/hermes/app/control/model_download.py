"""Downloads of embedded models, and how far each is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from hermes.config.env import get_environment
from hermes.config.packages.index import list_indexes
from hermes.config.paths import models_folders
from hermes.core.errors import HermesError
from hermes.llm.local.models import LocalModel
from hermes.llm.local.puller import Puller, PullProgress

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.app.runtime import Runtime
    from hermes.llm.http.transport import Transport


async def pull_model(
    model: LocalModel,
    transport: Transport,
    report: Callable[[PullProgress], None],
    read_variable: Callable[[str], str | None] | None = None,
) -> Path:
    """The file of the model, downloaded unless it is there."""
    environ = get_environment()
    folder = models_folders(read_variable or environ.get)[0]
    return await Puller(folder, transport, list_indexes(environ), report).pull(model)


class ModelDownload(Struct):
    name: str
    total: int
    """Bytes of the model."""
    done: int = 0
    state: Literal["running", "done", "failed"] = "running"
    note: str = ""
    error: str | None = None

    def note_progress(self, progress: PullProgress) -> None:
        self.done, self.note = progress.done, progress.note


class ModelDownloads:
    """The downloads that pages asked for; each model is downloaded once at a time."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._downloads: dict[str, ModelDownload] = {}

    @property
    def latest(self) -> list[ModelDownload]:
        """Of each model the last one."""
        return list(self._downloads.values())

    def start_download(self, model: LocalModel) -> ModelDownload:
        found = self._downloads.get(model.name)
        if found is None or found.state != "running":
            found = self._downloads[model.name] = ModelDownload(model.name, model.size)
            self._runtime.spawn_task(self._run(model, found), f"download {model.name}")
        return found

    async def _run(self, model: LocalModel, download: ModelDownload) -> None:
        read_variable = self._runtime.setup.secrets.get
        transport, report = self._runtime.transport, download.note_progress
        try:
            await pull_model(model, transport, report, read_variable)
        except HermesError as error:
            download.state, download.error = "failed", str(error)
        else:
            download.state, download.done = "done", download.total
