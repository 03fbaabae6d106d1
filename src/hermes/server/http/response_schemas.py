"""The shapes of the main answers, for the OpenAPI document: what clients may rely on."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Health(Struct):
    status: Literal["ok"]
    platform: str


class DetailedHealth(Health):
    gateway_state: str | None
    platforms: dict[str, dict[str, Any]]
    active_agents: int
    exit_reason: str | None
    updated_at: float
    pid: int


class Model(Struct):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    permission: list[Any]
    root: str
    parent: None


class Models(Struct):
    object: Literal["list"]
    data: list[Model]


class Endpoint(Struct):
    method: str
    path: str


class Capabilities(Struct):
    object: Literal["hermes.api_server.capabilities"]
    platform: str
    model: str
    auth: dict[str, Any]
    runtime: dict[str, Any]
    features: dict[str, bool | str]
    endpoints: dict[str, Endpoint]


class Listed(Struct):
    object: Literal["list"]
    data: list[dict[str, Any]]


class Page(Listed):
    has_more: bool


class Incomplete(Struct):
    """There when a turn did not come to its end."""

    completed: Literal[False]
    partial: Literal[True]
    failed: bool
    error: str
    error_code: str


class ChatUsage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Spoken(Struct):
    role: Literal["assistant"]
    content: str | None
    tool_calls: list[dict[str, Any]] = []
    reasoning_content: str = ""


class Choice(Struct):
    index: int
    message: Spoken
    finish_reason: Literal["stop", "length", "tool_calls", "error"]


class Completion(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage
    hermes: Incomplete | None = None


class Usage(Struct):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class ResponseError(Struct):
    code: str
    message: str


class Response(Struct):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete", "failed", "in_progress"]
    model: str
    output: list[dict[str, Any]]
    usage: Usage | None
    error: ResponseError | None
    incomplete_details: dict[str, str] | None
    instructions: str | None
    metadata: dict[str, str]
    previous_response_id: str | None


class Deleted(Struct):
    id: str
    object: str
    deleted: Literal[True]


class AnthropicMessage(Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[dict[str, Any]]
    stop_reason: Literal["end_turn", "max_tokens", "tool_use"]
    stop_sequence: str | None
    usage: dict[str, int]
    hermes: Incomplete | None = None


class RunStarted(Struct):
    run_id: str
    status: Literal["started"]


class RunTold(Struct):
    run_id: str
    status: str


class RunAnswered(Struct):
    run_id: str
    choice: Literal["once", "session", "always", "deny"]
    applied: Literal["once"] = "once"
    """There when it could not be granted for longer."""


class RunState(Struct):
    object: Literal["hermes.run"]
    run_id: str
    status: Literal[
        "queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled"
    ]
    session_id: str
    model: str
    created_at: float
    updated_at: float
    last_event: str
    output: str = ""
    usage: Usage | None = None
    error: str = ""


class StoredSession(Struct):
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


class Sessions(Struct):
    object: Literal["list"]
    data: list[StoredSession]
    has_more: bool


class SessionAnswer(Struct):
    session_id: str
    message: Spoken
    usage: Usage
    hermes: Incomplete | None = None
