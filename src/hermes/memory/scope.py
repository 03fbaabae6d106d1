"""Whose memory a session reads and writes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from hermes.config.paths import memories_folder
from hermes.core.services import ServiceKey
from hermes.core.store import WEB_SOURCE, FactTarget

if TYPE_CHECKING:
    from hermes.memory.session_memory import SessionMemory

MEMORY: ServiceKey[Callable[[], SessionMemory]] = ServiceKey("memory")
"""Opens the memory of the session; not set: it has none."""
PROFILE = "profile"
"""The scope of the person who runs the agent."""
LOCAL_SOURCES = frozenset({"cli", "library", "acp", "cron"})
_READ_ONLY_SOURCES = frozenset({"cron"})
_WITHOUT_MEMORY = frozenset({"webhook", "subagent", "batch"})
_FILES: dict[FactTarget, str] = {"memory": "MEMORY.md", "user": "USER.md"}
_CHAT_KEY = "agent:"
_API = "api"


class MemoryScope(Struct, frozen=True):
    """The scopes of a session's notes about the work and about the user."""

    memory: str
    user: str = ""
    """Empty: several people talk in it, so nothing is noted about a user."""
    writable: bool = True

    @property
    def targets(self) -> tuple[FactTarget, ...]:
        return ("user", "memory") if self.user else ("memory",)

    def get_name(self, target: FactTarget) -> str:
        return self.user if target == "user" else self.memory

    @property
    def pairs(self) -> list[tuple[str, FactTarget]]:
        """Each target with the scope it is in."""
        return [(self.get_name(target), target) for target in self.targets]


PROFILE_SCOPE = MemoryScope(PROFILE, PROFILE)


def choose_scope(
    source: str, key: str, *, user: str = "", owners: Collection[str] = ()
) -> MemoryScope | None:
    """The scope of a session; None: it has no memory. `user` is the sender's id on a platform; in a
    group a key that ends with it belongs to that person alone."""
    if source in LOCAL_SOURCES:
        return MemoryScope(PROFILE, PROFILE, writable=source not in _READ_ONLY_SOURCES)
    if source == WEB_SOURCE and not key.partition("/")[0]:
        return PROFILE_SCOPE  # the operator in a browser
    if source in _WITHOUT_MEMORY or not key:
        return None
    if source == _API:
        named = bool(key.partition("/")[2])
        return MemoryScope(f"{source}/{key}", f"{source}/{key}") if named else None
    if not key.startswith(_CHAT_KEY):
        return MemoryScope(f"{source}/{key}")
    kind, chat, *others = [*key.split(":")[3:], "", ""]
    if kind == "dm":
        person = f"{source}:{user or _unescape(chat)}"
        return PROFILE_SCOPE if person in owners else MemoryScope(key, person)
    is_own = bool(user) and _unescape([part for part in others if part][-1:]) == user
    return MemoryScope(key, key if is_own else "")


def _unescape(part: str | list[str]) -> str:
    text = "".join(part)
    return text.replace("%3A", ":").replace("%25", "%")


def find_folder(home: Path, scope: str) -> Path:
    """The folder of a scope's files, without creating it."""
    folder = memories_folder(home)
    if scope == PROFILE:
        return folder
    return folder / "scopes" / hash_scope(scope)


def hash_scope(scope: str) -> str:
    return hashlib.sha256(scope.encode("utf-8", "replace")).hexdigest()[:16]


def find_file(home: Path, scope: str, target: FactTarget) -> Path:
    return find_folder(home, scope) / _FILES[target]


def has_memory(home: Path, scope: MemoryScope) -> bool:
    """Whether anything was ever noted in this scope; looks at the file system only."""
    return any(os.path.isdir(find_folder(home, name)) for name, _ in scope.pairs)  # noqa: PTH112
