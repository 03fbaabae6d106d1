"""The output of a turn as items of the Responses protocol, complete or as stream events."""

import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Literal

import orjson
from msgspec import Struct, structs

from hermes.core.events import (
    TextDelta,
    ThinkingDelta,
    ToolDone,
    ToolStarted,
    TurnEvent,
    TurnResult,
)
from hermes.core.message import Media, Message, Text, Thinking, ToolCall, ToolReturn, Usage
from hermes.server.requests.client_tools import list_open_calls
from hermes.server.turns.outcome import choose_response_code, is_truncated
from hermes.server.turns.sse import encode_frame
from hermes.server.turns.turn_events import is_internal_tool

Item = dict[str, Any]


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
    status: Literal["completed", "incomplete", "failed", "cancelled", "in_progress"]
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
    max_output_tokens: int | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None

    @property
    def end_name(self) -> str:
        """How the last event of its stream calls it."""
        return "incomplete" if self.status == "cancelled" else self.status

    def apply_result(self, result: TurnResult, *, unusable: bool) -> None:
        """Set the status, usage and error of a turn that has ended; `unusable`: it has no answer to
        show."""
        self.usage = build_response_usage(result.usage)
        if result.status == "completed":
            self.status = "completed"
        elif is_truncated(result) and not unusable:
            self.status = "incomplete"
            self.incomplete_details = {"reason": "max_output_tokens"}
        elif not unusable or result.status == "interrupted":
            self.status = "incomplete"
            self.incomplete_details = {"reason": "error"}
            self._set_error(choose_response_code(result), result.error)
        else:
            self.mark_failed(choose_response_code(result), result.error)

    def mark_failed(self, code: str, error: str) -> None:
        self.status = "failed"
        self.incomplete_details = None
        self._set_error(code, error)

    def _set_error(self, code: str, error: str) -> None:
        self.error = ResponseError(code, error or "The agent did not finish.")


def build_response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        usage.input,
        {"cached_tokens": usage.cache_read},
        usage.output,
        {"reasoning_tokens": usage.reasoning},
        usage.input + usage.output,
    )


class ItemStyle(Struct, frozen=True):
    """How the output of a turn is shown."""

    hosted: bool = False
    """Whether calls that ran here are single `mcp_call` items, which no client runs again."""
    reasoning: bool = False
    """Whether there are items for reasoning."""


def build_items(
    messages: Sequence[Message], style: ItemStyle, clean: Callable[[str], str] = str
) -> list[Item]:
    """The output items of messages, in order; user messages are not output. `clean` filters
    texts."""
    items: list[Item] = []
    running: dict[str, Item] = {}
    open_calls = {call.id for call in list_open_calls(messages)}
    for message in messages:
        for part in message.parts if message.role != "user" else ():
            match part:
                case Thinking(text) if text and style.reasoning:
                    items.append(_build_reasoning_item(text))
                case Text(text) if text:
                    items.append(_build_message_item(clean(text)))
                case ToolCall(id, name, args) if not is_internal_tool(name):
                    if style.hosted and id not in open_calls:
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


def build_output(
    result: TurnResult, style: ItemStyle, clean: Callable[[str], str], *, final_only: bool
) -> list[Item]:
    """The output items of a turn. `final_only`: of all texts, only the answer is shown."""
    messages = result.messages[1:]
    if not final_only:
        return build_items(messages, style, clean)
    items = [item for item in build_items(messages, style) if item["type"] != "message"]
    return [*items, _build_message_item(result.text)] if result.text else items


def build_input_items(messages: Sequence[Message], response_id: str) -> list[Item]:
    """The items of a request, with ids that stay the same."""
    items: list[Item] = []
    for message in messages:
        parts: list[Item] = []
        for part in message.parts:
            match part:
                case Text(text):
                    kind = "output_text" if message.role == "assistant" else "input_text"
                    parts.append({"type": kind, "text": text})
                case Media(_, _, url):
                    parts.append({"type": "input_image", "image_url": url or None})
                case ToolCall(call_id, name, args):
                    items.append(_build_call_item(call_id, name, args))
                case ToolReturn(call_id):
                    items.append(_build_output_item(call_id, part.text))
        if parts:
            item = {"id": "", "type": "message", "role": message.role, "status": "completed"}
            items.append({**item, "content": parts})
    for n, item in enumerate(items):
        item["id"] = f"{item['type'][:3]}_{response_id.removeprefix('resp_')}_{n}"
    return items


class ItemEncoder:
    """Encodes turn events as frames and collects finished items; at most one message or reasoning
    item is open."""

    def __init__(self, style: ItemStyle, sequence: int = 0) -> None:
        self.items: list[Item] = []
        self._style = style
        self._running: dict[str, int] = {}
        """Running hosted calls: their index in `items`."""
        self._sequence = sequence
        self._text: list[str] = []
        self._message: Item | None = None
        self._reasoning: Item | None = None
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
            case ThinkingDelta(text) if self._style.reasoning:
                yield from self._encode_thought(text)
            case ToolStarted(call) if not is_internal_tool(call.name):
                yield from self.end_message()
                self._called.add(call.id)
                is_hosted = self._style.hosted
                yield from self._begin_hosted_call(call) if is_hosted else self.encode_call(call)
            case ToolDone(result) if result.call_id in self._running:
                yield from self._end_hosted_call(result)
            case ToolDone(result) if result.call_id in self._called:
                yield from self.end_message()
                parts = [{"type": "input_text", "text": result.text}]
                yield from self.encode_items([_build_output_item(result.call_id, parts)])
            case _:
                return

    def encode_items(self, items: Sequence[Item]) -> Iterator[bytes]:
        """Encode finished items as if they had been streamed."""
        for item in items:
            if item["type"] == "message":
                yield from self._begin_message(item["id"])
                yield from self._encode_delta("".join(p["text"] for p in item["content"]))
                yield from self.end_message()
                continue
            for state in ("added", "done"):
                kind = f"response.output_item.{state}"
                yield self.encode_frame(kind, output_index=len(self.items), item=item)
            self.items.append(item)

    def end_message(self) -> Iterator[bytes]:
        """End the open message or reasoning item, if any."""
        yield from self._end_reasoning()
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
        yield from self._end_reasoning()
        if self._message is None:
            yield from self._begin_message()
        self._text.append(text)
        tail = b',"sequence_number":%d}\n\n' % self._sequence
        yield b"".join((self._delta_head, orjson.dumps(text), tail))
        self._sequence += 1

    def _encode_thought(self, text: str) -> Iterator[bytes]:
        if self._reasoning is None:
            yield from self.end_message()
            item, index = _build_reasoning_item(""), len(self.items)
            self._reasoning = item = {**item, "summary": []}
            yield self.encode_frame("response.output_item.added", output_index=index, item=item)
            part = {"type": "summary_text", "text": ""}
            position = self._locate_summary(item)
            yield self.encode_frame("response.reasoning_summary_part.added", **position, part=part)
        self._text.append(text)
        position = self._locate_summary(self._reasoning)
        yield self.encode_frame("response.reasoning_summary_text.delta", **position, delta=text)

    def _end_reasoning(self) -> Iterator[bytes]:
        if self._reasoning is None:
            return
        item, text = self._reasoning, "".join(self._text)
        self._reasoning = None
        self._text.clear()
        position, done = self._locate_summary(item), _build_reasoning_item(text, item["id"])
        part, index = done["summary"][0], len(self.items)
        yield self.encode_frame("response.reasoning_summary_text.done", **position, text=text)
        yield self.encode_frame("response.reasoning_summary_part.done", **position, part=part)
        yield self.encode_frame("response.output_item.done", output_index=index, item=done)
        self.items.append(done)

    def _locate_summary(self, item: Item) -> dict[str, Any]:
        return {"item_id": item["id"], "output_index": len(self.items), "summary_index": 0}

    def _begin_message(self, item_id: str = "") -> Iterator[bytes]:
        item = {**_build_message_item("", item_id), "status": "in_progress", "content": []}
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


def _build_reasoning_item(text: str, item_id: str = "") -> Item:
    return {
        "id": item_id or _create_item_id("rs"),
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}],
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


def rebuild_items(frames: bytes) -> tuple[list[Item], str]:
    """The items that a stream had begun, from its frames, and the text that was not finished."""
    items: dict[int, Item] = {}
    texts: dict[int, list[str]] = {}
    for line in frames.split(b"\n"):
        if not line.startswith(b"data: {"):
            continue
        event = orjson.loads(line.removeprefix(b"data: "))
        index = event.get("output_index", -1)
        match event.get("type"):
            case "response.output_item.added":
                items[index] = event["item"]
            case "response.output_text.delta":
                texts.setdefault(index, []).append(event["delta"])
            case "response.output_item.done":
                items[index] = event["item"]
                texts.pop(index, None)
    for index, pieces in texts.items():
        unfinished = _build_message_item("".join(pieces), items[index]["id"])
        items[index] = {**unfinished, "status": "incomplete"}
    for item in items.values():
        if item.get("status") == "in_progress":
            item["status"] = "incomplete"
    unfinished_text = "".join("".join(pieces) for pieces in texts.values())
    return [items[index] for index in sorted(items)], unfinished_text


async def replay_frames(
    pages: AsyncIterator[bytes], response: ResponseObject, after: int
) -> AsyncIterator[bytes]:
    """Yield the frames with a higher sequence number. What the stored stream lacks is made from the
    response: the end if the server died, everything if it was not streamed."""
    last, name = -1, b""
    async for page in pages:
        frames = [frame for frame in page.split(b"\n\n") if frame]
        last, name = _read_sequence(frames[-1]), frames[-1].partition(b"\n")[0]
        if newer := [frame for frame in frames if _read_sequence(frame) > after]:
            yield b"\n\n".join((*newer, b""))
    if response.status != "in_progress" and not name.endswith(_ENDS):
        missing = _encode_missing_frames(response, last + 1)
        yield b"".join(frame for frame in missing if _read_sequence(frame.rstrip()) > after)


_ENDS = (b"response.completed", b"response.incomplete", b"response.failed")


def _encode_missing_frames(response: ResponseObject, sequence: int) -> Iterator[bytes]:
    encoder = ItemEncoder(ItemStyle(), sequence)
    if sequence == 0:
        begun = structs.replace(
            response,
            status="in_progress",
            error=None,
            incomplete_details=None,
            output=[],
            usage=None,
        )
        for kind in ("response.created", "response.in_progress"):
            yield encoder.encode_frame(kind, response=begun)
        yield from encoder.encode_items(response.output)
    yield encoder.encode_frame(f"response.{response.end_name}", response=response)


def _read_sequence(frame: bytes) -> int:
    _, _, number = frame.rpartition(b'"sequence_number":')
    digits = number.rstrip(b"}")
    return int(digits) if digits.isdigit() else -1
