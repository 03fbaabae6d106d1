"""F50-F56: tool calls with odd names, ids, indexes and characters; tools that misbehave."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.app.agents import Options
from hermes.core.message import ToolReturn
from hermes.core.tool import Tool
from tests.kit import WIRES, Event, Received, Reply, call, raw, say
from tests.kit.bodies import check_legal, messages, quoted
from tests.kit.rig import Rig, rig


def work(root: Path, **files: str) -> None:
    (root / "work").mkdir(exist_ok=True)
    for name, content in files.items():
        (root / "work" / f"{name}.txt").write_text(content)


def results(r: Rig) -> list[tuple[str, str]]:
    """All tool results the model has been sent, in order."""
    return [(id, quoted(text)) for m in messages(r.requests[-1]) for id, text in m.results]


READ = {"path": "a.txt"}

# -- F50 -----------------------------------------------------------------------------------


def repeat_name(events: list[Event]) -> list[Event]:
    """MiniMax and NIM repeat the name in every chunk."""
    out = []
    for e in events:
        if e.kind == "args":
            value = json.loads(e.data.partition(b"data: ")[2])
            value["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] = "read_file"
            e = Event("args", b"data: " + json.dumps(value).encode() + b"\n\n")
        out.append(e)
    return out


async def test_F50_a_name_repeated_in_every_chunk_is_one_name(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    async with rig(tmp_path, [call(("c1", "read_file", READ)).edit(repeat_name), say("ok")]) as r:
        assert (await r.turn()).status == "completed"
        assert [c.name for c in r.started] == ["read_file"] and "alpha" in results(r)[0][1]


@pytest.mark.parametrize("wire", WIRES)
async def test_F50_names_that_can_only_mean_one_tool(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha")
    names = ["Read_File", "read-file", "READ_FILE", "read_file_tool", "Read-File", "readFile"]
    async with rig(tmp_path, [], wire=wire) as r:
        for i, name in enumerate(names):
            args = {"path": "a.txt", "limit": i + 1}
            r.provider.add(call((f"c{i}", name, args)), say("ok"))
            result = await r.turn(name)
            assert result.status == "completed" and "alpha" in results(r)[-1][1], (
                f"{name}: {results(r)[-1]}"
            )
            assert r.started[-1].name == "read_file"


@pytest.mark.parametrize("wire", WIRES)
async def test_F50_an_unknown_tool_is_an_error_that_lists_the_names(
    tmp_path: Path, wire: str
) -> None:
    async with rig(tmp_path, [call(("c1", "launch_rocket", {})), say("ok")], wire=wire) as r:
        assert (await r.turn()).status == "completed"
        text = results(r)[0][1]
        assert all(name in text for name in ("read_file", "write_file", "terminal"))


@pytest.mark.parametrize("wire", [w for w in WIRES if w != "bedrock"])
async def test_F50_a_missing_name_is_an_error_result(tmp_path: Path, wire: str) -> None:
    async with rig(tmp_path, [call(("c1", "", READ)), say("ok")], wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok"
        assert "read_file" in results(r)[0][1]
        check_legal(r.requests[1])


@pytest.mark.parametrize("wire", WIRES)
async def test_F50_a_name_no_provider_would_take_back(tmp_path: Path, wire: str) -> None:
    """The history must stay legal whatever the model called its tool."""
    names = ["launch rocket!", "3-2-1", "functions.fire", "запуск", "x" * 200, 'a"b\n']
    async with rig(tmp_path, [], wire=wire) as r:
        for i, name in enumerate(names):
            r.provider.add(call((f"c{i}", name, {"n": i})), say("ok"))
            result = await r.turn(f"name {i}")
            assert result.status == "completed" and "read_file" in results(r)[-1][1], result
            check_legal(r.requests[-1])


async def test_F50_three_unknown_tools_in_a_row_end_the_turn(tmp_path: Path) -> None:
    def invent(request: Received) -> Reply:
        return call((f"c{len(request.body)}", "launch_rocket", {"n": len(request.body)}))

    async with rig(tmp_path, [], then=invent) as r:
        result = await r.turn()
        assert result.status == "partial" and result.error_code == "unknown_tools"
        assert len(r.requests) == 3


# -- F51, F52 ------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", [w for w in WIRES])
async def test_F51_duplicate_ids_get_new_ones(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha", b="beta")
    both = call(("same", "read_file", READ), ("same", "read_file", {"path": "b.txt"}))
    async with rig(tmp_path, [both, say("ok")], wire=wire) as r:
        assert (await r.turn()).status == "completed"
        (one, first), (two, second) = results(r)
        assert one != two and "alpha" in first and "beta" in second
        check_legal(r.requests[1])


@pytest.mark.parametrize("wire", WIRES)
async def test_F51_missing_ids_are_made_up_and_the_same_next_time(
    tmp_path: Path, wire: str
) -> None:
    work(tmp_path, a="alpha", b="beta")
    both = call(("", "read_file", READ), ("", "read_file", {"path": "b.txt"}))
    again = call(("", "read_file", {"path": "a.txt", "limit": 1}))
    async with rig(tmp_path, [both, again, say("ok")], wire=wire) as r:
        assert (await r.turn()).status == "completed"
        check_legal(r.requests[2])
        before = [c for m in messages(r.requests[1]) for c in m.calls]
        after = [c for m in messages(r.requests[2]) for c in m.calls]
        assert after[: len(before)] == before, "an id must not change between requests"
        assert "alpha" in results(r)[0][1] and "beta" in results(r)[1][1]


@pytest.mark.parametrize("wire", WIRES)
async def test_F51_reused_ids_of_another_answer_stay_apart(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha", b="beta")
    steps = [
        call(("call_0", "read_file", READ)),
        call(("call_0", "read_file", {"path": "b.txt"})),
        say("one"),
        call(("call_0", "read_file", {"path": "a.txt", "limit": 1})),
        say("two"),
    ]
    async with rig(tmp_path, steps, wire=wire) as r:
        assert (await r.turn()).text == "one" and (await r.turn("again")).text == "two"
        check_legal(r.requests[4])
        assert [("alpha" in t, "beta" in t) for _, t in results(r)] == [
            (True, False),
            (False, True),
            (True, False),
        ]


def chunks(*deltas: dict[str, Any], finish: str = "tool_calls") -> Reply:
    """A chat stream of exactly these tool_calls deltas."""
    events = [{"choices": [{"index": 0, "delta": {"tool_calls": [d]}}]} for d in deltas]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    body = b"".join(b"data: " + json.dumps(e).encode() + b"\n\n" for e in events)
    return raw(body + b"data: [DONE]\n\n", content_type="text/event-stream")


def piece(index: int | None, args: str, id: str = "", name: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {"function": {"arguments": args}}
    if name:
        out["function"]["name"] = name
        out["id"] = id
    if index is not None:
        out["index"] = index
    return out


A, B = '{"path": "a.txt"}', '{"path": "b.txt"}'
SHAPES = {
    "no index, whole calls": [
        piece(None, A, "c1", "read_file"),
        piece(None, B, "c2", "read_file"),
    ],
    "no index, fragments": [
        piece(None, "", "c1", "read_file"),
        piece(None, A[:8]),
        piece(None, A[8:]),
        piece(None, "", "c2", "read_file"),
        piece(None, B[:8]),
        piece(None, B[8:]),
    ],
    "out of order": [
        piece(1, B, "c2", "read_file"),
        piece(0, A, "c1", "read_file"),
    ],
    "gaps": [piece(3, A, "c1", "read_file"), piece(9, B, "c2", "read_file")],
    "all zero, whole calls": [piece(0, A, "c1", "read_file"), piece(0, B, "c2", "read_file")],
    "interleaved": [
        piece(0, "", "c1", "read_file"),
        piece(1, "", "c2", "read_file"),
        piece(0, A[:5]),
        piece(1, B[:9]),
        piece(0, A[5:]),
        piece(1, B[9:]),
    ],
}


@pytest.mark.parametrize("shape", list(SHAPES))
async def test_F51_F52_indexes_missing_out_of_order_or_interleaved(
    tmp_path: Path, shape: str
) -> None:
    work(tmp_path, a="alpha", b="beta")
    async with rig(tmp_path, [chunks(*SHAPES[shape]), say("ok")]) as r:
        assert (await r.turn()).status == "completed"
        assert sorted("alpha" in t for _, t in results(r)) == [False, True]
        assert sorted("beta" in t for _, t in results(r)) == [False, True]
        calls = {c[0]: json.loads(c[2]) for c in messages(r.requests[1])[1].calls}
        assert calls == {"c1": {"path": "a.txt"}, "c2": {"path": "b.txt"}}


def interleaved(events: list[Event]) -> list[Event]:
    """All openings first, then argument fragments of the calls in turn."""
    calls: list[list[Event]] = []
    head: list[Event] = []
    tail: list[Event] = []
    for e in events:
        if e.kind == "call":
            calls.append([e])
        elif calls and e.kind in ("args", "close"):
            calls[-1].append(e)
        else:
            (tail if calls else head).append(e)
    longest = max(map(len, calls))
    mixed = [c[i] for i in range(longest) for c in calls if i < len(c)]
    return head + mixed + tail


@pytest.mark.parametrize("wire", [w for w in WIRES if w != "gemini"])
async def test_F52_parallel_calls_interleaved_are_kept_apart(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha", b="beta")
    both = call(("c1", "read_file", READ), ("c2", "read_file", {"path": "b.txt"}), size=4)
    async with rig(tmp_path, [both.edit(interleaved), say("ok")], wire=wire) as r:
        assert (await r.turn()).status == "completed"
        assert [("alpha" in t, "beta" in t) for _, t in results(r)] == [
            (True, False),
            (False, True),
        ]


# -- F53 -----------------------------------------------------------------------------------


async def test_F53_a_disabled_tool_is_an_error_result(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "touch ran"})), say("ok")]
    options = Options(toolsets=("read_file",), yolo=True)
    async with rig(tmp_path, steps, options=options) as r:
        result = await r.turn()
        assert result.status == "completed" and "read_file" in results(r)[0][1]
        assert not (r.home.work / "ran").exists()


# -- F54 -----------------------------------------------------------------------------------

ODD = {
    "lone high surrogate": "a\ud800b",
    "lone low surrogate": "a\udc00b",
    "swapped pair": "a\udc00\ud800b",
    "nul": "a\0b",
    "not a character": "a\ufffe\uffffb",
    "right to left": "a\u202e\u2066שלום\u2069b",
    "controls": "a\x01\x02\x1b[31mred\x7f\x85b",
    "combining": "a" + "\u0301" * 200 + "b",
}


def ascii_json(data: bytes) -> bytes:
    head, _, body = data.partition(b"data: ")
    if not body.startswith(b"{"):
        return data
    text = body.decode("utf-8", "surrogatepass")
    return head + b"data: " + json.dumps(json.loads(text)).encode() + b"\n\n"


@pytest.mark.parametrize("wire", [w for w in WIRES if w != "bedrock"])
@pytest.mark.parametrize("form", ["escaped", "raw bytes"])
async def test_F54_odd_characters_in_an_answer_are_stored_and_sent(
    tmp_path: Path, wire: str, form: str
) -> None:
    async with rig(tmp_path, [], wire=wire) as r:
        for i, (name, text) in enumerate(ODD.items()):
            args = {"path": text, text: text}
            first = say(f"<{text}>") + call((f"c{i}", "read_file", args))
            for reply in (first, say(f"[{text}]")):
                r.provider.add(reply.each(ascii_json) if form == "escaped" else reply)
            result = await r.turn(f"say {name}")
            assert result.status == "completed", f"{name}: {result}"
            assert result.text.startswith("[a") and result.text.endswith("b]")
            check_legal(r.requests[-1])


async def test_F54_odd_characters_from_the_user(tmp_path: Path) -> None:
    async with rig(tmp_path, []) as r:
        for text in ODD.values():
            r.provider.add(say("ok"))
            assert (await r.turn(f"x{text}y")).status == "completed"
            check_legal(r.requests[-1])


async def test_F54_odd_bytes_from_a_tool(tmp_path: Path) -> None:
    command = r"printf 'a\000\377\376\xed\xa0\x80b'"
    async with rig(tmp_path, [call(("c1", "terminal", {"command": command})), say("ok")]) as r:
        result = await r.turn()
        assert result.status == "completed" and "b" in results(r)[0][1]


async def test_F54_invalid_utf8_in_the_stream(tmp_path: Path) -> None:
    def spoil(data: bytes) -> bytes:
        return data.replace(b"MARK", b"\xff\xc3(\xe2\x82")

    async with rig(tmp_path, [say("a MARK b", size=20).each(spoil)]) as r:
        result = await r.turn()
        assert (
            result.status == "completed"
            and result.text.startswith("a ")
            and result.text.endswith(" b")
        )


# -- F55 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_F55_the_same_call_again_and_again_is_refused_then_ends_the_turn(
    tmp_path: Path, wire: str
) -> None:
    numbers = iter(range(100))

    def again(request: Received) -> Reply:
        return call((f"c{next(numbers)}", "terminal", {"command": "echo x >> log; echo same"}))

    async with rig(tmp_path, [], wire=wire, then=again) as r:
        result = await r.turn()
        assert result.status == "partial" and result.error_code == "tool_loop"
        assert "terminal" in result.error
        ran = (r.home.work / "log").read_text().count("x")
        assert 2 <= ran <= 3 and len(r.requests) == 5
        told = [t for _, t in results(r)]
        assert any("strategy" in t for t in told), told


async def test_F55_the_same_call_with_new_results_is_no_loop(tmp_path: Path) -> None:
    steps = [call((f"c{i}", "terminal", {"command": "echo x >> log; wc -l log"})) for i in range(7)]
    async with rig(tmp_path, [*steps, say("done")]) as r:
        result = await r.turn()
        assert result.status == "completed" and (r.home.work / "log").read_text().count("x") == 7


# -- F56 -----------------------------------------------------------------------------------


class Nothing(Struct):
    pass


def returning(value: Any) -> Tool[Any]:
    async def run(p: Nothing, ctx: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return Tool("odd", "Returns something odd.", Nothing, run)


VALUES: dict[str, Any] = {
    "none": None,
    "bytes": b"\xff\x00 bytes",
    "number": 7,
    "list": [1, {"a": None}],
    "set": {1},
    "object": object(),
    "exception": RuntimeError("boom"),
    "key error": KeyError("k"),
    "timeout": TimeoutError(),
    "recursion": RecursionError("deep"),
    "stop": StopAsyncIteration(),
    "memory": MemoryError(),
    "empty text": "",
}


@pytest.mark.parametrize("name", list(VALUES))
async def test_F56_whatever_a_tool_returns_is_a_result(tmp_path: Path, name: str) -> None:
    steps = [call(("c1", "odd", {})), say("ok")]
    async with rig(tmp_path, steps, tools=[returning(VALUES[name])]) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok", result
        check_legal(r.requests[1])
        (stored,) = [p for m in await r.stored() for p in m.parts if isinstance(p, ToolReturn)]
        assert stored.error is isinstance(VALUES[name], BaseException)


async def test_F56_an_exception_whose_words_cannot_be_encoded(tmp_path: Path) -> None:
    logging.disable()  # pytest-xdist cannot carry the record
    try:
        steps = [call(("c1", "odd", {})), say("ok")]
        async with rig(tmp_path, steps, tools=[returning(RuntimeError("boom \ud800"))]) as r:
            assert (await r.turn()).status == "completed" and "boom" in results(r)[0][1]
    finally:
        logging.disable(logging.NOTSET)


async def test_F56_a_huge_result_is_cut_in_the_middle_and_saved(tmp_path: Path) -> None:
    huge = "BEGIN" + "x" * 3_000_000 + "END"
    async with rig(tmp_path, [call(("c1", "odd", {})), say("ok")], tools=[returning(huge)]) as r:
        assert (await r.turn()).status == "completed"
        text = results(r)[0][1]
        assert len(text) < 200_000 and text.startswith("BEGIN") and "END" in text
        saved = [p for p in r.home.path.rglob("*") if p.is_file() and p.stat().st_size > 2_900_000]
        assert saved and any(str(p) in text for p in saved), "the note names the file"
        assert saved[0].read_text().endswith("END")
        assert saved[0].stat().st_mode & 0o077 == 0


async def test_F56_a_tool_that_never_returns_is_stopped(tmp_path: Path) -> None:
    ended = asyncio.Event()

    async def run(p: Nothing, ctx: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    tool = Tool("odd", "Never returns.", Nothing, run, timeout=0.2)
    async with rig(tmp_path, [call(("c1", "odd", {})), say("ok")], tools=[tool]) as r:
        result = await r.turn()
        assert result.status == "completed" and ended.is_set()
        assert "timed out" in results(r)[0][1].lower()
