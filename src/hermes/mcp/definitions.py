"""Definitions of tools as servers send them: bounded, hashed and named."""

import hashlib
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

PREFIX = "mcp__"
MAX_TOOLS = 500
MAX_SCHEMA = 64 * 1024
MAX_DESCRIPTION = 1024
_MAX_NAME = 64
_HASH_LENGTH = 8
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]")


class ToolDefinition(Struct, frozen=True, dict=True, omit_defaults=True):
    """A tool of a server, as far as it is used here."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    read_only: bool = False
    idempotent: bool = False

    @cached_property
    def digest(self) -> str:
        """Changes with everything that a model is told about the tool."""
        parts = msgspec.json.encode([self.name, self.description, self.schema], order="sorted")
        return hashlib.sha256(parts).hexdigest()

    @property
    def is_repeatable(self) -> bool:
        """Whether a second call does no harm if the first one took effect."""
        return self.read_only or self.idempotent


def is_too_large(schema: dict[str, Any]) -> bool:
    """Whether a schema is larger than a tool may have."""
    return len(msgspec.json.encode(schema)) > MAX_SCHEMA


def name_tools(server: str, tools: Iterable[str]) -> dict[str, str]:
    """The name of each tool in this program: legal for every provider, unique, and the same in
    whatever order a server lists them."""
    names: dict[str, str] = {}
    for tool in sorted(tools, key=lambda tool: (_ILLEGAL.search(tool) is not None, tool)):
        whole = f"{PREFIX}{server}__{tool}"
        name = _ILLEGAL.sub("_", whole)
        if len(name) > _MAX_NAME or name in names.values():
            digest = hashlib.sha256(whole.encode()).hexdigest()[:_HASH_LENGTH]
            name = f"{name[: _MAX_NAME - _HASH_LENGTH - 1]}_{digest}"
        names[tool] = name
    return names
