"""The services that the runtime provides to the tools of a session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hermes.config.schema import BrowserSection as BrowserSettings
from hermes.core.errors import ToolError
from hermes.core.message import Media
from hermes.core.services import ServiceKey
from hermes.core.store import Store
from hermes.core.tool import ToolContext

if TYPE_CHECKING:
    from pathlib import Path

    from hermes.exec.backends import CommandBackend
    from hermes.exec.process.background import BackgroundProcesses, ProcessOwner
    from hermes.net.web_access import WebAccess


class RefusedHost(NamedTuple):
    """A host that the egress proxy refused, and when by the monotonic clock."""

    host: str
    port: int
    at: float


class PlannedChange(Protocol):
    """A change to the schedule that a person can judge before it is made."""

    @property
    def reason(self) -> str:
        """What it does, as a clause."""

    @property
    def text(self) -> str:
        """Everything about it."""

    async def apply(self) -> dict[str, Any]:
        """Make it; what the model is told."""


class ScheduleAccess(Protocol):
    """The jobs of the schedule. ConfigError for what cannot work."""

    async def list_jobs(self) -> list[dict[str, Any]]: ...

    async def plan_change(
        self, action: str, job: str, wishes: Mapping[str, Any]
    ) -> PlannedChange: ...


class ChatAccess(Protocol):
    """The chats of messengers that the owner may reach. ToolError for any other."""

    async def list_targets(self) -> list[str]: ...

    async def send(self, target: str, text: str) -> None: ...


class ServerAccess(Protocol):
    """The servers of a messenger that the bot is in. ToolError for what cannot be seen."""

    async def list_channels(self) -> list[dict[str, Any]]: ...

    async def find_members(self, name: str) -> list[dict[str, Any]]: ...

    async def read_messages(self, channel: str, count: int) -> list[dict[str, Any]]:
        """The oldest first."""


class MediaAccess(Protocol):
    """The models for pictures, speech and transcripts. ToolError when there is no result."""

    def has_model(self, job: str) -> bool:
        """Whether there is one for the job `image`, `speech` or `transcription`."""

    async def generate_image(self, prompt: str, size: str = "") -> Media:
        """The bytes of a picture, or its address."""

    async def synthesize_speech(self, text: str, voice: str = "", form: str = "mp3") -> Media: ...

    async def transcribe_audio(self, audio: Media) -> str: ...


class ClientFiles(Protocol):
    """The files of the workspace as the user's editor has them, unsaved changes included."""

    async def read_text(self, path: Path) -> str | None:
        """None: the editor does not offer the file."""

    async def write_text(self, path: Path, text: str) -> None:
        """Show and save a file that was written; nothing happens if the editor cannot."""


STORE: ServiceKey[Store] = ServiceKey("store")
CLIENT_FILES: ServiceKey[ClientFiles] = ServiceKey("client files")
"""Not set: no editor offers its files."""
MEDIA: ServiceKey[MediaAccess] = ServiceKey("media")
CHATS: ServiceKey[ChatAccess] = ServiceKey("chats")
"""Not set: no messenger is connected."""
OPEN_WEB: ServiceKey[Callable[[], WebAccess]] = ServiceKey("web")
"""Opens the process's only access to the web, when it is first needed."""
PROCESSES: ServiceKey[Callable[[str], tuple[BackgroundProcesses, ProcessOwner]]] = ServiceKey(
    "processes"
)
"""The background commands that the session with this id may see."""
BACKEND: ServiceKey[CommandBackend] = ServiceKey("backend")
"""Where commands run; not set: on this machine."""
OPEN_SCHEDULE: ServiceKey[Callable[[], ScheduleAccess]] = ServiceKey("schedule")
"""Opens the schedule, when it is first needed."""
DISCOVER_TOOLS: ServiceKey[Callable[[], Awaitable[list[str]]]] = ServiceKey("tool discovery")
"""Finds tools that are not known before somebody searches; a sentence for each failure."""
SERVERS: ServiceKey[ServerAccess] = ServiceKey("servers")
"""Set in chats of administrators."""
REFUSED_HOSTS: ServiceKey[Collection[RefusedHost]] = ServiceKey("refused hosts")
"""The hosts that were not granted and that commands wanted lately, the latest last."""
BROWSER_SETTINGS: ServiceKey[BrowserSettings] = ServiceKey("browser settings")


def require_web(ctx: ToolContext) -> WebAccess:
    open_web = ctx.services.get(OPEN_WEB)
    if open_web is None:
        raise ToolError("This session has no access to the web.")
    return open_web()


def require_media(ctx: ToolContext) -> MediaAccess:
    media = ctx.services.get(MEDIA)
    if media is None:
        raise ToolError("This session has no models for media.")
    return media
