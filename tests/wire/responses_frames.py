"""Frames of the responses wire, and answers read from them."""

from __future__ import annotations

import json
from typing import Any

from hermes.core.message import (
    Target,
    Usage,
)
from tests.wire import talk

TARGET = Target("p", "m", "responses")
Json = dict[str, Any]
USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
    "output_tokens": 6,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 16,
}
COUNTED = Usage(10, 6, 4, 1, 2)


def ev(kind: str, at: int | None = 0, **rest: Any) -> Json:
    return {"type": f"response.{kind}", **({} if at is None else {"output_index": at}), **rest}


def added(item: Json, at: int | None = 0) -> Json:
    return ev("output_item.added", at, item=item)


def done(item: Json, at: int | None = 0) -> Json:
    return ev("output_item.done", at, item=item)


def delta(text: str, at: int | None = 0, content_index: int = 0) -> Json:
    return ev("output_text.delta", at, content_index=content_index, delta=text, logprobs=[])


def end(kind: str = "completed", **rest: Any) -> Json:
    response = {"id": "r", "status": kind, "output": None, "usage": USAGE, "error": None, **rest}
    return ev(kind, None, response=response)


def message(*texts: str, **rest: Any) -> Json:
    content = [{"type": "output_text", "text": t, "annotations": []} for t in texts]
    return {"type": "message", "id": "m1", "role": "assistant", "content": content, **rest}


def reasoning(*summary: str, **rest: Any) -> Json:
    parts = [{"type": "summary_text", "text": t} for t in summary]
    return {"type": "reasoning", "id": "rs1", "summary": parts, **rest}


def function(id: str = "c1", args: str = "{}", **rest: Any) -> Json:
    call = {"call_id": id, "name": "read", "arguments": args, "status": "completed"}
    return {"type": "function_call", "id": "fc1", **call, **rest}


def frames(*values: Json | str) -> bytes:
    out = ""
    for value in values:
        if isinstance(value, str):
            out += value + "\n\n"
        else:
            out += f"event: {value.get('type', 'x')}\ndata: {json.dumps(value)}\n\n"
    return out.encode()


class Read(talk.Read):
    wire = "responses"


def stream(*values: Json | str) -> Read:
    return Read.stream(frames(*values))


def whole(*output: Json, **rest: Any) -> Read:
    body = {"id": "r", "object": "response", "status": "completed", "error": None, "usage": USAGE}
    return Read(json.dumps({**body, "output": output, **rest}).encode(), whole=True)
