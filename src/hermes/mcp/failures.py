"""How work with a server can fail."""

from hermes.core.errors import ToolError


class ServerUnavailable(ToolError):
    """The server cannot be used now; the sentence says why."""


class LoginNeeded(ServerUnavailable):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} needs a login: hermes mcp login {name}.")


class LoginFailed(ServerUnavailable):
    """The server, or whoever it names for logins, gave no token."""


class BrokenConnection(Exception):
    """The connection ended while somebody waited for an answer."""


class SessionEnded(BrokenConnection):
    """The server has refused a request because it does not know the session any more; it did
    nothing."""
