"""Recorded conversations of the chat and responses wires, read into canonical messages and sent
again: the request means what the recorded one meant, which the provider had accepted."""

from __future__ import annotations

import base64
import re
from typing import Any

import orjson
import pytest

from hermes.core.history import History
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
from hermes.core.provider import Settings
from hermes.llm.history_view import BEGINNING, HistoryView
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire import load_wire
from hermes.llm.wire.request_fields import RequestHead
from tests.wire.recordings import ROOT, Recording, load
from tests.wire.test_openai_oracle import Ours

pytestmark = pytest.mark.skipif(not ROOT.is_dir(), reason="no recordings beside the project")
Json = dict[str, Any]
Said = tuple[Any, ...]
"""One thing said in a request: who, and what, in a form both sides can be brought to."""


def target(api: str) -> Target:
    return Target("p", "m", api)


def encoded(api: str, system: str, messages: list[Message]) -> Json:
    encoder = load_wire(api).Encoder(target(api), Quirks())
    view = HistoryView(target(api), Quirks(), encoder.add_group)
    history = History()
    for message in messages:  # one by one, as in a real session
        history.append(message)
        view.add_new_messages(history)
    body = encoder.build_body(view.pending_groups(), RequestHead(system, (), Settings(), False))
    out: Json = orjson.loads(body)
    return out


# -- media ---------------------------------------------------------------------------------------


def media(part: Json) -> Media | None:
    """What a content part shows; None for a reference to an upload, which we never make."""
    kind = part["type"]
    if kind == "input_audio":
        sound = part["input_audio"]
        mime = {"mp3": "audio/mpeg", "wav": "audio/wav"}[sound["format"]]
        return Media(mime, base64.b64decode(sound["data"]))
    if kind == "file":
        part = part["file"]
    address = part.get("document_url") or part.get("file_data") or part.get("file_url")
    if "image_url" in part:
        address = part["image_url"]
        address = address["url"] if isinstance(address, dict) else address
    if address is None:
        return None
    head, comma, data = address.partition(",")
    if comma and head.startswith("data:"):
        return Media(
            head[5:].partition(";")[0], base64.b64decode(data), name=part.get("filename", "")
        )
    return Media("image/png" if "image" in kind else "application/pdf", url=address)


def parts_of(content: Any) -> list[Part]:
    if not isinstance(content, list):
        return [Text(content)] if content else []
    out: list[Part] = []
    for part in content:
        if part["type"] in ("text", "input_text", "output_text"):
            out.append(Text(part["text"]))
        elif part["type"] == "thinking":
            text = "".join(t["text"] for t in part["thinking"])
            out.append(Thinking(text, {"field": "content"}))
        else:
            out.append(media(part) or Text("[upload]"))
    return out


def meaning(parts: list[Part]) -> tuple[str, tuple[tuple[str, Any], ...]]:
    """(the texts, the media): how texts are joined is not part of the meaning."""
    text = " ".join(" ".join(p.text.split()) for p in parts if isinstance(p, Text) and p.text)
    shown = [(p.mime.partition("/")[0], p.data or p.url) for p in parts if isinstance(p, Media)]
    return text, tuple(shown)


# -- chat ----------------------------------------------------------------------------------------

REASONING = ("reasoning_content", "reasoning")


def chat_messages(request: Json) -> tuple[str, list[Message]]:
    system: list[str] = []
    out: list[Message] = []
    for m in request["messages"]:
        content = m.get("content")
        match m["role"]:
            case "system" | "developer":
                system.append(meaning(parts_of(content))[0])
            case "user":
                out.append(Message("user", tuple(parts_of(content))))
            case "tool":
                kept = tuple(p for p in parts_of(content) if isinstance(p, Text | Media))
                out.append(Message("tool", (ToolReturn(m["tool_call_id"], "", kept),)))
            case "assistant":
                parts: list[Part] = [
                    Thinking(m[field], {"field": field}) for field in REASONING if m.get(field)
                ]
                if m.get("reasoning_details"):
                    parts.append(Thinking("", {"reasoning_details": m["reasoning_details"]}))
                parts += parts_of(content)
                for c in m.get("tool_calls") or ():
                    parts.append(
                        ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"])
                    )
                out.append(Message("assistant", tuple(parts), origin=target("chat")))
    return "\n\n".join(system), out


def chat_said(request: Json) -> list[Said]:
    out: list[Said] = []
    for m in request["messages"]:
        said = meaning(parts_of(m.get("content")))
        match m["role"]:
            case "tool":
                out.append(("result", m["tool_call_id"], *said))
            case "user":
                out.append(("user", *said))
            case "assistant":
                for field in (*REASONING, "reasoning_details"):
                    if m.get(field):
                        out.append((field, m[field]))
                thought = [p.text for p in parts_of(m.get("content")) if isinstance(p, Thinking)]
                out += [("content", t) for t in thought]
                if said[0]:
                    out.append(("assistant", *said))
                for c in m.get("tool_calls") or ():
                    function = c["function"]
                    out.append(("call", c["id"], function["name"], function["arguments"]))
    return joined(out)


# -- responses -----------------------------------------------------------------------------------

SKIPPED = ("additional_tools",)
"""Input we never make: tools announced in the middle of a conversation."""


def input_items(request: Json) -> list[Json]:
    given = request["input"]
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return [i for i in given if i.get("type") not in SKIPPED]


def responses_messages(request: Json) -> tuple[str, list[Message]]:
    system = [request["instructions"]] if request.get("instructions") else []
    out: list[Message] = []

    def assistant(*parts: Part) -> None:
        if out and out[-1].role == "assistant":
            parts = (*out.pop().parts, *parts)
        out.append(Message("assistant", parts, origin=target("responses")))

    for item in input_items(request):
        match item.get("type", "message"):
            case "message" if item["role"] in ("system", "developer"):
                system.append(meaning(parts_of(item["content"]))[0])
            case "message" if item["role"] == "user":
                out.append(Message("user", tuple(parts_of(item["content"]))))
            case "message":
                extra = {"phase": item["phase"]} if item.get("phase") else None
                text = meaning_text(item["content"])
                if text:
                    assistant(Text(text, extra))
            case "reasoning":
                kept = {
                    k: item[k] for k in ("summary", "encrypted_content", "content") if item.get(k)
                }
                assistant(Thinking("", {"summary": [], **kept}))
            case "function_call":
                extra = {"namespace": item["namespace"]} if "namespace" in item else None
                assistant(ToolCall(item["call_id"], item["name"], item["arguments"], extra))
            case "function_call_output":
                content = tuple(p for p in parts_of(item["output"]) if isinstance(p, Text | Media))
                out.append(Message("tool", (ToolReturn(item["call_id"], "", content),)))
            case _:
                assistant(Native(item))
    return "\n\n".join(system), out


def meaning_text(content: Any) -> str:
    return "".join(p.text for p in parts_of(content) if isinstance(p, Text))


def responses_said(request: Json) -> list[Said]:
    out: list[Said] = []
    for item in input_items(request):
        match item.get("type", "message"):
            case "message" if item["role"] == "user":
                out.append(("user", *meaning(parts_of(item["content"]))))
            case "message" if item["role"] == "assistant":
                if text := meaning_text(item["content"]):
                    out.append(("assistant", " ".join(text.split()), (), item.get("phase")))
            case "message":
                pass
            case "reasoning":
                keys = ("summary", "encrypted_content", "content")
                out.append(("reasoning", *(item.get(k) or None for k in keys)))
            case "function_call":
                keys = ("call_id", "name", "arguments", "namespace")
                out.append(("call", *(item.get(k) for k in keys)))
            case "function_call_output":
                out.append(("result", item["call_id"], *meaning(parts_of(item["output"]))))
            case _:
                out.append(("native", {k: v for k, v in item.items() if k != "id"}))
    return joined(out)


IMPORT = {"chat": chat_messages, "responses": responses_messages}
SAID = {"chat": chat_said, "responses": responses_said}


def joined(said: list[Said]) -> list[Said]:
    """Messages of a user that follow each other are one; a beginning that only makes the order
    legal says nothing."""
    out: list[Said] = []
    for one in said:
        if one[:2] == ("user", BEGINNING):
            continue
        if one[0] == "user" and out and out[-1][0] == "user":
            before = out.pop()
            one = ("user", f"{before[1]} {one[1]}".strip(), (*before[2], *one[2]))
        out.append(one)
    return out


# -- the tests -----------------------------------------------------------------------------------


def accepted() -> list[Recording]:
    return [r for api in ("chat", "responses") for r in load(api) if r.status == 200]


@pytest.mark.parametrize("r", [pytest.param(r, id=f"{r.api}-{r.name}") for r in accepted()])
def test_a_recorded_request_sent_again_means_the_same(r: Recording) -> None:
    system, messages = IMPORT[r.api](r.request)
    body = encoded(r.api, system, messages)
    again, _ = IMPORT[r.api](body)
    assert " ".join(again.split()) == " ".join(system.split())
    assert SAID[r.api](body) == SAID[r.api](r.request)


def pairs() -> list[Any]:
    """Each answer with the next recorded request of its conversation."""
    found = {(r.api, r.name): r for r in accepted()}
    out = []
    for (api, name), r in found.items():
        base, _, number = name.rpartition(".")
        later = found.get((api, f"{base}.{int(number) + 1}")) if number.isdecimal() else None
        if later is not None:
            out.append(pytest.param(r, later, id=f"{api}-{name}"))
    return out


def words(text: str) -> str:
    """Quotes and dashes of recorded requests were sometimes made plain."""
    return " ".join(re.findall(r"\w+", text))


def plain(said: list[Said]) -> list[Said]:
    """What an answer says, without what is the recorded client's own choice: in which field (or
    tag in the text) reasoning goes back, an answer's id in front of call ids, arguments and
    results of the provider's own calls written anew."""
    out: list[Said] = []
    for one in said:
        match one:
            case ("assistant", text, media, *phase):
                found = re.fullmatch(r"(?:<think>(.*?)</think>)?(.*)", text, re.S)
                assert found is not None
                if found[1]:
                    out.append(("thought", words(found[1])))
                if found[2].strip():
                    out.append(("assistant", words(found[2]), media, *phase))
            case (field, str(text)) if field in REASONING:
                out.append(("thought", words(text)))
            case ("call", id, *rest):
                out.append(("call", id.rpartition(":")[2], *rest))
            case ("native", data):
                kept = {k: v for k, v in data.items() if k not in ("arguments", "tools")}
                out.append(("native", kept))
            case (("user" | "result"), *_):
                pass
            case _:
                out.append(one)
    return out


@pytest.mark.parametrize(("r", "later"), pairs())
def test_an_answer_goes_back_as_the_provider_accepted_it(r: Recording, later: Recording) -> None:
    system, messages = IMPORT[r.api](r.request)
    ours = Ours(r, iter([r.body]) if r.stream == "sse" else None)
    results = [ToolReturn(c.id, c.name, (Text("result"),)) for c in ours.message.calls]
    history = [*messages, ours.message, *(Message("tool", (x,)) for x in results)]
    sent = plain(SAID[r.api](encoded(r.api, system, history)))
    then = plain(SAID[r.api](later.request))
    begin = len(plain(SAID[r.api](r.request)))
    marks = [one for one in sent[begin:] if one[0] in ("assistant", "call")]
    if ours.failure is not None or not any(mark in then for mark in marks):
        pytest.skip("the next recorded request does not contain this answer")
    if any(isinstance(p, Thinking) and p.extra is None for p in ours.message.parts):
        # What stood in tags we never send back; the recorded client did.
        then = [one for one in then if one[0] != "thought"]
    assert then[: len(sent)] == sent
