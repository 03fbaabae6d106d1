"""The messengers as a server sees them, which does not know the gateway."""

from collections.abc import Sequence
from typing import Any, Protocol

from hermes.app.control.doctor.check import Check
from hermes.config.load import Setup


class Messengers(Protocol):
    """Reads the state of the gateway of this home, and decides who is let in."""

    def describe_gateway(self) -> dict[str, Any] | None:
        """The state that the gateway has written; None: it never ran."""

    def describe_platforms(self) -> list[dict[str, Any]]:
        """Every messenger: whether it is on, and how its connection is."""

    async def list_people(self, platform: str = "") -> list[dict[str, Any]]:
        """The people who were let in by a code, and those who wait."""

    async def approve_code(self, platform: str, code: str) -> str:
        """Let the owner of a code in and tell them; the sentence about it. ConfigError: nobody was
        let in."""

    async def revoke_user(self, platform: str, user: str) -> str:
        """Take the permission back; the sentence about it. ConfigError: they were not let in."""

    async def check_connections(self, setup: Setup) -> Sequence[Check]:
        """One real call with the token of each messenger that is on."""
