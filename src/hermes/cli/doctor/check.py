"""One thing that was looked at, and what was found."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

State: TypeAlias = Literal["ok", "note", "failed"]


class Check(Struct, frozen=True):
    name: str
    state: State
    text: str
    details: tuple[str, ...] = ()
