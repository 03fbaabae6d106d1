"""The SSE parser: one result for every way of cutting, and the same as an independent one."""

from __future__ import annotations

import pytest
from httpx_sse._decoders import SSEDecoder, SSELineDecoder
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.core.errors import Kind, ProviderError
from hermes.llm.wire import sse
from hermes.llm.wire.sse import SseParser

Events = list[tuple[str, bytes]]


def parse(*pieces: bytes) -> Events:
    parser = SseParser()
    out: Events = []
    for piece in pieces:
        out += parser.feed(piece)
    return out + parser.close()


def cut(data: bytes, marks: list[int]) -> list[bytes]:
    points = sorted({min(m, len(data)) for m in marks})
    return [data[a:b] for a, b in zip([0, *points], [*points, len(data)], strict=True)]


def oracle(data: bytes) -> Events:
    """httpx-sse, given whole lines. It also dispatches events without any data line (an id, a
    retry), which nobody has a use for, and calls a nameless event `message`."""
    lines, events = SSELineDecoder(), SSEDecoder()
    out: Events = []
    has_data = False
    text = data.decode().removeprefix("\ufeff")
    for line in (*(lines.decode(text) if text else ()), *lines.flush(), ""):
        event = events.decode(line)
        if event is not None and has_data:
            out.append((event.event, event.data.encode()))
        has_data = bool(line) and (has_data or line.partition(":")[0] == "data")
    return out


def named(events: Events) -> Events:
    return [(name or "message", data) for name, data in events]


LINES = st.sampled_from(
    [
        "data: {}",
        'data: {"a":"é€😀"}',
        "data:tight",
        "data:  two spaces",
        "data",
        "data:",
        "data: with: colons",
        "event: message",
        "event:x",
        "event",
        "id: 7",
        "retry: 10",
        ": comment",
        ":",
        "garbage",
        "{not a field}",
        "dataset: 1",
        "",
        "",
        "",
    ]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    text = "".join(line + draw(ENDS) for line in draw(st.lists(LINES, max_size=25)))
    if draw(st.booleans()):
        text += "data: last"
    return (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + text.encode()


@given(streams(), st.lists(st.integers(0, 400), max_size=30))
@settings(max_examples=200, deadline=None)
def test_every_cutting_gives_the_events_of_the_oracle(data: bytes, marks: list[int]) -> None:
    expected = oracle(data)
    assert named(parse(data)) == expected
    assert named(parse(*cut(data, marks))) == expected
    assert named(parse(*(data[i : i + 1] for i in range(len(data))))) == expected


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_parsed_alike_however_they_are_cut(data: bytes, marks: list[int]) -> None:
    assert parse(*cut(data, marks)) == parse(data)


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (b"data: a\n\ndata: b\n\n", [("", b"a"), ("", b"b")]),
        (b"event: e\ndata: a\n\n", [("e", b"a")]),
        (b"data: a\nevent: e\n\n", [("e", b"a")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"event: e\n\ndata: a\n\n", [("", b"a")]),
        (b": ping\n\n: ping\n\n", []),
        (b"data: a\r\n\r\ndata: b\r\r", [("", b"a"), ("", b"b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b"data: no blank line", [("", b"no blank line")]),
        (b"", []),
    ],
)
def test_shapes(data: bytes, events: Events) -> None:
    assert parse(data) == events


def test_an_event_is_given_out_as_soon_as_its_blank_line_is_there() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n") == []
    assert parser.feed(b"\r") == [("", b"a")]
    assert parser.feed(b"\ndata: b\r\n\r\n") == [("", b"b")]


def test_a_line_may_look_like_an_event_of_its_own() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\n") == [("", b"a")]
    assert parser.feed(b"data: b") == []
    assert parser.feed(b"data: c\n\n") == [("", b"bdata: c")]
    assert parser.feed(b"event: e\n") == []
    assert parser.feed(b"data: d\n\n") == [("e", b"d")]
    assert parser.feed(b"data: f\r\n\r") == [("", b"f")]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"data: g\n\n") == [("", b"g")]


def test_garbage_lines_are_skipped_and_counted_and_comments_are_not() -> None:
    parser = SseParser()
    assert parser.feed(b"what?\n: fine\ndata: a\n\x00\x01\n\nid: 3\nretry: 4\n\n") == [("", b"a")]
    assert parser.garbage == 2


def test_an_event_of_two_megabytes_comes_whole() -> None:
    body = b"x" * 2_000_000
    data = b"data: " + body + b"\n\ndata: next\n\n"
    assert parse(data) == [("", body), ("", b"next")]
    pieces = [data[i : i + 1000] for i in range(0, len(data), 1000)]
    assert parse(*pieces) == [("", body), ("", b"next")]


def test_single_bytes_of_a_long_event_cost_linear_time() -> None:
    """Copying what is there with each byte would take minutes: the time limit of a test ends it."""
    parser = SseParser()
    for _ in range(1_000_000):
        assert parser.feed(b"x") == []


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT", 10_000)
    parser = SseParser()
    parser.feed(b"data: 1")
    for _ in range(3000):  # long streams of short events are no long event
        assert parser.feed(b"2\n\ndata: 1") == [("", b"12")]
    with pytest.raises(ProviderError) as caught:
        for _ in range(101):
            parser.feed(b"y" * 100)
    assert caught.value.failure.kind is Kind.ANSWER_TOO_LARGE
