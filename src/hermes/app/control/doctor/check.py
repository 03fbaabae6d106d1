"""The result of one check."""

from typing import Literal, TypeAlias

from msgspec import Struct

CheckState: TypeAlias = Literal["ok", "note", "failed"]


class Check(Struct, frozen=True):
    name: str
    state: CheckState
    text: str
    details: tuple[str, ...] = ()
