"""F11-F15, F19-F21: streams that are odd in form, wrong about themselves, or far too large."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kit import (
    WIRES,
    Event,
    Home,
    Provider,
    Reply,
    Tokens,
    call,
    error_frame,
    finish,
    raw,
    run_hermes,
    say,
    start_hermes,
    think,
)
from tests.kit.rig import rig

SSE_WIRES = [w for w in WIRES if w != "bedrock"]
TEXT = 'Grüße aus 東京 — 🌍! A line\nand another, with "quotes" and \\ too.'


def patched(kind: str, change: Callable[[Any], Any]) -> Callable[[list[Event]], list[Event]]:
    """Edit the JSON of every SSE event of a kind."""

    def edit(events: list[Event]) -> list[Event]:
        out = []
        for e in events:
            if e.kind == kind:
                head, _, data = e.data.partition(b"data: ")
                value = json.loads(data)
                new = change(value)
                body = json.dumps(value if new is None else new).encode()
                e = Event(kind, head + b"data: " + body + b"\n\n")
            out.append(e)
        return out

    return edit


# -- F11 -----------------------------------------------------------------------------------


def _other_line_ends(data: bytes) -> bytes:
    if b"\r\n" in data:
        return data.replace(b"\r\n", b"\n")
    return data.replace(b"\n", b"\r\n")


def _many_lines(data: bytes) -> bytes:
    head, _, body = data.partition(b"data: ")
    if not body.startswith(b"{"):
        return data
    lines = json.dumps(json.loads(body), indent=1).split("\n")
    return head + b"".join(f"data: {line}\n".encode() for line in lines) + b"\n"


def _one_chunk(events: list[Event]) -> list[Event]:
    return [Event("all", b"".join(e.data for e in events))]


def _bom(events: list[Event]) -> list[Event]:
    return [Event("bom", b"\xef\xbb\xbf" + events[0].data), *events[1:]]


def _cut_bom(events: list[Event]) -> list[Event]:
    whole = _bom(events)
    return [Event("bom", whole[0].data[:2]), Event("bom", whole[0].data[2:]), *whole[1:]]


def _no_last_blank_line(events: list[Event]) -> list[Event]:
    return [*events[:-1], Event(events[-1].kind, events[-1].data.rstrip(b"\r\n"))]


def _json_escapes(data: bytes) -> bytes:
    head, _, body = data.partition(b"data: ")
    return (
        head + b"data: " + json.dumps(json.loads(body)).encode() + b"\n\n"
        if (body.startswith(b"{"))
        else data
    )


FORMS: dict[str, Callable[[Reply], Reply]] = {
    "as it is": lambda r: r,
    "other line ends": lambda r: r.each(_other_line_ends),
    "byte by byte": lambda r: r.bytes_each(1),
    "byte by byte, other line ends": lambda r: r.each(_other_line_ends).bytes_each(1),
    "three bytes": lambda r: r.bytes_each(3),
    "one chunk": lambda r: r.edit(_one_chunk),
    "byte order mark": lambda r: r.edit(_bom),
    "byte order mark, byte by byte": lambda r: r.edit(_bom).bytes_each(1),
    "byte order mark, cut in two": lambda r: r.edit(_cut_bom),
    "no space": lambda r: r.each(lambda b: b.replace(b"data: ", b"data:")),
    "several data lines": lambda r: r.each(_many_lines),
    "comments": lambda r: r.insert(b": hello\n\n", before="text").insert(b":\n", after="text"),
    "ids and retry": lambda r: r.insert(b"id: 7\nretry: 100\nunknown: x\n\n", before="text"),
    "garbage lines": lambda r: r.insert(b"total garbage \xff\xfe line\n\n", before="text"),
    "broken json": lambda r: r.insert(b"data: {not json\n\n", before="text"),
    "unknown event": lambda r: r.insert(
        b'event: news\ndata: {"type": "news", "object": "weather", "x": [1]}\n\n', before="text"
    ),
    "no last blank line": lambda r: r.edit(_no_last_blank_line),
    "ascii escapes": lambda r: r.each(_json_escapes),
    "until close": lambda r: r.until_close(),
}


@pytest.mark.parametrize("wire", SSE_WIRES)
async def test_F11_every_form_of_the_same_stream_is_the_same_answer(
    tmp_path: Path, wire: str
) -> None:
    reply = think("hm") + say(TEXT, size=5)
    async with rig(tmp_path, [], wire=wire) as r:
        for name, form in FORMS.items():
            r.provider.add(form(reply))
            before = len(r.shown)
            result = await r.turn(name)
            assert result.status == "completed" and result.text == TEXT, f"{name}: {result}"
            assert result.reasoning == "hm", name
            assert r.shown[before:] == TEXT, name
            assert len(r.requests) == len(r.results), name


@pytest.mark.parametrize("wire", WIRES)
async def test_F11_every_chunking_gives_an_equal_result(tmp_path: Path, wire: str) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "päth.txt").write_text("content")
    async with rig(tmp_path, [], wire=wire) as r:
        for seed in range(12):
            named = call((f"c{seed}", "read_file", {"path": "päth.txt", "limit": seed + 1}))
            reply = say(TEXT, size=4) + named
            r.provider.add(reply.random_cuts(seed), say("end").random_cuts(seed + 100))
            result = await r.turn(f"seed {seed}")
            assert result.status == "completed" and result.text == "end", f"seed {seed}: {result}"
            first = result.messages[1]
            assert first.text == TEXT
            assert json.loads(first.calls[0].args) == {"path": "päth.txt", "limit": seed + 1}


@pytest.mark.parametrize("wire", WIRES)
async def test_F11_an_event_above_a_megabyte(tmp_path: Path, wire: str) -> None:
    text = "ü" * 1_200_000
    async with rig(tmp_path, [say(text, size=len(text))], wire=wire) as r:
        assert (await r.turn()).text == text


# -- F12, F13 ------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_F12_finish_reason_without_done_is_complete(tmp_path: Path, wire: str) -> None:
    async with rig(tmp_path, [say("whole").without("done", "usage")], wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "whole" and len(r.requests) == 1


@pytest.mark.parametrize("wire", [w for w in WIRES if w != "responses"])
async def test_F12_no_finish_reason_and_end_is_continued(tmp_path: Path, wire: str) -> None:
    cut = say("first ").without("stop", "usage", "done")
    async with rig(tmp_path, [cut, say("second")], wire=wire) as r:
        result = await r.turn()
        assert (
            result.status == "completed" and result.text == "first second" and len(r.requests) == 2
        )


async def test_F12_responses_with_content_and_no_terminal_frame_is_complete(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, [say("enough").without("stop")], wire="responses") as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "enough" and len(r.requests) == 1


async def test_F13_done_twice_and_data_behind_it_are_ignored(tmp_path: Path) -> None:
    late = b'data: {"choices":[{"index":0,"delta":{"content":"ghost"}}]}\n\n'
    tail = b"data: [DONE]\n\n" + late + b"data: [DONE]\n\n"
    async with rig(tmp_path, [say("once").insert(tail, after="done")]) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "once" == r.shown


# -- F14 -----------------------------------------------------------------------------------

AUTH = {"chat": "invalid_api_key", "responses": "invalid_api_key"}
OVERFLOW = {"chat": "context_length_exceeded", "responses": "context_length_exceeded"}
BUSY = {
    "chat": (503, "The engine is currently overloaded", ""),
    "responses": (503, "The server is overloaded", "server_error"),
    "anthropic": (529, "Overloaded", "overloaded_error"),
    "gemini": (503, "The model is overloaded. Please try again later.", "UNAVAILABLE"),
    "bedrock": (503, "The service is unavailable", "ServiceUnavailableException"),
}


@pytest.mark.parametrize("wire", WIRES)
async def test_F14_an_error_frame_is_classified_like_a_status(tmp_path: Path, wire: str) -> None:
    status, message, code = BUSY[wire]
    async with rig(tmp_path, [], wire=wire) as r:
        r.provider.add(error_frame(message, status=status, code=code), say("after"))
        result = await r.turn("busy")
        assert result.status == "completed" and result.text == "after" and r.waits

        r.waits.clear()
        limit = error_frame(
            "Rate limit reached, slow down",
            status=429,
            code="rate_limit_exceeded" if wire in ("chat", "responses") else "",
        )
        r.provider.add(limit, say("later"))
        result = await r.turn("rate")
        assert result.status == "completed" and result.text == "later" and r.waits

        count = len(r.requests)
        r.provider.add(error_frame("Incorrect API key", status=401, code=AUTH.get(wire, "")))
        result = await r.turn("auth")
        assert result.error_code == "auth" and len(r.requests) == count + 1

        wording = "prompt is too long: 208310 tokens > 200000 maximum"
        count = len(r.requests)
        r.provider.then = error_frame(wording, status=400, code=OVERFLOW.get(wire, ""))
        result = await r.turn("overflow")
        assert result.error_code == "context_overflow" and len(r.requests) <= count + 4


@pytest.mark.parametrize("wire", WIRES)
async def test_F14_an_error_frame_after_text_keeps_the_text(tmp_path: Path, wire: str) -> None:
    status, message, code = BUSY[wire]
    broken = say("Half ").then_error(message, status=status, code=code)
    async with rig(tmp_path, [broken, say("and half")], wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "Half and half" == r.shown


async def test_F14_an_ordinary_chunk_with_an_error_beside_its_choices(tmp_path: Path) -> None:
    def both(value: Any) -> None:
        value["error"] = {"code": 502, "message": "upstream broke"}

    broken = say("Half ").edit(patched("stop", both))
    async with rig(tmp_path, [broken, say("and half")]) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "Half and half"


# -- F15, F20, F21 -------------------------------------------------------------------------


async def test_F15_terminal_frame_without_output(tmp_path: Path) -> None:
    def hollow(value: Any) -> None:
        value["response"]["output"] = None

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("alpha")
    steps = [
        (think("why") + say("Look: ") + call(("c1", "read_file", {"path": "a.txt"}))),
        say("done"),
    ]
    steps = [s.edit(patched("stop", hollow)) for s in steps]
    async with rig(tmp_path, steps, wire="responses") as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "done"
        assert result.messages[1].text == "Look: " and [c.name for c in r.started] == ["read_file"]


BAD_USAGE: list[Any] = [
    None,
    {},
    {"prompt_tokens": -5, "completion_tokens": -1, "input_tokens": -5, "output_tokens": -1},
    {"prompt_tokens": 10**18, "completion_tokens": 1, "input_tokens": 10**18, "output_tokens": 1},
    {"prompt_tokens": "many", "completion_tokens": None, "input_tokens": [], "output_tokens": {}},
    "free",
]


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic"])
async def test_F15_missing_null_negative_or_huge_usage_is_estimated(
    tmp_path: Path, wire: str
) -> None:
    def place(usage: Any) -> Callable[[Any], None]:
        def change(value: Any) -> None:
            where = value
            if wire == "responses":
                where = value["response"]
            if wire == "anthropic" and "message" in value:
                where = value["message"]
            where["usage"] = usage

        return change

    async with rig(tmp_path, [], wire=wire) as r:
        for usage in BAD_USAGE:
            reply = say("counted")
            for kind in ("start", "stop", "usage") if wire == "anthropic" else ("stop", "usage"):
                if not (wire == "chat" and kind == "stop"):
                    reply = reply.edit(patched(kind, place(usage)))
            r.provider.add(reply)
            result = await r.turn(f"usage {usage!r}")
            assert result.status == "completed" and result.text == "counted", usage
            used = result.usage
            assert used.estimated, f"{usage!r} was taken for real: {used}"
            assert 0 < used.input < 10**9 and 0 < used.output < 10**9, f"{usage!r}: {used}"


async def test_F15_no_usage_at_all_on_any_wire(tmp_path: Path) -> None:
    for wire in WIRES:
        folder = tmp_path / wire
        folder.mkdir()
        async with rig(folder, [say("x").usage(None)], wire=wire) as r:
            result = await r.turn()
            assert (
                result.status == "completed" and result.usage.estimated and result.usage.input > 0
            ), wire


@pytest.mark.parametrize("wire", WIRES)
async def test_F15_good_usage_is_taken_as_it_is(tmp_path: Path, wire: str) -> None:
    tokens = Tokens(input=120, output=30, cached=100, reasoning=0)
    async with rig(tmp_path, [say("x").usage(tokens)], wire=wire) as r:
        used = (await r.turn()).usage
        assert (used.input, used.output, used.cache_read) == (120, 30, 100)
        assert not used.estimated


@pytest.mark.parametrize("wire", WIRES)
async def test_F20_a_wrong_content_type_does_not_hide_a_stream(tmp_path: Path, wire: str) -> None:
    types = ["application/octet-stream", ""]
    if wire != "bedrock":
        types += ["text/plain", "application/json", "text/html"]
    async with rig(tmp_path, [], wire=wire) as r:
        for kind in types:
            r.provider.add(say("streamed").type(kind))
            result = await r.turn(f"type {kind}")
            assert result.status == "completed" and result.text == "streamed", f"{kind!r}: {result}"


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_F21_absurd_clocks_are_ignored(tmp_path: Path, wire: str) -> None:
    def at(when: Any) -> Callable[[Any], None]:
        def change(value: Any) -> None:
            value["created"] = when
            value.get("response", {})["created_at"] = when

        return change

    async with rig(tmp_path, [], wire=wire) as r:
        for when in (-1, 10**30, "yesterday", None, 1e308, [], True):
            reply = say("now")
            for kind in ("start", "text", "stop"):
                reply = reply.edit(patched(kind, at(when)))
            r.provider.add(reply)
            result = await r.turn(f"at {when}")
            assert result.status == "completed" and result.text == "now", when


# -- F19 -----------------------------------------------------------------------------------

MB = 1024 * 1024


def endless(piece: dict[str, Any], size: int) -> Callable[[], Iterator[bytes]]:
    """The same delta again and again, `size` bytes of it."""

    def make() -> Iterator[bytes]:
        data = json.dumps({"choices": [{"index": 0, "delta": piece}]}).encode()
        event = b"data: " + data + b"\n\n"
        for _ in range(size // len(event)):
            yield event

    return make


def sse(make: Callable[[], Iterator[bytes]]) -> Reply:
    return raw(make, content_type="text/event-stream")


async def peak_of(pid: int) -> int:
    """The most memory a process had, in kB. The system's own figure counts what its parent had
    when it was forked."""
    peak = 0
    with suppress(OSError):
        while found := re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()):
            peak = int(found[1])
            await asyncio.sleep(0.01)
    return peak


async def test_F19_200_megabytes_of_text_are_cut_at_the_cap(tmp_path: Path) -> None:
    reply = sse(endless({"content": "word " * 8000}, 200 * MB))
    async with Provider([reply]) as p:
        home = Home.of(tmp_path, p)
        home.configure(trace={"record": "off"})  # a tape of it takes more memory
        process = await start_hermes(["chat", "-q", "talk", "--output", "json"], home)
        watched = asyncio.create_task(peak_of(process.pid))
        ran = await finish(process, timeout=50)
        assert ran.rc == 3 and ran.json["partial"] and not ran.json["completed"]
        assert ran.json["error"]["code"] == "output_truncated"
        assert MB < len(ran.json["text"]) <= 33 * MB
        assert p.requests[0].sent < 60 * MB and len(p.requests) == 1
        peak = await watched
        assert 0 < peak <= 320 * 1024, f"{peak // 1024} MB"
        p.then = say("short")
        again = await run_hermes(["chat", "--continue", "-q", "again", "--output", "json"], home)
        assert again.rc == 0 and again.json["text"] == "short"
        assert len(p.last.body) < MB, "no model holds that much"


async def test_F19_a_million_tool_calls(tmp_path: Path) -> None:
    def make() -> Iterator[bytes]:
        for i in range(1_000_000):
            one = {
                "index": i,
                "id": f"c{i}",
                "type": "function",
                "function": {"name": "terminal", "arguments": '{"command":"touch ran"}'},
            }
            data = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]})
            yield f"data: {data}\n\n".encode()

    async with rig(tmp_path, [], then=sse(make)) as r:
        result = await r.turn(timeout=90)
        assert result.status != "completed" and result.error_code == "output_truncated"
        assert not r.started and not (r.home.work / "ran").exists()
        assert all(q.sent < 20 * MB for q in r.requests) and len(r.requests) <= 2


async def test_F19_100_megabytes_of_arguments(tmp_path: Path) -> None:
    head = {
        "tool_calls": [
            {"index": 0, "id": "c1", "function": {"name": "write_file", "arguments": '{"path":"'}}
        ]
    }
    more = {"tool_calls": [{"index": 0, "function": {"arguments": "x" * 60_000}}]}

    def make() -> Iterator[bytes]:
        yield from list(endless(head, 400)())[:1]
        yield from endless(more, 100 * MB)()

    async with rig(tmp_path, [], then=sse(make)) as r:
        result = await r.turn(timeout=90)
        assert result.status != "completed" and result.error_code == "output_truncated"
        assert not r.started and len(r.requests) <= 2
        assert all(q.sent < 60 * MB for q in r.requests)
