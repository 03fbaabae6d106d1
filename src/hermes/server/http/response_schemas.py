"""Structs of JSON answers that several routes share."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

RunStatus: TypeAlias = Literal[
    "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled"
]


class ObjectList(Struct):
    object: Literal["list"]
    data: list[dict[str, Any]]


class ObjectPage(ObjectList):
    has_more: bool


class DeletedObject(Struct):
    id: str
    object: str
    deleted: Literal[True]


class ActionAnswer(Struct):
    """What a change did, in sentences."""

    lines: list[str]


class IncompleteTurn(Struct):
    """Present when a turn did not complete."""

    completed: Literal[False]
    partial: Literal[True]
    failed: bool
    error: str
    error_code: str


class AssistantMessage(Struct, omit_defaults=True):
    role: Literal["assistant"]
    content: str | None
    tool_calls: list[dict[str, Any]] = []
    reasoning_content: str = ""


class TokenUsage(Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int
