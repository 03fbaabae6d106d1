"""The output of a turn as items of the Responses protocol, whole or as a stream of events."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import orjson

from hermes.core.events import TextDelta, ToolDone, ToolStarted, TurnEvent, TurnResult
from hermes.core.message import Message, Text, ToolCall, ToolReturn, Usage
from hermes.server.turns.sse import event

Item = dict[str, Any]
Hosted: TypeAlias = Callable[[str], bool]
"""Of which tools, by name, call and output are one item of the kind that every client knows to
have been run already."""


def none_hosted(_: str) -> bool:
    return False


def items_of(
    messages: Iterable[Message], hosted: Hosted = none_hosted, say: Callable[[str], str] = str
) -> list[Item]:
    """What the agent added, in order; the user's own words are not output. `say`: how a text is
    shown."""
    items: list[Item] = []
    made: dict[str, Item] = {}
    for message in messages:
        for part in message.parts if message.role != "user" else ():
            match part:
                case Text(text) if text:
                    items.append(_message(say(text)))
                case ToolCall(id, name, args) if not name.startswith("_"):
                    items.append(_hosted(name, args) if hosted(name) else _call(id, name, args))
                    if hosted(name):
                        made[id] = items[-1]
                case ToolReturn(call_id, name) if call_id in made:
                    _finish(made.pop(call_id), part)
                case ToolReturn(call_id, name) if not name.startswith("_"):
                    items.append(_output(call_id, part.text))
                case _:
                    continue
    return items


def usage_of(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def settle(response: dict[str, Any], result: TurnResult) -> None:
    """How the turn ended, written into the response."""
    response["usage"] = usage_of(result.usage)
    if result.status == "completed":
        response["status"] = "completed"
    elif result.text.strip() or result.status == "interrupted":
        truncated = result.error_code == "output_truncated"
        response["status"] = "incomplete"
        response["incomplete_details"] = {"reason": "max_output_tokens" if truncated else "error"}
    else:
        fail(response, result)


def fail(response: dict[str, Any], result: TurnResult) -> None:
    response["status"] = "failed"
    response["incomplete_details"] = None
    code, said = result.error_code or "server_error", result.error or "The agent did not finish."
    response["error"] = {"code": code, "message": said}


class Narrator:
    """Turn events in, frames out. It remembers the one item that is open and all that are done."""

    def __init__(self, hosted: Hosted = none_hosted) -> None:
        self.items: list[Item] = []
        self._hosted = hosted
        self._run: dict[str, int] = {}
        """Hosted tools that run: their places among the items."""
        self._number = 0
        self._text: list[str] = []
        self._open: Item | None = None
        self._delta = b""
        self._called: set[str] = set()

    def frame(self, kind: str, /, **data: Any) -> bytes:
        body = {"type": kind, **data, "sequence_number": self._number}
        self._number += 1
        return event(kind, orjson.dumps(body))

    def tell(self, happened: TurnEvent) -> Iterator[bytes]:
        match happened:
            case TextDelta(text):
                yield from self._say(text)
            case ToolStarted(call) if not call.name.startswith("_"):
                yield from self.close()
                self._called.add(call.id)
                hosted = self._hosted(call.name)
                yield from self._begin_hosted(call) if hosted else self.call(call)
            case ToolDone(result) if result.call_id in self._run:
                yield from self._end_hosted(result)
            case ToolDone(result) if result.call_id in self._called:
                yield from self.close()
                shown = [{"type": "input_text", "text": result.text}]
                yield from self._whole({**_output(result.call_id, ""), "output": shown})
            case _:
                return

    @property
    def said(self) -> str:
        """The text of the item that is open."""
        return "".join(self._text)

    def close(self) -> Iterator[bytes]:
        """End the open message, if there is one."""
        if self._open is None:
            return
        item, text = self._open, self.said
        self._open = None
        self._text.clear()
        at = {"item_id": item["id"], "output_index": len(self.items), "content_index": 0}
        done = _message(text, item["id"])
        yield self.frame("response.output_text.done", **at, text=text, logprobs=[])
        yield self.frame("response.content_part.done", **at, part=done["content"][0])
        yield self.frame("response.output_item.done", output_index=len(self.items), item=done)
        self.items.append(done)

    def _say(self, text: str) -> Iterator[bytes]:
        if self._open is None:
            yield from self._begin()
        self._text.append(text)
        yield b"".join(
            (
                self._delta,
                orjson.dumps(text),
                b',"sequence_number":%d}\n\n' % self._number,
            )
        )
        self._number += 1

    def _begin(self) -> Iterator[bytes]:
        item = {**_message(""), "status": "in_progress", "content": []}
        self._open = item
        at = {"item_id": item["id"], "output_index": len(self.items), "content_index": 0}
        yield self.frame("response.output_item.added", output_index=len(self.items), item=item)
        part = {"type": "output_text", "text": "", "annotations": []}
        yield self.frame("response.content_part.added", **at, part=part)
        name = "response.output_text.delta"
        head = orjson.dumps({"type": name, **at, "logprobs": []})[:-1]
        self._delta = f"event: {name}\ndata: ".encode() + head + b',"delta":'

    def call(self, call: ToolCall) -> Iterator[bytes]:
        item = _call(call.id, call.name, call.args)
        index = len(self.items)
        started = {**item, "arguments": "", "status": "in_progress"}
        at = {"item_id": item["id"], "output_index": index}
        yield self.frame("response.output_item.added", output_index=index, item=started)
        arguments = item["arguments"]
        yield self.frame("response.function_call_arguments.delta", **at, delta=arguments)
        yield self.frame(
            "response.function_call_arguments.done", **at, name=call.name, arguments=arguments
        )
        yield self.frame("response.output_item.done", output_index=index, item=item)
        self.items.append(item)

    def _begin_hosted(self, call: ToolCall) -> Iterator[bytes]:
        item = _hosted(call.name, call.args)
        index = self._run[call.id] = len(self.items)
        self.items.append(item)
        at = {"item_id": item["id"], "output_index": index}
        started = {**item, "arguments": ""}
        yield self.frame("response.output_item.added", output_index=index, item=started)
        yield self.frame("response.mcp_call.in_progress", **at)
        arguments = item["arguments"]
        yield self.frame("response.mcp_call_arguments.delta", **at, delta=arguments)
        yield self.frame("response.mcp_call_arguments.done", **at, arguments=arguments)

    def _end_hosted(self, result: ToolReturn) -> Iterator[bytes]:
        index = self._run.pop(result.call_id)
        item = self.items[index]
        _finish(item, result)
        kind = f"response.mcp_call.{item['status']}"
        yield self.frame(kind, item_id=item["id"], output_index=index)
        yield self.frame("response.output_item.done", output_index=index, item=item)

    def _whole(self, item: Item) -> Iterator[bytes]:
        index = len(self.items)
        yield self.frame("response.output_item.added", output_index=index, item=item)
        yield self.frame("response.output_item.done", output_index=index, item=item)
        self.items.append(item)


def _message(text: str, identity: str = "") -> Item:
    return {
        "id": identity or _id("msg"),
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _call(call_id: str, name: str, args: str) -> Item:
    return {
        "id": _id("fc"),
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": args or "{}",
    }


def _hosted(name: str, args: str) -> Item:
    return {
        "id": _id("mcp"),
        "type": "mcp_call",
        "status": "in_progress",
        "server_label": "hermes",
        "name": name,
        "arguments": args or "{}",
        "output": None,
        "error": None,
        "approval_request_id": None,
    }


def _finish(item: Item, result: ToolReturn) -> None:
    if result.error:
        content = [{"type": "text", "text": result.text}]
        item["error"] = {"type": "mcp_tool_execution_error", "content": content}
    else:
        item["output"] = result.text
    item["status"] = "failed" if result.error else "completed"


def _output(call_id: str, text: str) -> Item:
    return {
        "id": _id("fco"),
        "type": "function_call_output",
        "status": "completed",
        "call_id": call_id,
        "output": text,
    }


def _id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
