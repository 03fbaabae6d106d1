"""Recorded requests of three wires: read into canonical messages, and boiled down to what they
mean, so that a recorded request and one of ours can be compared."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any

import msgspec
import orjson

from hermes.core.message import (
    Media,
    Message,
    Native,
    Part,
    Target,
    Text,
    Thinking,
    ToolCall,
    ToolReturn,
)
from hermes.core.provider import ToolSpec

Meaning = list[tuple[str, list[Any]]]


class Conversation(msgspec.Struct):
    system: str
    tools: list[ToolSpec]
    messages: list[Message]


def camel(value: Any) -> Any:
    """Google's services take both spellings of a key."""
    if isinstance(value, list):
        return [camel(v) for v in value]
    if not isinstance(value, dict):
        return value
    verbatim = ("args", "response", "parametersJsonSchema", "parameters")
    out = {}
    for key, inner in value.items():
        key = re.sub(r"_([a-z])", lambda m: m[1].upper(), key)
        out[key] = inner if key in verbatim else camel(inner)
    return out


def _joined(groups: Meaning) -> Meaning:
    """One entry per change of role; white space no API takes is left out, calls are known by their
    place, as ids may be given anew."""
    out: Meaning = []
    for role, atoms in groups:
        atoms = [a for a in atoms if a[0] != "text" or a[1].strip()]
        if out and out[-1][0] == role:
            out[-1][1].extend(atoms)
        elif atoms:
            out.append((role, atoms))
    return [(role, atoms) for role, atoms in _placed(out)]


def _placed(groups: Meaning) -> Meaning:
    out: Meaning = []
    calls: list[str | None] = []
    for role, atoms in groups:
        if any(a[0] == "call" for a in atoms):
            calls = [a[1] for a in atoms if a[0] == "call"]
            assert len(set(calls)) == len(calls)
        known = iter(range(len(calls)))
        placed = []
        for atom in atoms:
            if atom[0] == "call":
                atom = ("call", next(known), *atom[2:])
            elif atom[0] == "result":
                place = calls.index(atom[1]) if atom[1] is not None else next(known)
                atom = ("result", place, *atom[2:])
            placed.append(atom)
        out.append((role, placed))
    return out


def _messages(role: str, parts: list[Part], origin: Target) -> list[Message]:
    results = [p for p in parts if isinstance(p, ToolReturn)]
    rest = tuple(p for p in parts if not isinstance(p, ToolReturn))
    out = [Message("tool", (r,)) for r in results]
    if rest and role == "assistant":
        out.append(Message("assistant", rest, origin=origin))
    elif rest:
        out.append(Message("user", rest))
    return out


# -- Messages ------------------------------------------------------------------------------------

OURS_TO_RUN = ("text", "thinking", "redacted_thinking", "tool_use", "tool_result", "image")


def anthropic(request: dict[str, Any], origin: Target) -> Conversation:
    system = request.get("system") or ""
    if isinstance(system, list):
        system = "\n\n".join(b["text"] for b in system)
    names: dict[str, str] = {}
    messages: list[Message] = []
    for message in request["messages"]:
        if message["role"] == "system":
            continue
        parts = [_anthropic_part(b, names) for b in _blocks(message["content"])]
        messages += _messages(message["role"], [p for p in parts if p], origin)
    tools = [
        ToolSpec(t["name"], t.get("description", ""), t["input_schema"])
        for t in request.get("tools", ())
        if "input_schema" in t
    ]
    return Conversation(system, tools, messages)


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _anthropic_part(block: dict[str, Any], names: dict[str, str]) -> Part | None:
    match block["type"]:
        case "text":
            cited = block.get("citations")
            return Text(block["text"], {"citations": cited} if cited else None)
        case "thinking":
            return Thinking(block["thinking"], {"signature": block["signature"]})
        case "redacted_thinking":
            return Thinking("", {"redacted": block["data"]})
        case "tool_use":
            names[block["id"]] = block["name"]
            caller = {"caller": block["caller"]} if "caller" in block else None
            return ToolCall(
                block["id"], block["name"], orjson.dumps(block["input"]).decode(), caller
            )
        case "tool_result":
            inner = [_anthropic_part(b, names) for b in _blocks(block.get("content") or [])]
            content = tuple(p for p in inner if isinstance(p, Text | Media))
            id = block["tool_use_id"]
            return ToolReturn(id, names[id], content, bool(block.get("is_error")))
        case "image" | "document":
            return _anthropic_media(block["source"])
        case "container_upload":
            return None
        case _:
            return Native(block)


def _anthropic_media(source: dict[str, Any]) -> Media | None:
    match source["type"]:
        case "base64":
            return Media(source["media_type"], b64decode(source["data"]))
        case "text":
            return Media(source["media_type"], source["data"].encode())
        case "url":
            return Media("image/png", url=source["url"])
        case _:
            return None


def anthropic_meaning(request: dict[str, Any]) -> Meaning:
    groups = []
    for message in request["messages"]:
        if message["role"] != "system":
            atoms = [a for b in _blocks(message["content"]) for a in _anthropic_atoms(b)]
            groups.append((message["role"], atoms))
    return _joined(groups)


def _anthropic_atoms(block: dict[str, Any]) -> list[tuple[Any, ...]]:
    match block["type"]:
        case "text":
            return [("text", block["text"])]
        case "thinking":
            return [("thinking", block["thinking"], block["signature"])]
        case "redacted_thinking":
            return [("redacted", block["data"])]
        case "tool_use":
            return [("call", block["id"], block["name"], block["input"])]
        case "tool_result":
            blocks = _blocks(block.get("content") or [])
            # A reference to a declared tool answers a search of its own kind; we never offer one.
            inner = [a for b in blocks for a in _anthropic_atoms(b) if a[0] != "native"]
            return [("result", block["tool_use_id"], bool(block.get("is_error")), inner)]
        case "container_upload":
            return []
        case "image" | "document":
            return [] if block["source"]["type"] == "file" else [("media", block["source"])]
        case _:
            return [("native", block)]


# -- generateContent -----------------------------------------------------------------------------


def gemini(request: dict[str, Any], origin: Target) -> Conversation:
    request = camel(request)
    system = request.get("systemInstruction") or {"parts": []}
    messages: list[Message] = []
    ids: list[str] = []
    for i, content in enumerate(request["contents"]):
        role = "assistant" if content["role"] == "model" else "user"
        parts = [_gemini_part(p, i, n, ids) for n, p in enumerate(content["parts"])]
        messages += _messages(role, parts, origin)
    tools: Any = request.get("tools") or []
    tools = tools if isinstance(tools, list) else [tools]
    declared = [f for t in tools for f in t.get("functionDeclarations", ())]
    return Conversation(
        "".join(p["text"] for p in system["parts"]),
        [
            ToolSpec(
                f["name"],
                f["description"],
                f.get("parametersJsonSchema") or f.get("parameters") or {"type": "object"},
            )
            for f in declared
        ],
        messages,
    )


def _gemini_part(part: dict[str, Any], i: int, n: int, ids: list[str]) -> Part:
    signature = part.get("thoughtSignature")
    extra = {"thoughtSignature": signature} if signature else {}
    if "functionCall" in part:
        call = part["functionCall"]
        if call.get("id"):
            extra["id"] = call["id"]
        ids.append(call.get("id") or f"made-up-{i}-{n}")
        return ToolCall(ids[-1], call["name"], orjson.dumps(call["args"]).decode(), extra or None)
    if "functionResponse" in part:
        answer = part["functionResponse"]
        media = [_gemini_media(p) for p in answer.get("parts") or ()]
        failed = "error" in answer["response"]
        text = Text(_told(answer["response"]))
        id = answer.get("id") or ids.pop(0)
        return ToolReturn(id, answer["name"], (text, *media), failed)
    if "text" in part:
        kind = Thinking if part.get("thought") else Text
        return kind(part["text"], extra or None)
    if "inlineData" in part or "fileData" in part:
        return _gemini_media(part)
    return Native(part)


def _told(response: dict[str, Any]) -> str:
    """What a tool said: the one value in the object, or the object."""
    values = list(response.values())
    if len(values) == 1:
        return values[0] if isinstance(values[0], str) else orjson.dumps(values[0]).decode()
    return orjson.dumps(response).decode()


def _gemini_media(part: dict[str, Any]) -> Media:
    if "inlineData" in part:
        data = part["inlineData"]
        return Media(data["mimeType"], b64decode(data["data"].replace("-", "+").replace("_", "/")))
    return Media(part["fileData"]["mimeType"], url=part["fileData"]["fileUri"])


def gemini_meaning(request: dict[str, Any]) -> Meaning:
    groups = []
    for content in camel(request)["contents"]:
        atoms = [_gemini_atom(p) for p in content["parts"]]
        groups.append((content["role"], atoms))
    return _joined(groups)


def _gemini_atom(part: dict[str, Any]) -> tuple[Any, ...]:
    # Base64 in either alphabet is the same signature.
    signature = part.get("thoughtSignature", "").replace("-", "+").replace("_", "/").rstrip("=")
    if "functionCall" in part:
        call = part["functionCall"]
        return ("call", call.get("id"), call["name"], call["args"], signature)
    if "functionResponse" in part:
        answer = part["functionResponse"]
        failed, media = "error" in answer["response"], answer.get("parts") or []
        told = _told(answer["response"])
        inner = [_gemini_atom(p) for p in media]
        return ("result", answer.get("id"), answer["name"], failed, told, inner)
    if "text" in part:
        return ("thinking" if part.get("thought") else "text", part["text"], signature)
    if "inlineData" in part or "fileData" in part:
        media = _gemini_media(part)
        return ("media", media.mime, media.data, media.url)
    return ("native", part)


# -- Converse ------------------------------------------------------------------------------------


def bedrock(request: dict[str, Any], origin: Target) -> Conversation:
    names: dict[str, str] = {}
    messages: list[Message] = []
    for message in request["messages"]:
        parts = [_bedrock_part(b, names) for b in message["content"]]
        messages += _messages(message["role"], [p for p in parts if p], origin)
    specs = [
        t["toolSpec"]
        for t in (request.get("toolConfig") or {"tools": ()})["tools"]
        if "toolSpec" in t
    ]
    return Conversation(
        "".join(b.get("text", "") for b in request.get("system") or ()),
        [ToolSpec(s["name"], s.get("description", ""), s["inputSchema"]["json"]) for s in specs],
        messages,
    )


def _bedrock_part(block: dict[str, Any], names: dict[str, str]) -> Part | None:
    ((kind, value),) = block.items()
    match kind:
        case "text":
            return Text(value)
        case "reasoningContent" if "reasoningText" in value:
            text = value["reasoningText"]
            return Thinking(text["text"], {"signature": text.get("signature")})
        case "reasoningContent":
            return Thinking("", {"redacted": value["redactedContent"]})
        case "toolUse":
            names[value["toolUseId"]] = value["name"]
            args = orjson.dumps(value["input"]).decode()
            return ToolCall(value["toolUseId"], value["name"], args)
        case "toolResult":
            inner = [_bedrock_part(b, names) for b in value["content"]]
            content = tuple(p for p in inner if isinstance(p, Text | Media))
            id = value["toolUseId"]
            return ToolReturn(id, names[id], content, value.get("status") == "error")
        case "image" | "document" | "video":
            return _bedrock_media(kind, value)
        case "cachePoint":
            return None
        case _:
            return Native(block)


MIMES = {"pdf": "application/pdf", "txt": "text/plain", "jpeg": "image/jpeg", "mp4": "video/mp4"}


def _bedrock_media(kind: str, value: dict[str, Any]) -> Media:
    source = value["source"]
    if "bytes" in source:
        return Media(MIMES[value["format"]], b64decode(source["bytes"]), name=value.get("name", ""))
    return Media(
        MIMES[value["format"]], url=source["s3Location"]["uri"], name=value.get("name", "")
    )


def bedrock_meaning(request: dict[str, Any]) -> Meaning:
    groups = []
    for message in request["messages"]:
        atoms = [a for b in message["content"] for a in _bedrock_atoms(b)]
        groups.append((message["role"], atoms))
    return _joined(groups)


def _bedrock_atoms(block: dict[str, Any]) -> list[tuple[Any, ...]]:
    ((kind, value),) = block.items()
    match kind:
        case "text":
            return [("text", value)]
        case "toolUse":
            return [("call", value["toolUseId"], value["name"], value["input"])]
        case "toolResult":
            inner = [a for b in value["content"] for a in _bedrock_atoms(b)]
            return [("result", value["toolUseId"], value.get("status") == "error", inner)]
        case "cachePoint":
            return []
        case "image" | "document" | "video":
            return [("media", kind, value["format"], value["source"])]
        case _:
            return [("native", block)]


IMPORT = {"anthropic": anthropic, "gemini": gemini, "bedrock": bedrock}
MEANING = {"anthropic": anthropic_meaning, "gemini": gemini_meaning, "bedrock": bedrock_meaning}
