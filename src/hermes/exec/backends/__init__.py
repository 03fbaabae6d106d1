"""Where commands run when it is not this machine: a container or another host."""

from hermes.config.schema import TerminalSection
from hermes.exec.backends.docker import DockerBackend
from hermes.exec.backends.remote import CommandBackend
from hermes.exec.backends.session import BackendSession
from hermes.exec.backends.ssh import SshBackend

__all__ = ["BackendSession", "CommandBackend", "open_backend"]


def open_backend(settings: TerminalSection, site: BackendSession) -> CommandBackend | None:
    """The backend named in the settings; None when commands run on this machine."""
    match settings.backend:
        case "docker":
            return DockerBackend(settings.docker, site)
        case "ssh":
            return SshBackend(settings.ssh, site)
        case _:
            return None
