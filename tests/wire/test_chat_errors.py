"""Errors of the chat wire, and bodies that are not what was asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes.core.errors import Kind, ProviderError
from hermes.core.events import TextDelta
from hermes.llm.provider_spec import Quirks
from hermes.llm.response_builder import ResponseBuilder
from hermes.llm.wire import chat, sse
from tests.wire.chat_frames import TARGET, Json, Read, chunk, events, stream
from tests.wire.talk import body_reader

# -- errors ------------------------------------------------------------------------------------

OVERFLOW = "This model's maximum context length is 8192 tokens."


def test_error_frames_raise_with_the_providers_words_and_keep_what_came() -> None:
    error = {"message": OVERFLOW, "type": "invalid_request_error", "code": "c", "status_code": 400}
    body = events(
        chunk({"content": "maybe"}),
        "event: error\ndata: " + json.dumps({"error": error}),
        done=False,
    )
    answer = ResponseBuilder()
    decoder = chat.Decoder(answer, Quirks())
    with pytest.raises(ProviderError) as caught:
        decoder.feed(body)
    failure = caught.value.failure
    assert (failure.kind, failure.status, failure.code) == (Kind.CONTEXT_OVERFLOW, 400, "c")
    assert failure.message == OVERFLOW
    assert answer.build_message(TARGET).text == "maybe"


@pytest.mark.parametrize(
    "frame",
    [
        {**chunk({"content": ""}), "error": {"code": 429, "message": "slow down"}},
        {"error": {"code": "429", "message": "slow down"}},
        {"error": {"status": 429, "message": "slow down"}},
        {"error": {"http_status_code": 429, "message": "slow down"}},
        {"object": "error", "message": "slow down", "code": 429},
        {"error": "slow down", "code": 429},
        {"base_resp": {"status_code": 429, "status_msg": "slow down"}},
    ],
)
def test_in_band_errors_of_all_shapes(frame: Json) -> None:
    found = Read.failure(events(chunk({"content": "a"}), frame))
    assert found.kind is Kind.RATE_LIMITED
    assert "slow down" in found.message
    assert Read.failure(json.dumps({**frame, "choices": None}).encode(), is_whole=True) == found


def test_an_error_inside_the_choice() -> None:
    error = {"code": 429, "message": "slow down"}
    choice = {"finish_reason": "error", "error": error}
    for where in ("delta", "message"):
        frame = {"choices": [{**choice, where: {"content": "a"}}]}
        assert Read.failure(events(frame)).kind is Kind.RATE_LIMITED
        assert Read.failure(json.dumps(frame).encode(), is_whole=True).kind is Kind.RATE_LIMITED


def test_an_error_beside_the_usage() -> None:
    stopped = {**chunk({}), "x_groq": {"id": "1", "error": OVERFLOW}}
    assert Read.failure(events(chunk({"content": "a"}), stopped)).kind is Kind.CONTEXT_OVERFLOW


def test_nothing_is_nested_too_deeply() -> None:
    deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"choices":[]}'
    read = Read(b"data: " + deep + b"\n\n" + events(chunk({"content": "a"}, "stop")))
    assert (read.message.text, read.decoder.skipped) == ("a", 1)


def test_the_upstreams_own_words_are_kept() -> None:
    error = {"code": 400, "message": "Provider returned error", "metadata": {"raw": OVERFLOW}}
    assert Read.failure(events({"error": error})).kind is Kind.CONTEXT_OVERFLOW


def test_harmless_frames_are_no_errors() -> None:
    read = stream(
        {"error": None, **chunk({"content": "a"})},
        {"base_resp": {"status_code": 0, "status_msg": ""}, **chunk({"content": "b"})},
        {"id": "x", "type": "ping"},
        {"base_resp": {"status_code": 0, "status_msg": "ok"}},
        chunk({}, "stop", error={}),
    )
    assert read.message.text == "ab"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c", "param": "p"}}, ("c", "m", "p")),
        ({"error": {"message": "m", "type": "t", "code": None, "param": None}}, ("t", "m", "")),
        ({"error": {"message": "m", "code": 400}}, ("400", "m", "")),
        ([{"error": {"message": "m", "code": 1}}], ("1", "m", "")),
        ({"errors": [{"message": "m", "code": 10000}]}, ("10000", "m", "")),
        ({"detail": "Not Found"}, ("", "Not Found", "")),
        ({"detail": [{"msg": "x"}]}, ("", '[{"msg":"x"}]', "")),
        ({"message": "Unauthorized"}, ("", "Unauthorized", "")),
        ({"error": {}}, ("", "", "")),
        ({"id": "x", "type": "ping"}, ("", "", "")),
        ({}, ("", "", "")),
        ("text", ("", "", "")),
        (None, ("", "", "")),
    ],
)
def test_error_bodies(body: Any, expected: tuple[str, str, str]) -> None:
    assert chat.read_error(body, {}) == expected


# -- bodies that are not what was asked for ----------------------------------------------------


def test_a_json_body_read_as_a_stream_and_a_stream_read_as_a_body() -> None:
    body = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}]}
    for data in (
        json.dumps(body).encode(),
        b"\xef\xbb\xbf \n" + json.dumps(body, indent=1).encode(),
    ):
        read = Read(data, size=3)
        assert (read.message.text, read.stop) == ("hi", "end")
        assert read.events == [TextDelta("hi")]
    streamed = b": hello\n\n" + events(chunk({"content": "hi"}, "stop"))
    assert Read(streamed, whole=True).message.text == "hi"
    framed = stream(body)
    assert (framed.message.text, framed.stop) == ("hi", "end")


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("garbage", [b"<oops>", b"{broken", b"[1] warning: metadata:"])
def test_garbage_before_a_stream_does_not_hold_it_up(garbage: bytes, size: int) -> None:
    data = garbage + b"\n" + events(chunk({"content": "hel"}), chunk({"content": "lo"}, "stop"))
    answer = ResponseBuilder()
    reader = body_reader("chat", answer)
    end = data.index(b'"lo"')
    for i in range(0, end, size):
        reader.feed(data[i : min(i + size, end)])
    assert answer.drain_events() == [TextDelta("hel")]
    reader.feed(data[end:])
    reader.close()
    assert (answer.build_message(TARGET).text, answer.stop) == ("hello", "end")


def test_an_endless_plain_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.llm.wire.body_reader.MAX_DOCUMENT", 1000)
    assert sse.MAX_EVENT > 1000
    assert Read.failure(b"{" + b" " * 2000).kind is Kind.ANSWER_TOO_LARGE
