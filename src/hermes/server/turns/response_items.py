"""The output of a turn as items of the Responses protocol, complete or as stream events."""

import secrets
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, Literal

import orjson
from msgspec import Struct

from hermes.core.events import TextDelta, ToolDone, ToolStarted, TurnEvent, TurnResult
from hermes.core.message import Message, Text, ToolCall, ToolReturn, Usage
from hermes.server.turns.sse import encode_frame
from hermes.server.turns.turn_events import is_internal_tool

Item = dict[str, Any]


class _EveryTool:
    """Contains every tool name."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY_TOOL = _EveryTool()


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
    """A response; its fields are filled in while the turn runs."""

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

    def apply_result(self, result: TurnResult) -> None:
        """Set the status, usage and error of a turn that has ended."""
        self.usage = build_response_usage(result.usage)
        if result.status == "completed":
            self.status = "completed"
        elif result.text.strip() or result.status == "interrupted":
            truncated = result.error_code == "output_truncated"
            self.status = "incomplete"
            self.incomplete_details = {"reason": "max_output_tokens" if truncated else "error"}
        else:
            self.mark_failed(result.error_code or "server_error", result.error)

    def mark_failed(self, code: str, error: str) -> None:
        self.status = "failed"
        self.incomplete_details = None
        self.error = ResponseError(code, error or "The agent did not finish.")


def build_response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        usage.input,
        {"cached_tokens": usage.cache_read},
        usage.output,
        {"reasoning_tokens": usage.reasoning},
        usage.input + usage.output,
    )


def build_items(
    messages: Iterable[Message], hosted: Container[str] = (), clean: Callable[[str], str] = str
) -> list[Item]:
    """The output items of messages, in order; user messages are not output. Calls of `hosted` tools
    are single `mcp_call` items, which clients do not run again. `clean` filters texts."""
    items: list[Item] = []
    running: dict[str, Item] = {}
    for message in messages:
        for part in message.parts if message.role != "user" else ():
            match part:
                case Text(text) if text:
                    items.append(_build_message_item(clean(text)))
                case ToolCall(id, name, args) if not is_internal_tool(name):
                    if name in hosted:
                        items.append(_build_hosted_item(name, args))
                        running[id] = items[-1]
                    else:
                        items.append(_build_call_item(id, name, args))
                case ToolReturn(call_id, name) if call_id in running:
                    _finish_hosted_item(running.pop(call_id), part)
                case ToolReturn(call_id, name) if not is_internal_tool(name):
                    items.append(_build_output_item(call_id, part.text))
                case _:
                    continue
    return items


class ItemEncoder:
    """Encodes turn events as frames and collects finished items; at most one message is open."""

    def __init__(self, hosted: Container[str] = ()) -> None:
        self.items: list[Item] = []
        self._hosted = hosted
        self._running: dict[str, int] = {}
        """Running hosted calls: their index in `items`."""
        self._sequence = 0
        self._text: list[str] = []
        self._message: Item | None = None
        self._delta_head = b""
        self._called: set[str] = set()

    def encode_frame(self, kind: str, /, **data: Any) -> bytes:
        body = {"type": kind, **data, "sequence_number": self._sequence}
        self._sequence += 1
        return encode_frame(kind, body)

    def encode_event(self, event: TurnEvent) -> Iterator[bytes]:
        match event:
            case TextDelta(text):
                yield from self._encode_delta(text)
            case ToolStarted(call) if not is_internal_tool(call.name):
                yield from self.end_message()
                self._called.add(call.id)
                is_hosted = call.name in self._hosted
                yield from self._begin_hosted_call(call) if is_hosted else self.encode_call(call)
            case ToolDone(result) if result.call_id in self._running:
                yield from self._end_hosted_call(result)
            case ToolDone(result) if result.call_id in self._called:
                yield from self.end_message()
                parts = [{"type": "input_text", "text": result.text}]
                item, index = _build_output_item(result.call_id, parts), len(self.items)
                self.items.append(item)
                for state in ("added", "done"):
                    kind = f"response.output_item.{state}"
                    yield self.encode_frame(kind, output_index=index, item=item)
            case _:
                return

    def end_message(self) -> Iterator[bytes]:
        """End the open message, if any."""
        if self._message is None:
            return
        item, text = self._message, "".join(self._text)
        self._message = None
        self._text.clear()
        index = len(self.items)
        position = {"item_id": item["id"], "output_index": index, "content_index": 0}
        done = _build_message_item(text, item["id"])
        yield self.encode_frame("response.output_text.done", **position, text=text, logprobs=[])
        yield self.encode_frame("response.content_part.done", **position, part=done["content"][0])
        yield self.encode_frame("response.output_item.done", output_index=index, item=done)
        self.items.append(done)

    def _encode_delta(self, text: str) -> Iterator[bytes]:
        """Encode a delta; what all deltas of a message share is encoded once."""
        if self._message is None:
            yield from self._begin_message()
        self._text.append(text)
        tail = b',"sequence_number":%d}\n\n' % self._sequence
        yield b"".join((self._delta_head, orjson.dumps(text), tail))
        self._sequence += 1

    def _begin_message(self) -> Iterator[bytes]:
        item = {**_build_message_item(""), "status": "in_progress", "content": []}
        self._message, index = item, len(self.items)
        position = {"item_id": item["id"], "output_index": index, "content_index": 0}
        yield self.encode_frame("response.output_item.added", output_index=index, item=item)
        part = {"type": "output_text", "text": "", "annotations": []}
        yield self.encode_frame("response.content_part.added", **position, part=part)
        name = "response.output_text.delta"
        head = orjson.dumps({"type": name, **position, "logprobs": []})[:-1]
        self._delta_head = f"event: {name}\ndata: ".encode() + head + b',"delta":'

    def encode_call(self, call: ToolCall) -> Iterator[bytes]:
        item = _build_call_item(call.id, call.name, call.args)
        index = len(self.items)
        started = {**item, "arguments": "", "status": "in_progress"}
        position = {"item_id": item["id"], "output_index": index}
        yield self.encode_frame("response.output_item.added", output_index=index, item=started)
        kind, arguments = "response.function_call_arguments", item["arguments"]
        yield self.encode_frame(f"{kind}.delta", **position, delta=arguments)
        yield self.encode_frame(f"{kind}.done", **position, name=call.name, arguments=arguments)
        yield self.encode_frame("response.output_item.done", output_index=index, item=item)
        self.items.append(item)

    def _begin_hosted_call(self, call: ToolCall) -> Iterator[bytes]:
        item = _build_hosted_item(call.name, call.args)
        index = self._running[call.id] = len(self.items)
        self.items.append(item)
        position = {"item_id": item["id"], "output_index": index}
        started = {**item, "arguments": ""}
        yield self.encode_frame("response.output_item.added", output_index=index, item=started)
        yield self.encode_frame("response.mcp_call.in_progress", **position)
        arguments = item["arguments"]
        yield self.encode_frame("response.mcp_call_arguments.delta", **position, delta=arguments)
        yield self.encode_frame("response.mcp_call_arguments.done", **position, arguments=arguments)

    def _end_hosted_call(self, result: ToolReturn) -> Iterator[bytes]:
        index = self._running.pop(result.call_id)
        item = self.items[index]
        _finish_hosted_item(item, result)
        kind = f"response.mcp_call.{item['status']}"
        yield self.encode_frame(kind, item_id=item["id"], output_index=index)
        yield self.encode_frame("response.output_item.done", output_index=index, item=item)


def _build_message_item(text: str, item_id: str = "") -> Item:
    return {
        "id": item_id or _create_item_id("msg"),
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def _build_call_item(call_id: str, name: str, args: str) -> Item:
    return {
        "id": _create_item_id("fc"),
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": args or "{}",
    }


def _build_hosted_item(name: str, args: str) -> Item:
    return {
        "id": _create_item_id("mcp"),
        "type": "mcp_call",
        "status": "in_progress",
        "server_label": "hermes",
        "name": name,
        "arguments": args or "{}",
        "output": None,
        "error": None,
        "approval_request_id": None,
    }


def _finish_hosted_item(item: Item, result: ToolReturn) -> None:
    if result.error:
        content = [{"type": "text", "text": result.text}]
        item["error"] = {"type": "mcp_tool_execution_error", "content": content}
    else:
        item["output"] = result.text
    item["status"] = "failed" if result.error else "completed"


def _build_output_item(call_id: str, output: str | list[dict[str, str]]) -> Item:
    return {
        "id": _create_item_id("fco"),
        "type": "function_call_output",
        "status": "completed",
        "call_id": call_id,
        "output": output,
    }


def _create_item_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"
