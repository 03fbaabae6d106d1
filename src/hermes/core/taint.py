"""What a session has read: private data, untrusted text, or both."""

# `private`: the conversation contains data of the user. `untrusted`: it contains text that neither
# the user nor this program wrote. With both, such text may be instructing the model to send the
# data away, so everything that sends out or persists beyond the workspace asks first. The bits are
# only ever set; a child session (compression, delegation, a branch) starts with its parent's, and a
# parent takes over its child's.
#
# What tools bring:
# - files, search and commands bring both. They are the user's data, but the author of a checkout, a
#   download or a log is unknown, so their text must not count as the user's instructions.
# - pages, the browser and MCP bring `untrusted`; memory and past sessions bring both, because what
#   was read then is quoted again.
# - writing and planning tools bring nothing: they answer with what the model wrote. `patch` brings
#   both, because it answers with the lines around a change.
# - what is piped in or attached by name brings both, and so does a client's history that holds more
#   than this server has recorded.
#
# What sends: everything that reaches the network with something the model chose (a query and an
# address are enough), messages, memory, skills and schedules. A command does, unless it runs
# without network and cannot write outside the workspace. Writing inside the workspace does not.

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct

Source: TypeAlias = Literal["private", "untrusted"]
BOTH: frozenset[Source] = frozenset({"private", "untrusted"})


class Taint(Struct, frozen=True):
    """What a session has read so far. There is no way to take a bit away."""

    private: bool = False
    untrusted: bool = False

    @classmethod
    def from_sources(cls, sources: Iterable[Source]) -> Taint:
        found = frozenset(sources)
        return cls("private" in found, "untrusted" in found)

    @classmethod
    def from_bits(cls, bits: int) -> Taint:
        return cls(bool(bits & 1), bool(bits & 2))

    @property
    def bits(self) -> int:
        return self.private | self.untrusted << 1

    @property
    def sources(self) -> tuple[Source, ...]:
        names: tuple[Source, ...] = ("private", "untrusted")
        return tuple(name for name in names if getattr(self, name))

    @property
    def can_leak(self) -> bool:
        """Whether untrusted text may be steering what happens to private data."""
        return self.private and self.untrusted

    def __or__(self, more: Taint) -> Taint:
        return Taint.from_bits(self.bits | more.bits)
