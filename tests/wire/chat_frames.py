"""Frames of the chat wire, and answers read from them."""

from __future__ import annotations

import json
from typing import Any

from hermes.core.message import (
    Target,
)
from tests.wire import talk

TARGET = Target("p", "m", "chat")
Json = dict[str, Any]


def chunk(delta: Json | None = None, finish: str | None = None, **rest: Any) -> Json:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "x", "object": "chat.completion.chunk", "choices": choices, **rest}


def events(*values: Json | str, done: bool = True) -> bytes:
    lines = [v if isinstance(v, str) else "data: " + json.dumps(v) for v in values]
    return "".join(f"{line}\n\n" for line in (*lines, *(["data: [DONE]"] if done else []))).encode()


class Read(talk.Read):
    wire = "chat"


def stream(*values: Json | str, done: bool = True) -> Read:
    return Read.stream(events(*values, done=done))


def whole(message: Json, finish: str | None = "stop", **rest: Any) -> Read:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion", "choices": [choice], **rest}
    return Read(json.dumps(body).encode(), whole=True)
