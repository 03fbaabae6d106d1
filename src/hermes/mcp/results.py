"""Turns what servers answer into results of tools: one text, then the images."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any

import msgspec
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from hermes.core.message import Media, Text
from hermes.core.tool import ToolResult


def convert_result(result: CallToolResult) -> ToolResult:
    """The result of a call."""
    texts, media = _split_blocks(result.content)
    if not texts and result.structured_content is not None:
        texts = [msgspec.json.encode(result.structured_content).decode()]
    text = "\n".join(texts)
    parts: tuple[Text | Media, ...] = (Text(text), *media) if text or not media else media
    return ToolResult(parts if media else text or "(no output)", error=bool(result.is_error))


def convert_resource(result: ReadResourceResult) -> ToolResult:
    """The content of a resource."""
    texts, media = _split_contents(result.contents)
    return ToolResult((Text("\n".join(texts) or "(no text)"), *media))


def convert_prompt(result: GetPromptResult) -> str:
    """The text of a prompt; what the assistant says in it is marked."""
    lines = []
    for message in result.messages:
        texts, _ = _split_blocks([message.content])
        mark = "" if message.role == "user" else "Assistant: "
        lines += [mark + text for text in texts]
    return "\n\n".join(lines)


def _split_blocks(blocks: Iterable[ContentBlock]) -> tuple[list[str], tuple[Media, ...]]:
    texts: list[str] = []
    media: list[Media] = []
    for block in blocks:
        match block:
            case TextContent():
                texts.append(block.text)
            case ImageContent():
                _add_binary(block.mime_type, block.data, "", texts, media)
            case AudioContent():
                texts.append(f"[audio, {block.mime_type}: not shown]")
            case ResourceLink():
                texts.append(f"[resource {block.name}: {block.uri}]")
            case EmbeddedResource():
                inner, images = _split_contents([block.resource])
                texts += inner
                media += images
    return texts, tuple(media)


def _split_contents(
    contents: Iterable[TextResourceContents | BlobResourceContents],
) -> tuple[list[str], tuple[Media, ...]]:
    texts: list[str] = []
    media: list[Media] = []
    for item in contents:
        if isinstance(item, TextResourceContents):
            texts.append(item.text)
        else:
            _add_binary(item.mime_type or "", item.blob, str(item.uri), texts, media)
    return texts, tuple(media)


def _add_binary(mime: str, data: str, name: str, texts: list[str], media: list[Media]) -> None:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        texts.append(f"[{mime or 'data'} that cannot be decoded]")
        return
    if mime.startswith("image/"):
        media.append(Media(mime, raw))
    else:
        label = " ".join(filter(None, (name, mime or "binary data")))
        texts.append(f"[{label}, {len(raw)} bytes: not shown]")


def describe_resources(result: Iterable[Any]) -> list[dict[str, str]]:
    """The resources or templates of a server, for a list."""
    rows = []
    for item in result:
        address = str(getattr(item, "uri", "") or getattr(item, "uri_template", ""))
        row = {"uri": address, "name": item.name, "description": (item.description or "")[:300]}
        rows.append({key: value for key, value in row.items() if value})
    return rows
