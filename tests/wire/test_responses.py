"""The responses wire: items in any order and state of completion, and requests that replay them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import Kind, ProviderError
from hermes.core.events import CallBegan, StreamEvent, TextDelta, ThinkingDelta
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
    Usage,
)
from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import responses
from hermes.llm.wire.body_reader import BodyReader

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


class Read:
    def __init__(self, body: bytes, *, size: int = 0, whole: bool = False) -> None:
        self.answer = ResponseBuilder()
        self.decoder = responses.Decoder(self.answer, Quirks())
        self.events: list[StreamEvent] = []
        kind = "application/json" if whole else responses.STREAM_TYPE
        reader = BodyReader(self.decoder, kind, responses.STREAM_TYPE, "h")
        for i in range(0, len(body), size or len(body) or 1):
            reader.feed(body[i : i + (size or len(body))])
            self.events += self.answer.drain_events()
        reader.close()
        self.events += self.answer.finish_events()
        self.message = self.answer.build_message(TARGET)
        self.stop = self.answer.stop
        self.parts = self.message.parts


def stream(*values: Json | str) -> Read:
    """Decoded in one piece; byte by byte must give the same."""
    read, slow = Read(frames(*values)), Read(frames(*values), size=1)
    assert read.message == slow.message
    assert read.decoder.activity == slow.decoder.activity
    return read


def whole(*output: Json, **rest: Any) -> Read:
    body = {"id": "r", "object": "response", "status": "completed", "error": None, "usage": USAGE}
    return Read(json.dumps({**body, "output": output, **rest}).encode(), whole=True)


def failure(body: bytes, *, is_whole: bool = False) -> Any:
    with pytest.raises(ProviderError) as caught:
        Read(body, whole=is_whole)
    return caught.value.failure


# -- the ordinary course -----------------------------------------------------------------------


def test_text_comes_once_per_read_and_usage_with_the_terminal_frame() -> None:
    read = stream(
        ev("created", None, response={"status": "in_progress", "usage": None, "tools": [1]}),
        added(message()),
        ev("content_part.added", 0, part={"type": "output_text", "text": ""}),
        delta("Hel"),
        delta("lo"),
        ev("output_text.done", 0, content_index=0, text="Hello"),
        ev("content_part.done", 0, content_index=0, part={"type": "output_text", "text": "Hello"}),
        done(message("Hello")),
        end(),
    )
    assert read.events == [TextDelta("Hello")]
    assert read.parts == (Text("Hello"),)
    assert (read.stop, read.message.usage) == ("end", COUNTED)


def test_a_call_between_text_and_reasoning() -> None:
    read = stream(
        added(reasoning()),
        ev("reasoning_summary_text.delta", 0, summary_index=0, delta="Need "),
        ev("reasoning_summary_text.delta", 0, summary_index=0, delta="a file"),
        ev("reasoning_summary_text.delta", 0, summary_index=1, delta="Then"),
        done(reasoning("Need a file", "Then", encrypted_content="blob")),
        added(message(), 1),
        delta("Reading.", 1),
        done(message("Reading.", phase="commentary"), 1),
        added(function("c1", ""), 2),
        ev("function_call_arguments.delta", 2, delta='{"p"'),
        ev("function_call_arguments.delta", 2, delta=":1}"),
        ev("function_call_arguments.done", 2, arguments='{"p":1}'),
        done(function("c1", '{"p":1}', namespace="files"), 2),
        end(),
    )
    extra = {
        "summary": [
            {"type": "summary_text", "text": "Need a file"},
            {"type": "summary_text", "text": "Then"},
        ],
        "encrypted_content": "blob",
    }
    assert read.parts == (
        Thinking("Need a file\n\nThen", extra),
        Text("Reading.", {"phase": "commentary"}),
        ToolCall("c1", "read", '{"p":1}', {"namespace": "files"}),
    )
    assert read.stop == "tool_use"
    assert read.events == [
        ThinkingDelta("Need a file\n\nThen"),
        TextDelta("Reading."),
        CallBegan("read"),
    ]
    same = whole(
        reasoning("Need a file", "Then", encrypted_content="blob"),
        message("Reading.", phase="commentary"),
        function("c1", '{"p":1}', namespace="files"),
    )
    assert (same.parts, same.stop, same.message.usage) == (read.parts, "tool_use", COUNTED)


def test_the_last_word_is_known_before_the_stream_ends() -> None:
    decoder = responses.Decoder(ResponseBuilder(), Quirks())
    decoder.feed(frames(done(message("hi"))))
    assert not decoder.ended
    decoder.feed(frames(end()))
    assert decoder.ended


@pytest.mark.parametrize("line_order", ["data first", "no name", "done at the end"])
def test_framing_is_free(line_order: str) -> None:
    values = [added(message()), delta("hi"), done(message("hi")), end()]
    out = ""
    for value in values:
        data = f"data: {json.dumps(value)}\n"
        out += data + f"event: {value['type']}\n\n" if line_order == "data first" else data + "\n"
    if line_order == "done at the end":
        out += "data: [DONE]\n\ndata: [DONE]\n\ndata: " + json.dumps(delta("ghost")) + "\n\n"
    assert Read(out.encode()).parts == (Text("hi"),)


# -- completeness ------------------------------------------------------------------------------


def test_everything_from_item_done_alone() -> None:
    read = stream(done(reasoning("why")), done(message("a", "b"), 1), done(function(), 2), end())
    assert [type(p) for p in read.parts] == [Thinking, Text, ToolCall]
    assert read.message.text == "ab"
    assert read.events[:2] == [ThinkingDelta("why"), TextDelta("ab")]


def test_everything_from_deltas_alone() -> None:
    read = stream(added(message()), delta("hi"), end())
    assert read.parts == (Text("hi"),)
    bare = stream(delta("hi"), end())
    assert (bare.parts, bare.stop) == ((Text("hi"),), "end")


def test_items_are_ordered_by_index_and_ids_mean_nothing() -> None:
    read = stream(
        added(reasoning(id="tmp1")),
        added(message(id="tmp2"), 1),
        delta("4", 1),
        done(message("4", id="tmp2"), 1),
        ev("reasoning_text.delta", 0, content_index=0, delta="two and two"),
        done(reasoning(id="tmp1", content=[{"type": "reasoning_text", "text": "two and two"}]), 0),
        end(
            output=[
                reasoning(id="x", content=[{"type": "reasoning_text", "text": "two and two"}]),
                message("4", id="y"),
            ]
        ),
    )
    assert [type(p) for p in read.parts] == [Thinking, Text]
    assert read.message.thinking == "two and two"
    assert read.message.text == "4"


def test_an_item_never_done_is_taken_from_the_terminal_frame() -> None:
    listing = {"type": "mcp_list_tools", "id": "l", "server_label": "s", "tools": [{"name": "t"}]}
    read = stream(
        added({**listing, "tools": []}),
        added(message(), 1),
        delta("ok", 1),
        done(message("ok"), 1),
        end(output=[listing, message("ok")]),
    )
    assert read.parts == (Native(listing), Text("ok"))
    without = stream(added({**listing, "tools": []}), done(message("ok"), 1), end())
    assert without.parts == (Text("ok"),)


def test_a_terminal_frame_that_does_not_fit_the_stream_adds_nothing() -> None:
    read = stream(
        added(message(), 1), delta("ok", 1), done(message("ok"), 1), end(output=[message("ok")])
    )
    assert read.parts == (Text("ok"),)


def test_a_terminal_frame_alone_is_an_answer() -> None:
    assert stream(end(output=[message("hi"), function()])).parts == (
        Text("hi"),
        ToolCall("c1", "read", "{}"),
    )


@pytest.mark.parametrize("at", [0, None])
def test_one_index_for_all_items_or_none(at: int | None) -> None:
    read = stream(
        added(reasoning(), at),
        ev("reasoning_summary_text.delta", at, delta="why"),
        done(reasoning("why"), at),
        added(function("a", ""), at),
        ev("function_call_arguments.delta", at, delta='{"x":1}'),
        done(function("a", '{"x":1}'), at),
        added(function("b", ""), at),
        ev("function_call_arguments.delta", at, delta='{"x":2}'),
        done(function("b", '{"x":2}'), at),
        end(),
    )
    assert [c.args for c in read.message.calls] == ['{"x":1}', '{"x":2}']
    assert read.message.thinking == "why"


def test_calls_with_one_index_and_one_id_are_two() -> None:
    read = stream(
        *(e for x in "12" for e in (added(function("c", "")), done(function("c", f'{{"x":{x}}}')))),
        end(),
    )
    assert [c.args for c in read.message.calls] == ['{"x":1}', '{"x":2}']


def test_reasoning_that_is_never_done_keeps_its_place() -> None:
    read = stream(
        done(message("4"), 1),
        ev("reasoning_text.delta", 0, content_index=0, delta="two and two"),
        end(),
    )
    assert read.parts == (Thinking("two and two"), Text("4"))


def test_a_stream_without_terminal_frame_is_complete_when_it_has_content() -> None:
    assert stream(added(message()), delta("hi")).stop == "end"
    read = stream(added(function("c", "")), ev("function_call_arguments.done", 0, arguments="{}"))
    assert (read.stop, read.message.calls[0].args) == ("tool_use", "{}")
    assert read.message.usage is not None and read.message.usage.estimated


def test_a_stream_that_ends_inside_a_call_died() -> None:
    read = stream(
        delta("text", 0),
        added(function("c", ""), 1),
        ev("function_call_arguments.delta", 1, delta='{"a'),
    )
    assert read.stop == "died"
    assert read.answer.call_names == ("read",)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [ev("created", None, response={})],
        [done(reasoning("only thoughts"))],
        [done({"type": "web_search_call", "id": "w"})],
        [added(message())],
    ],
)
def test_neither_terminal_frame_nor_content_is_a_failure(values: list[Json]) -> None:
    found = failure(frames(*values))
    assert found.kind is Kind.NO_TERMINAL
    assert "did not emit a terminal response" in found.message


# -- what is not ours to run -------------------------------------------------------------------


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "w", "action": {"query": "q"}},
        {"type": "mcp_call", "id": "m", "name": "ask", "arguments": "{}", "output": "x"},
        {"type": "code_interpreter_call", "id": "c", "code": "1+1"},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {}},
        {"type": "compaction", "id": "k", "encrypted_content": "blob"},
        {"type": "brand_new_item", "id": "n", "name": "f", "call_id": "z", "arguments": "{}"},
    ],
)
def test_the_providers_own_items_are_kept_and_are_no_calls(item: Json) -> None:
    read = stream(
        added(item),
        ev("mcp_call_arguments.delta", 0, delta='{"a"'),
        ev("code_interpreter_call_code.delta", 0, delta="1+1"),
        ev("function_call_arguments.delta", 0, delta='{"stray"'),
        done(item),
        done(message("ok"), 1),
        end(),
    )
    assert read.parts == (Native(item), Text("ok"))
    assert read.stop == "end"
    assert whole(item, message("ok")).parts == read.parts


def test_reasoning_with_nothing_readable_is_kept_for_replay_only() -> None:
    blob = reasoning(encrypted_content="blob")
    read = stream(added(reasoning()), done(blob), done(message("ok"), 1), end())
    assert read.parts == (Thinking("", {"summary": [], "encrypted_content": "blob"}), Text("ok"))
    assert read.events == [TextDelta("ok")]
    assert stream(done(reasoning()), done(message("ok"), 1), end()).parts == (Text("ok"),)


def test_open_reasoning_goes_back_under_its_id_and_sealed_reasoning_without() -> None:
    content = [{"type": "reasoning_text", "text": "open"}]
    read = stream(
        done(reasoning(content=content)),
        done(reasoning(encrypted_content="blob"), 1),
        done(message("ok"), 2),
        end(),
    )
    assert body(HI, read.message, HI)["input"][1:3] == [
        {"type": "reasoning", "summary": [], "content": content, "id": "rs1"},
        {"type": "reasoning", "summary": [], "encrypted_content": "blob"},
    ]


def test_summary_and_content_of_one_item_count_once() -> None:
    content = [{"type": "reasoning_text", "text": "long"}]
    read = stream(
        ev("reasoning_summary_text.delta", 0, summary_index=0, delta="short"),
        ev("reasoning_text.delta", 0, content_index=0, delta="long"),
        done(reasoning("short", content=content)),
        done(message("ok"), 1),
        end(),
    )
    assert read.message.thinking == "short"
    assert whole(reasoning("short", content=content), message("ok")).message.thinking == "long"


# -- endings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("last", "stop"),
    [
        (end(), "end"),
        (end("incomplete", incomplete_details={"reason": "max_output_tokens"}), "length"),
        (end("incomplete", incomplete_details={"reason": "content_filter"}), "filtered"),
        (end("incomplete", incomplete_details=None), "end"),
        (end("cancelled"), "died"),
    ],
)
def test_how_a_text_ends(last: Json, stop: str) -> None:
    assert stream(added(message()), delta("hi"), last).stop == stop


@pytest.mark.parametrize(("args", "stop"), [('{"a', "length"), ("", "length"), ("{}", "tool_use")])
def test_a_call_cut_by_the_limit_says_so(args: str, stop: str) -> None:
    last = end("incomplete", incomplete_details={"reason": "max_output_tokens"})
    read = stream(
        added(function("c", "")), ev("function_call_arguments.delta", 0, delta=args), last
    )
    assert read.stop == stop


def test_a_refusal_is_filtered_with_its_words() -> None:
    refusal = {"type": "message", "content": [{"type": "refusal", "refusal": "I won't."}]}
    read = stream(
        added(message()),
        ev("refusal.delta", 0, content_index=0, delta="I "),
        ev("refusal.delta", 0, content_index=0, delta="won't."),
        ev("refusal.done", 0, content_index=0, refusal="I won't."),
        done(refusal),
        end(),
    )
    assert (read.stop, read.answer.detail, read.parts) == ("filtered", "I won't.", ())
    assert whole(refusal).answer.detail == "I won't."
    short = stream(
        ev("refusal.delta", 0, content_index=0, delta="I "),
        ev("refusal.done", 0, content_index=0, refusal="I won't."),
    )
    assert (short.stop, short.answer.detail) == ("filtered", "I won't.")


# -- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        end("failed", error={"code": "rate_limit_exceeded", "message": "Rate limit reached"}),
        {"type": "error", "code": "rate_limit_exceeded", "message": "Rate limit reached"},
        {"type": "error", "error": {"code": 429, "message": "Rate limit reached"}},
        {"error": {"code": "429", "message": "Rate limit reached"}},
        'event: error\ndata: {"code": 429, "message": "Rate limit reached"}',
    ],
)
def test_errors_in_the_stream(frame: Json | str) -> None:
    found = failure(frames(delta("so far"), frame))
    assert found.kind is Kind.RATE_LIMITED
    assert "Rate limit reached" in found.message


def test_a_failure_without_words() -> None:
    assert failure(frames(end("failed"))).kind is Kind.SERVER


def test_unknown_events_are_skipped() -> None:
    read = stream(
        {"type": "keepalive", "sequence_number": 1},
        ev("brand_new.delta", 0, delta="x", error={"about": "a tool"}),
        ev("queued", None, response={"status": "queued"}),
        "data: {broken",
        "data: 7",
        {"no": "type"},
        {"type": 5},
        {"type": "response.output_text.delta", "delta": 7},
        done(message("ok")),
        end(),
    )
    assert read.parts == (Text("ok"),)
    assert read.decoder.skipped == 1


@pytest.mark.parametrize("odd", ["\\ud800", "\\u0000", "\x80"])
def test_odd_characters_anywhere_are_replaced(odd: str) -> None:
    body = frames(
        added(message()), delta("a?b"), done(message("a?b")), end(output=[message("a?b")])
    )
    read = Read(body.replace(b"?", odd.encode("latin-1")))
    assert read.parts == (Text("a\ufffdb"),)
    assert read.message.usage == COUNTED


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html>", Kind.NOT_API),
        (b"[]", Kind.NOT_API),
        (b'{"status_page":"ok"}', Kind.NOT_API),
        (b'{"output":[{"ty', Kind.NETWORK),
        (b'{"error":{"message":"m","code":"model_not_found"}}', Kind.MODEL_NOT_FOUND),
        (
            b'{"status":"failed","output":[],"error":{"code":"server_error","message":"x"}}',
            Kind.SERVER,
        ),
    ],
)
def test_bodies_that_are_no_answer(body: bytes, kind: Kind) -> None:
    assert failure(body, is_whole=True).kind is kind
    assert failure(body).kind is kind


def test_bodies_that_are_not_what_was_asked_for() -> None:
    body = {"status": "completed", "output": [message("hi")], "usage": None}
    assert Read(json.dumps(body).encode(), size=2).parts == (Text("hi"),)
    assert Read(frames(done(message("hi")), end()), whole=True).parts == (Text("hi"),)
    shortcut = {"status": "completed", "output": None, "output_text": "hi"}
    assert Read(json.dumps(shortcut).encode(), whole=True).parts == (Text("hi"),)
    queued = {"status": "queued", "output": [], "usage": None, "error": None}
    assert Read(json.dumps(queued).encode(), whole=True).parts == ()


KEYS = (
    "type output_index content_index delta item part text arguments response output content "
    "summary status error usage input_tokens call_id name id refusal"
).split()
KINDS = ["response.output_item.done", "response.output_item.added", "response.completed", "message"]
KINDS += ["function_call", "reasoning", "response.output_text.delta", "response.refusal.delta"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["", "a", *KINDS]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4))
@settings(max_examples=150, deadline=None)
def test_no_json_can_crash_the_decoder(values: list[Any]) -> None:
    body = b"".join(b"data: " + json.dumps(v).encode() + b"\n\n" for v in values)
    for data, is_whole in ((body, False), (json.dumps(values[:1]).encode()[1:-1], True)):
        answer = ResponseBuilder()
        decoder = responses.Decoder(answer, Quirks())
        try:
            if is_whole:
                decoder.whole(data)
            else:
                decoder.feed(data)
                decoder.close()
        except ProviderError:
            pass
        answer.finish_events()
        answer.build_message(TARGET)


# -- requests ----------------------------------------------------------------------------------

TOOL = ToolSpec("read", "Reads.", {"type": "object", "properties": {"p": {"type": "string"}}})
PLAIN = Quirks()
DEFAULTS = Settings()


def body(
    *groups: Message,
    quirks: Quirks = PLAIN,
    settings: Settings = DEFAULTS,
    system: str = "sys",
    tools: tuple[ToolSpec, ...] = (),
    stream: bool = True,
) -> Json:
    encoder = responses.Encoder(TARGET, quirks)
    for group in groups[:-1]:
        encoder.push(group)
    raw = encoder.body(groups[-1:], system=system, tools=tools, settings=settings, stream=stream)
    out: Json = json.loads(raw)
    return out


def user(*parts: Part) -> Message:
    return Message("user", parts)


def assistant(*parts: Part) -> Message:
    return Message("assistant", parts)


HI = user(Text("hi"))


def test_the_envelope() -> None:
    assert body(HI) == {
        "model": "m",
        "stream": True,
        "store": False,
        "instructions": "sys",
        "input": [{"role": "user", "content": "hi"}],
    }
    settings = Settings(max_output=9, temperature=0.5, effort="high")
    full = body(HI, settings=settings, tools=(TOOL,), quirks=Quirks(effort="effort", store=True))
    tool = {"name": "read", "description": "Reads.", "parameters": TOOL.parameters}
    assert full == {
        "model": "m",
        "stream": True,
        "store": True,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 9,
        "temperature": 0.5,
        "reasoning": {"effort": "high", "summary": "auto"},
        "instructions": "sys",
        "tools": [{"type": "function", **tool, "strict": False}],
        "input": [{"role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize(
    ("quirks", "effort", "fields"),
    [
        (Quirks(), "high", {}),
        (Quirks(effort="effort"), None, {"include": ["reasoning.encrypted_content"]}),
        (Quirks(effort="effort"), "none", {"reasoning": {"effort": "none"}}),
        (
            Quirks(effort="effort", thinking_replay="drop"),
            "low",
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (
            Quirks(effort="effort", drop=("reasoning.summary", "include")),
            "low",
            {"reasoning": {"effort": "low"}},
        ),
    ],
)
def test_reasoning_effort(quirks: Quirks, effort: Any, fields: Json) -> None:
    out = body(HI, quirks=quirks, settings=Settings(effort=effort))
    assert {k: v for k, v in out.items() if k in ("include", "reasoning")} == fields


@pytest.mark.parametrize(
    "kind", ["custom_tool_call", "computer_call", "apply_patch_call", "shell_call", "program"]
)
def test_what_waits_for_another_client_is_not_sent_back_alone(kind: str) -> None:
    """It is refused without its output, and nobody here runs it."""
    item = {"type": kind, "id": "i", "call_id": "c", "created_by": "somebody"}
    read = whole(reasoning(encrypted_content="e"), item)
    assert (read.stop, body(HI, assistant(*read.parts), HI)["input"][1:]) == (
        "end",
        [{"role": "user", "content": "hi"}],
    )
    output = {"type": f"{kind}_output", "id": "o", "call_id": "c", "output": []}
    ran = body(HI, assistant(*whole(item, output, message("ok")).parts))["input"]
    sent = {k: v for k, v in item.items() if k != "created_by"}
    assert ran[1:] == [sent, output, {"role": "assistant", "content": "ok"}]


def test_replayed_items_carry_what_they_must_and_no_ids() -> None:
    searched = {"type": "web_search_call", "id": "ws", "status": "completed"}
    listed = {"type": "mcp_list_tools", "id": "l", "tools": []}
    out = body(
        HI,
        assistant(
            Thinking(
                "why",
                {"summary": [{"type": "summary_text", "text": "why"}], "encrypted_content": "e"},
            ),
            Native(searched),
            Native(listed),
            Text("Reading.", {"phase": "commentary"}),
            ToolCall("c1", "read", '{"p" : 1}', {"namespace": "files"}),
            ToolCall("c2", "list"),
        ),
        user(
            ToolReturn("c1", "read", (Text("one"),)),
            ToolReturn("c2", "list", (Text("shot"), Media("image/png", b"\x89P"))),
            Text("go"),
            Text("on"),
        ),
    )
    assert out["input"][1:] == [
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "why"}],
            "encrypted_content": "e",
        },
        {"type": "web_search_call", "status": "completed"},
        listed,
        {"role": "assistant", "content": "Reading.", "phase": "commentary"},
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "read",
            "arguments": '{"p" : 1}',
            "namespace": "files",
        },
        {"type": "function_call", "call_id": "c2", "name": "list", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {
            "type": "function_call_output",
            "call_id": "c2",
            "output": [
                {"type": "input_text", "text": "shot"},
                {
                    "type": "input_image",
                    "image_url": "data:image/png;base64,iVA=",
                    "detail": "auto",
                },
            ],
        },
        {"role": "user", "content": "go\n\non"},
    ]


def test_reasoning_that_cannot_be_checked_or_led_nowhere_is_not_sent() -> None:
    sealed = Thinking("x", {"summary": [], "encrypted_content": "e"})
    out = body(
        HI, assistant(Thinking("broke off"), Thinking("", {"summary": []}), Text("a"), sealed), HI
    )
    assert out["input"][1:] == [
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "hi"},
    ]


def test_images_and_files() -> None:
    out = body(
        user(
            Text("see"),
            Media("image/png", url="https://x/y.png"),
            Media("application/pdf", b"%PDF", name="a.pdf"),
            Media("application/pdf", url="https://x/a.pdf"),
            Media("audio/mpeg", b"x", name="a.mp3"),
        )
    )
    assert out["input"][0]["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
        {
            "type": "input_file",
            "filename": "a.pdf",
            "file_data": "data:application/pdf;base64,JVBERg==",
        },
        {"type": "input_file", "file_url": "https://x/a.pdf"},
        {"type": "input_text", "text": "[a.mp3 (audio/mpeg) cannot be shown to this model]"},
    ]


@pytest.mark.parametrize("args", ['{"a":', "[1]", "oops"])
def test_arguments_that_are_no_object_are_told_legally(args: str) -> None:
    out = body(HI, assistant(ToolCall("c", "f", args)), user(ToolReturn("c", "f")))
    value = json.loads(out["input"][1]["arguments"])
    assert isinstance(value, dict) and value


def test_consecutive_requests_share_their_prefix_byte_for_byte() -> None:
    encoder = responses.Encoder(TARGET, Quirks())
    last = b""
    for i in range(12):
        group = user(Text(f"q{i}")) if i % 2 == 0 else assistant(Text(f"a{i}"))
        if i % 2 == 0:
            raw = encoder.body([group], system="s", tools=(TOOL,), settings=DEFAULTS, stream=True)
            assert raw.startswith(last)
            assert len(json.loads(raw)["input"]) == i + 1
            last = raw.removesuffix(b"]}")
        encoder.push(group)


def test_an_answer_survives_the_round_trip() -> None:
    read = stream(
        done(reasoning("why", encrypted_content="blob")),
        done(function("c1", '{"p": 1}', namespace="n"), 1),
        end(),
    )
    sent = body(HI, read.message, user(ToolReturn("c1", "read", (Text("r"),))))["input"]
    assert sent[1]["encrypted_content"] == "blob"
    assert sent[2] == {
        "type": "function_call",
        "call_id": "c1",
        "name": "read",
        "arguments": '{"p": 1}',
        "namespace": "n",
    }


def test_url() -> None:
    assert responses.url("https://h/v1/", "m", stream=True) == "https://h/v1/responses"
    assert responses.url("https://h/v1?a=b", "m", stream=False) == "https://h/v1/responses?a=b"
