"""Stored messages as JSON objects: texts, calls, results in part, and where to fetch the rest."""

from collections.abc import Callable, Mapping
from typing import Any

from hermes.core.message import Media, Message, Part, Text, Thinking, ToolCall, ToolReturn
from hermes.core.store import StoredMessage

MAX_RESULT_BYTES = 16 * 1024
NO_DIFFS: Mapping[str, str] = {}


def describe_stored(
    stored: StoredMessage, clean: Callable[[str], str], diffs: Mapping[str, str] = NO_DIFFS
) -> dict[str, Any]:
    """The JSON object of a message with its place; `clean` filters the texts of the model. `diffs`:
    by call, what it changed."""
    message = stored.message
    parts = (_describe_part(part, message, stored.seq, n) for n, part in enumerate(message.parts))
    content = [part for part in parts if part is not None]
    for part in content:
        if part["type"] == "tool_result":
            part["diff"] = diffs.get(part["call_id"], "")
    if message.role == "assistant":
        for part in content:
            if part["type"] == "text":
                part["text"] = clean(part["text"])
    found: dict[str, Any] = {"seq": stored.seq, "created_at": stored.created, "role": message.role}
    if message.origin is not None:
        found["model"] = message.origin.model
    return {**found, "kind": message.kind, "content": content}


def _describe_part(part: Part, message: Message, seq: int, n: int) -> dict[str, Any] | None:
    match part:
        case Text(text):
            return {"type": "text", "text": text}
        case Thinking(text) if text:
            return {"type": "reasoning", "text": text}
        case Media():
            return describe_media(part, f"media/{seq}/{n}")
        case ToolCall(id, name, args):
            return {"type": "tool_call", "id": id, "name": name, "arguments": args}
        case ToolReturn(call_id, name, _, error):
            result = {"type": "tool_result", "call_id": call_id, "name": name, "error": error}
            data = part.text.encode("utf-8", "surrogatepass")
            shown = data[:MAX_RESULT_BYTES].decode("utf-8", "ignore")
            more = len(data) > MAX_RESULT_BYTES
            return {**result, "bytes": len(data), "more": more, "text": shown}
        case _:
            return None


def describe_media(media: Media, href: str) -> dict[str, Any]:
    """A picture or file; its bytes are at `href`, below the session, unless it has a URL."""
    found: dict[str, Any] = {"type": "media", "mime": media.mime}
    if media.name:
        found["name"] = media.name
    if media.url:
        return {**found, "url": media.url}
    return {**found, "bytes": len(media.data), "href": href}
