"""The services that the runtime provides to the tools of a session."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from hermes.config.schema import BrowserSection as BrowserSettings
from hermes.core.errors import ToolError
from hermes.core.services import ServiceKey
from hermes.core.store import Store
from hermes.core.tool import ToolContext

if TYPE_CHECKING:
    from hermes.exec.backends import CommandBackend
    from hermes.exec.process.background import BackgroundProcesses, ProcessOwner
    from hermes.net.web_access import WebAccess


class RefusedHost(NamedTuple):
    """A host that the egress proxy refused, and when by the monotonic clock."""

    host: str
    port: int
    at: float


STORE: ServiceKey[Store] = ServiceKey("store")
OPEN_WEB: ServiceKey[Callable[[], WebAccess]] = ServiceKey("web")
"""Opens the process's only access to the web, when it is first needed."""
PROCESSES: ServiceKey[Callable[[str], tuple[BackgroundProcesses, ProcessOwner]]] = ServiceKey(
    "processes"
)
"""The background commands that the session with this id may see."""
BACKEND: ServiceKey[CommandBackend] = ServiceKey("backend")
"""Where commands run; not set: on this machine."""
REFUSED_HOSTS: ServiceKey[Collection[RefusedHost]] = ServiceKey("refused hosts")
"""The hosts that were not granted and that commands wanted lately, the latest last."""
BROWSER_SETTINGS: ServiceKey[BrowserSettings] = ServiceKey("browser settings")


def require_web(ctx: ToolContext) -> WebAccess:
    open_web = ctx.services.get(OPEN_WEB)
    if open_web is None:
        raise ToolError("This session has no access to the web.")
    return open_web()
