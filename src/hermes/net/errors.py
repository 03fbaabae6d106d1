"""The error of everything that fetches."""

from hermes.core.errors import ToolError


class EgressError(ToolError):
    """A fetch that was refused or failed; the message is one sentence for the model."""


class UnknownHostError(EgressError):
    """A name without an address."""
