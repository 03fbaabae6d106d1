"""Requests read back: one neutral shape for five wires, and the rules real providers apply."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.kit.server import Received

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""What OpenAI, Anthropic, Bedrock and Gemini all accept as the name of a function."""
_ODD = re.compile(rb"\0|\\u(0000|[dD][89a-fA-F])")
"""Only a body with one of these can hold a NUL or half a pair."""
WRAPPED = re.compile(
    r"<(?P<mark>data-[0-9a-f]{6})>\n(?P<inside>.*)\n</(?P=mark)>(?P<behind>\n\nUser guidance: .*)?",
    re.S,
)
"""How a tool result is sent."""


@dataclass
class Seen:
    """One message of a request. `calls` are (id, name, raw arguments), `results` (id, text)."""

    role: str
    text: str = ""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    images: list[bytes] = field(default_factory=list)
    thoughts: list[Any] = field(default_factory=list)
    """Reasoning sent back, as the wire carries it."""


def messages(request: Received) -> list[Seen]:
    """The conversation of a request, system prompt left out, consecutive tool results as one
    message of role `tool` (wires that put them into a user message: their text stays there)."""
    return _READERS[request.wire](request.json)


def quoted(text: str) -> str:
    """What a tool returned, taken out of the wrapper it must have been sent in; what stands behind
    the wrapper stays."""
    found = WRAPPED.fullmatch(text)
    assert found, f"not wrapped: {text!r}"
    return found["inside"] + (found["behind"] or "")


def system(request: Received) -> str:
    body = request.json
    match request.wire:
        case "chat":
            first = body["messages"][0]
            return _text(first["content"]) if first["role"] in ("system", "developer") else ""
        case "responses":
            return str(body.get("instructions") or "")
        case "anthropic":
            return _text(body.get("system") or "")
        case "gemini":
            parts = (body.get("systemInstruction") or body.get("system_instruction") or {}).get(
                "parts", []
            )
            return "".join(p.get("text", "") for p in parts)
        case _:
            return "".join(b.get("text", "") for b in body.get("system") or [])


def tools(request: Received) -> list[str]:
    body = request.json
    match request.wire:
        case "chat":
            return [t["function"]["name"] for t in body.get("tools") or []]
        case "gemini":
            groups = body.get("tools") or []
            return [d["name"] for g in groups for d in g.get("functionDeclarations", [])]
        case "bedrock":
            specs = (body.get("toolConfig") or {}).get("tools", [])
            return [t["toolSpec"]["name"] for t in specs if "toolSpec" in t]
        case _:
            return [t["name"] for t in body.get("tools") or [] if "name" in t]


def max_tokens(request: Received) -> int | None:
    body = request.json
    match request.wire:
        case "chat":
            return body.get("max_tokens") or body.get("max_completion_tokens")
        case "responses":
            return body.get("max_output_tokens")
        case "anthropic":
            return body.get("max_tokens")
        case "gemini":
            return (body.get("generationConfig") or {}).get("maxOutputTokens")
        case _:
            return (body.get("inferenceConfig") or {}).get("maxTokens")


def prefix(request: Received) -> bytes:
    """The raw body up to the end of its last message: what a longer request must begin with."""
    body = request.body.rstrip()
    end = body.rindex(b"]")
    assert json.loads(body[: end + 1] + b"}" * _open_braces(body[: end + 1])) is not None
    return body[:end]


def _open_braces(data: bytes) -> int:
    depth, inside, escaped = 0, False, False
    for byte in data:
        char = chr(byte)
        if inside:
            inside = escaped or char != '"'
            escaped = char == "\\" and not escaped
        elif char == '"':
            inside = True
        else:
            depth += (char == "{") - (char == "}")
    return depth


# -- the rules -----------------------------------------------------------------------------


def check_legal(request: Received) -> list[Seen]:
    """What every provider demands of a history: first a user's message, roles alternate, each
    call exactly one result and right behind it, no orphan result, ids unique, nothing empty."""
    seen = messages(request)
    assert seen, "no messages at all"
    assert seen[0].role == "user", f"the first message is of {seen[0].role}"
    assert seen[-1].role in ("user", "tool"), "nothing to answer"
    ids: list[str] = []
    open_calls: list[tuple[str, str, str]] = []
    before = ""
    for message in seen:
        assert not (message.role == before and before in ("user", "assistant")), (
            f"two messages of {before} in a row"
        )
        if message.role == "tool" or message.results:
            assert before == "assistant", f"results behind a message of {before}"
            got = [id for id, _ in message.results]
            wanted = [id for id, _, _ in open_calls]
            assert got == wanted, f"results {got} for calls {wanted}"
            open_calls = []
        assert not open_calls, f"calls without a result: {open_calls}"
        if message.role == "assistant":
            open_calls = message.calls
            ids += [id for id, _, _ in message.calls]
            assert message.text or message.calls, "an assistant message without content"
            for _, name, args in message.calls:
                assert NAME.fullmatch(name), f"a call of {name!r}"
                assert isinstance(json.loads(args or "{}"), dict), f"arguments {args!r}"
        elif message.role == "user":
            assert message.text or message.images or message.results, "an empty user message"
        before = message.role
    assert not open_calls, f"calls without a result: {open_calls}"
    assert len(ids) == len(set(ids)), f"call ids are not unique: {ids}"
    request.body.decode("utf-8")
    for text in _strings(request.json) if _ODD.search(request.body) else ():
        assert "\0" not in text, f"a NUL went out: {text!r}"
        text.encode()
    return seen


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


# -- readers -------------------------------------------------------------------------------


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(p.get("text") or "" for p in content or [] if isinstance(p, dict))


def _data_url(url: str) -> bytes:
    return base64.b64decode(url.split(",", 1)[1])


def _chat(body: Any) -> list[Seen]:
    out: list[Seen] = []
    for m in body["messages"]:
        match m["role"]:
            case "system" | "developer":
                continue
            case "tool":
                if not out or out[-1].role != "tool":
                    out.append(Seen("tool"))
                out[-1].results.append((m["tool_call_id"], _text(m["content"])))
                out[-1].images += _chat_images(m)
            case role:
                seen = Seen(role, _text(m.get("content")), images=_chat_images(m))
                for c in m.get("tool_calls") or []:
                    f = c["function"]
                    assert isinstance(f["arguments"], str)
                    seen.calls.append((c["id"], f["name"], f["arguments"]))
                seen.thoughts = [m[k] for k in ("reasoning_content", "reasoning") if m.get(k)]
                out.append(seen)
    return out


def _chat_images(message: Any) -> list[bytes]:
    parts = message["content"] if isinstance(message.get("content"), list) else []
    return [_data_url(p["image_url"]["url"]) for p in parts if p.get("type") == "image_url"]


def _responses(body: Any) -> list[Seen]:
    out: list[Seen] = []

    def last(role: str) -> Seen:
        if not out or out[-1].role != role:
            out.append(Seen(role))
        return out[-1]

    for item in body["input"]:
        match item.get("type", "message"):
            case "message":
                if item["role"] == "assistant":
                    last("assistant").text += _text(item["content"])
                    continue
                seen = Seen("user", _text(item["content"]))
                for p in item["content"] if isinstance(item["content"], list) else []:
                    if p.get("type") == "input_image":
                        seen.images.append(_data_url(p["image_url"]))
                out.append(seen)
            case "function_call":
                last("assistant").calls.append((item["call_id"], item["name"], item["arguments"]))
            case "function_call_output":
                result = (item["call_id"], _text(item["output"]))
                last("tool").results.append(result)
            case "reasoning":
                last("assistant").thoughts.append(item)
    return out


def _anthropic(body: Any) -> list[Seen]:
    out: list[Seen] = []
    for m in body["messages"]:
        seen = Seen(m["role"], _text(m["content"]))
        for b in m["content"] if isinstance(m["content"], list) else []:
            match b["type"]:
                case "tool_use":
                    assert isinstance(b["input"], dict)
                    seen.calls.append((b["id"], b["name"], json.dumps(b["input"])))
                case "tool_result":
                    assert not seen.text or b is not m["content"][-1], "results come first"
                    seen.results.append((b["tool_use_id"], _text(b.get("content") or "")))
                case "image":
                    seen.images.append(base64.b64decode(b["source"]["data"]))
                case "thinking" | "redacted_thinking":
                    seen.thoughts.append(b)
        out.append(seen)
    return out


def _gemini(body: Any) -> list[Seen]:
    """Ids may be absent here: results are paired by place, as the service does."""
    out: list[Seen] = []
    pending: list[str] = []
    number = 0
    for c in body["contents"]:
        role = "assistant" if c["role"] == "model" else "user"
        seen = Seen(role)
        answers = 0
        for p in c["parts"]:
            if "functionCall" in p:
                number += 1
                f = p["functionCall"]
                key = f.get("id") or f"#{number}:{f['name']}"
                seen.calls.append((key, f["name"], json.dumps(f.get("args") or {})))
                if "thoughtSignature" in p:
                    seen.thoughts.append(p["thoughtSignature"])
            elif "functionResponse" in p:
                f = p["functionResponse"]
                key = f.get("id") or (pending[answers] if answers < len(pending) else "?")
                assert key.startswith("#") is False or key.endswith(":" + f["name"])
                answers += 1
                seen.results.append((key, _gemini_result(f["response"])))
            elif "inlineData" in p:
                seen.images.append(base64.b64decode(p["inlineData"]["data"]))
            elif p.get("thought"):
                seen.thoughts.append(p)
            elif "text" in p:
                seen.text += p["text"]
                if "thoughtSignature" in p:
                    seen.thoughts.append(p["thoughtSignature"])
        pending = [id for id, _, _ in seen.calls]
        out.append(seen)
    return out


def _gemini_result(response: Any) -> str:
    if isinstance(response, dict):
        for key in ("output", "result", "error", "content"):
            if isinstance(response.get(key), str):
                return str(response[key])
    return json.dumps(response, ensure_ascii=False)


def _bedrock(body: Any) -> list[Seen]:
    out: list[Seen] = []
    for m in body["messages"]:
        seen = Seen(m["role"])
        for b in m["content"]:
            if "text" in b:
                seen.text += b["text"]
            elif "toolUse" in b:
                use = b["toolUse"]
                assert isinstance(use["input"], dict)
                seen.calls.append((use["toolUseId"], use["name"], json.dumps(use["input"])))
            elif "toolResult" in b:
                result = b["toolResult"]
                seen.results.append((result["toolUseId"], _text(result["content"])))
            elif "image" in b:
                seen.images.append(base64.b64decode(b["image"]["source"]["bytes"]))
            elif "reasoningContent" in b:
                seen.thoughts.append(b)
        out.append(seen)
    return out


_READERS = {
    "chat": _chat,
    "responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "bedrock": _bedrock,
}
