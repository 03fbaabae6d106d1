"""The JSON answers of the routes: handlers build these Structs, OpenAPI describes them.

Fields are in the order in which they are sent.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct

RunStatus: TypeAlias = Literal[
    "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled"
]


class HealthAnswer(Struct):
    status: Literal["ok"]
    platform: str


class DetailedHealth(HealthAnswer):
    gateway_state: str | None
    platforms: dict[str, dict[str, Any]]
    active_agents: int
    exit_reason: str | None
    updated_at: float
    pid: int


class ModelEntry(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    permission: list[Any]
    root: str
    parent: None


class ModelList(Struct):
    object: Literal["list"]
    data: list[ModelEntry]


class EndpointEntry(Struct):
    method: str
    path: str


class Capabilities(Struct):
    object: Literal["hermes.api_server.capabilities"]
    platform: str
    model: str
    auth: dict[str, Any]
    runtime: dict[str, Any]
    features: dict[str, bool | str]
    endpoints: dict[str, EndpointEntry]


class ObjectList(Struct):
    object: Literal["list"]
    data: list[dict[str, Any]]


class ObjectPage(ObjectList):
    has_more: bool


class DeletedObject(Struct):
    id: str
    object: str
    deleted: Literal[True]


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


class ChatChoice(Struct):
    index: int
    message: AssistantMessage
    finish_reason: Literal["stop", "length", "tool_calls", "error"]


class ChatUsage(Struct, omit_defaults=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None = None
    completion_tokens_details: dict[str, int] | None = None


class ChatCompletion(Struct, omit_defaults=True):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: ChatUsage
    hermes: IncompleteTurn | None = None


class AnthropicMessage(Struct, omit_defaults=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use"] | None
    stop_sequence: str | None
    usage: dict[str, int]
    hermes: IncompleteTurn | None = None


class TokenUsage(Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class ResponseUsage(Struct):
    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class ResponseError(Struct):
    code: str
    message: str


class ResponseObject(Struct):
    """Filled in while its turn runs."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    error: ResponseError | None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    metadata: dict[str, str]
    model: str
    output: list[dict[str, Any]]
    parallel_tool_calls: bool
    previous_response_id: str | None
    temperature: float | None
    tool_choice: Any
    tools: list[Any]
    top_p: float | None
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None


class RunStarted(Struct):
    run_id: str
    status: Literal["started"]


class RunStatusAnswer(Struct):
    run_id: str
    status: str


class ApprovalAnswer(Struct, omit_defaults=True):
    run_id: str
    choice: Literal["once", "session", "always", "deny"]
    applied: Literal["once"] | None = None
    """Present when it could not be granted for longer."""


class RunObject(Struct, omit_defaults=True):
    object: Literal["hermes.run"]
    run_id: str
    session_id: str
    model: str
    created_at: float
    updated_at: float
    status: RunStatus
    last_event: str
    output: str | None = None
    usage: TokenUsage | None = None
    error: str | None = None


class SessionObject(Struct):
    id: str
    object: Literal["hermes.session"]
    title: str
    source: str
    model: str
    state: str
    parent: str | None
    created_at: float
    updated_at: float
    message_count: int


class SessionPage(Struct):
    object: Literal["list"]
    data: list[SessionObject]
    has_more: bool


class SessionChatAnswer(Struct, omit_defaults=True):
    session_id: str
    message: AssistantMessage
    usage: ResponseUsage
    hermes: IncompleteTurn | None = None
