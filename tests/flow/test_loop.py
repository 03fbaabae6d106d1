"""The numbered behaviours of the loop that are no fault: streaming, tools, guidance, durability."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hermes.app.agents import Options
from hermes.core.events import StepStart, TextDelta, ThinkingDelta, ToolDone, ToolStarted
from hermes.core.message import Message, Text, Thinking, ToolCall, ToolReturn, user_message
from hermes.core.store import SessionMeta
from hermes.core.tool import Tool, tool
from tests.flow.loop_parts import Name, Nothing, results, work
from tests.kit import (
    WIRES,
    Event,
    Gate,
    Tokens,
    call,
    raw,
    say,
    status,
    think,
)
from tests.kit.bodies import check_legal, messages, quoted, tools
from tests.kit.rig import rig

# -- 1-4: streaming ------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_1_text_arrives_in_order_and_before_the_answer_is_complete(
    tmp_path: Path, wire: str
) -> None:
    gate = Gate()
    reply = (think("first I think") + say("one ", "two ", "three")).hold(gate, "text", 2)
    async with rig(tmp_path, [reply], wire=wire) as r:
        turn = r.begin()
        await gate.reached()
        await r.until_shown("two")
        assert r.shown == "one two " and r.thought == "first I think" and not turn.done()
        gate.open()
        result = await turn
        assert r.shown == "one two three" == result.text
        assert result.reasoning == "first I think" == r.thought
        kinds = [type(e) for e in r.events if isinstance(e, TextDelta | ThinkingDelta)]
        assert kinds == sorted(kinds, key=lambda k: k is TextDelta), "reasoning came first"
        assert sum(isinstance(e, StepStart) for e in r.events) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_2_a_tool_only_answer_shows_no_text_and_text_beside_a_call_is_kept(
    tmp_path: Path, wire: str
) -> None:
    work(tmp_path, a="alpha")
    one = ("c1", "read_file", {"path": "a.txt"})
    two = ("c2", "read_file", {"path": "a.txt", "limit": 1})
    steps = [call(one), say("Before. ") + call(two), say("After.")]
    async with rig(tmp_path, steps, wire=wire) as r:
        turn = r.begin()
        await r.until(lambda e: isinstance(e, ToolDone))
        assert (await turn).text == "After." and r.shown == "Before. After."
        assert [m.text for m in await r.stored() if m.role == "assistant"] == [
            "",
            "Before. ",
            "After.",
        ]
        assert any("Before. " in m.text for m in messages(r.requests[2]))


async def test_2_text_behind_a_call_is_kept_too(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    steps = [call(("c1", "read_file", {"path": "a.txt"})) + say("Reading."), say("Done.")]
    async with rig(tmp_path, steps) as r:
        assert (await r.turn()).status == "completed" and r.shown == "Reading.Done."


async def test_3_extras_of_a_tool_call_go_back(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    extra = {"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}
    steps = [call(("c1", "read_file", {"path": "a.txt"}), **extra), say("ok")]
    async with rig(tmp_path, steps) as r:
        await r.turn()
        (sent,) = r.requests[1].json["messages"][-2]["tool_calls"]
        assert sent["extra_content"] == extra["extra_content"]
        assert json.loads(sent["function"]["arguments"]) == {"path": "a.txt"}


@pytest.mark.parametrize("wire", ["anthropic", "gemini", "responses", "bedrock"])
async def test_3_signatures_go_back_with_their_part(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha")
    sign = {"thoughtSignature": "c2lnbmVk"} if wire == "gemini" else {}
    first = think("hm", signature="c2lnbmVk") + call(("c1", "read_file", {"path": "a.txt"}), **sign)
    async with rig(tmp_path, [first, say("ok")], wire=wire) as r:
        await r.turn()
        assert b"c2lnbmVk" in r.requests[1].body
        assert messages(r.requests[1])[1].thoughts


@pytest.mark.parametrize("wire", WIRES)
async def test_4_a_json_answer_to_a_streaming_request(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha")
    steps = [call(("c1", "read_file", {"path": "a.txt"})).as_json(), say("whole").as_json()]
    async with rig(tmp_path, steps, wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "whole" == r.shown
        assert r.requests[0].streams and "alpha" in results(r.requests[1])[0]


async def test_4_a_streamed_answer_to_a_plain_request(tmp_path: Path) -> None:
    steps = [status(400, "Streaming is not supported", param="stream"), say("flow").as_stream()]
    async with rig(tmp_path, steps) as r:
        assert (await r.turn()).text == "flow" and not r.requests[1].streams


async def test_4_chunks_without_choices_and_late_usage(tmp_path: Path) -> None:
    empty = b'data: {"choices":[],"usage":null}\n\n'
    reply = (
        say("text").usage(Tokens(50, 5)).insert(empty, before="text").insert(empty, after="usage")
    )
    async with rig(tmp_path, [reply]) as r:
        result = await r.turn()
        assert result.text == "text" and (result.usage.input, result.usage.output) == (50, 5)


async def test_6_a_big_context_gets_more_time(tmp_path: Path) -> None:
    """Reading a very long prompt takes a model long: the stale limit grows with it."""
    gate = Gate()
    limits = {"providers": {"custom": {"stale_timeout_seconds": 0.8}}}
    async with rig(tmp_path, [say("a", "b").hold(gate, "text", 1)], config=limits) as r:
        turn = r.begin("word " * 200_000)
        await gate.reached()
        asyncio.get_running_loop().call_later(1.1, gate.open)
        assert (await turn).text == "ab" and len(r.requests) == 1


async def test_7_a_lost_connection_reported_in_band_is_retried_in_the_call(tmp_path: Path) -> None:
    lost = raw(
        b'data: {"error":{"message":"Network connection lost."}}\n\n',
        content_type="text/event-stream",
    )
    async with rig(tmp_path, [lost, say("back")]) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "back" and result.model_calls == 1


async def test_10_the_providers_own_words_reach_the_user(tmp_path: Path) -> None:
    frame = raw(
        b'data: {"error":{"message":"quux is not enabled","code":"weird_code"}}\n\n',
        content_type="text/event-stream",
    )
    async with rig(tmp_path, [], then=frame) as r:
        result = await r.turn()
        assert result.status == "failed" and "quux is not enabled" in result.error


async def test_11_responses_items_out_of_order_and_never_done(tmp_path: Path) -> None:
    """The message closes before the reasoning that precedes it."""

    def swap(events: list[Event]) -> list[Event]:
        reasoning = [e for e in events if b'"rs_0"' in e.data or b'"output_index": 0' in e.data]
        rest = [e for e in events if e not in reasoning]
        ends = [e for e in rest if e.kind == "stop"]
        return [*[e for e in rest if e.kind != "stop"], *reasoning, *ends]

    reply = (think("why") + say("because")).edit(swap)
    async with rig(tmp_path, [reply], wire="responses") as r:
        result = await r.turn()
        assert result.text == "because" and result.reasoning == "why"
        (_, answer) = await r.stored()
        assert [type(p) for p in answer.parts] == [Thinking, Text], "their places are kept"


# -- the result of a turn ------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_the_result_of_a_turn_adds_up(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha")
    steps = [
        call(("c1", "read_file", {"path": "a.txt"})).usage(Tokens(100, 10)),
        say("done").usage(Tokens(150, 20, cached=90)),
    ]
    async with rig(tmp_path, steps, wire=wire) as r:
        result = await r.turn("question")
        assert result.status == "completed" and result.model_calls == 2
        assert (result.usage.input, result.usage.output) == (250, 30)
        assert result.usage.cache_read == 90
        assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]
        assert result.target is not None
        assert (result.target.model, result.target.wire) == ("kit-model", wire)
        assert list(result.messages) == await r.stored()


# -- 18-20 ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_18_two_identical_calls_in_one_batch_run_once(tmp_path: Path, wire: str) -> None:
    args = {"command": "echo x >> log; cat log"}
    steps = [call(("c1", "terminal", args), ("c2", "terminal", args)), say("ok")]
    async with rig(tmp_path, steps, wire=wire) as r:
        assert (await r.turn()).status == "completed"
        assert (r.home.work / "log").read_text() == "x\n"
        assert len(results(r.requests[1])) == 2 and check_legal(r.requests[1])


@pytest.mark.parametrize(
    "key", ["sk-kit–with—dashes", "sk-kit\u200b-zero-width", "ｓｋ-full", "sk-кириллица", "a\nb"]
)
async def test_19_a_key_with_look_alike_characters_is_cleaned_or_explained(
    tmp_path: Path, key: str
) -> None:
    async with rig(tmp_path, [say("ok")], env={"KIT_KEY": key}, check=False) as r:
        result = await r.turn()
        if result.status == "completed":
            sent = r.requests[0].headers["authorization"]
            assert sent.isascii() and sent.isprintable()
        else:
            assert result.error_code in ("auth", "config") and "KIT_KEY" in result.error
            assert key not in result.error


@pytest.mark.parametrize("wire", WIRES)
async def test_20_a_stored_history_with_holes_is_made_legal(tmp_path: Path, wire: str) -> None:
    """What a crash leaves behind: calls without results, results without calls, reasoning only,
    two questions in a row."""
    one, two = ToolCall("c1", "read_file", "{}"), ToolCall("c2", "read_file", "{}")
    past = [
        user_message("first"),
        user_message("first again"),
        Message("assistant", (Text("Let me look."), one, two)),
        Message("tool", (ToolReturn("c2", "read_file", (Text("two"),)),)),
        Message("tool", (ToolReturn("ghost", "read_file", (Text("orphan"),)),)),
        user_message("what happened?"),
        Message("assistant", (Thinking("only thoughts"),)),
        Message("assistant", (Text("Nothing."),)),
        Message("assistant", (Text("Really."),)),
    ]
    async with rig(tmp_path, [say("whole again")], wire=wire) as r:
        meta = SessionMeta("holes", cwd=str(r.home.work), system="You are a test.")
        await r.runtime.store.sessions.append("holes", past, create=meta)
        session = await r.runtime.open_session(resume="holes", cwd=r.home.work)
        assert (await session.submit(user_message("and now?"))).text == "whole again"
        seen = check_legal(r.requests[0])
        missing, given = [text for m in seen for _, text in m.results]
        assert "outcome of this call is unknown" in missing and quoted(given) == "two"
        assert b"orphan" not in r.requests[0].body
        assert seen[-1].text.endswith("and now?")
        await session.close()


# -- 21: order and concurrency -------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_21_independent_calls_run_together_and_keep_their_order(
    tmp_path: Path, wire: str
) -> None:
    barrier = asyncio.Barrier(3)

    @tool("Meets the others.")
    async def meet(p: Name, ctx: Any) -> str:
        async with asyncio.timeout(90):
            await barrier.wait()
        await asyncio.sleep({"a": 0.03, "b": 0.0, "c": 0.015}[p.name])
        return f"met {p.name}"

    steps = [call(*((f"c{n}", "meet", {"name": n}) for n in "abc")), say("ok")]
    async with rig(tmp_path, steps, wire=wire, tools=[meet]) as r:
        assert (await r.turn()).status == "completed"
        assert results(r.requests[1]) == ["met a", "met b", "met c"]


async def test_21_exclusive_tools_run_alone(tmp_path: Path) -> None:
    running: list[str] = []
    most = 0

    async def run(p: Name, ctx: Any) -> str:
        nonlocal most
        running.append(p.name)
        most = max(most, len(running))
        await asyncio.sleep(0.01)
        running.remove(p.name)
        return p.name

    alone = Tool("alone", "Runs alone.", Name, run, exclusive=True)
    steps = [call(*((f"c{n}", "alone", {"name": n}) for n in "abc")), say("ok")]
    async with rig(tmp_path, steps, tools=[alone]) as r:
        assert (await r.turn()).status == "completed" and most == 1
        assert r.session.agent.tools["terminal"].exclusive


async def test_21_writes_to_one_path_are_serialised(tmp_path: Path) -> None:
    writes = [
        (f"c{i}", "write_file", {"path": "same.txt", "content": str(i) * 1000}) for i in range(6)
    ]
    async with rig(tmp_path, [call(*writes), say("ok")]) as r:
        assert (await r.turn()).status == "completed"
        assert (r.home.work / "same.txt").read_text() == "5" * 1000, "the last one stays"


# -- 23, 24 --------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_23_the_limit_of_model_calls_ends_with_a_summary_without_tools(
    tmp_path: Path, wire: str
) -> None:
    steps = [call((f"c{i}", "terminal", {"command": f"echo {i}"})) for i in range(3)]
    options = Options(max_turns=3, yolo=True)
    async with rig(tmp_path, [*steps, say("I did three.")], wire=wire, options=options) as r:
        result = await r.turn()
        assert result.status == "partial" and result.error_code == "max_turns"
        assert result.text == "I did three." and len(r.requests) == 4
        last = r.requests[3]
        check_legal(last)
        forbidden = b'"none"' in last.body.lower() or wire == "bedrock"  # which cannot say so
        assert not tools(last) or forbidden, "tools cannot be called any more"


async def test_23_calls_in_the_last_answer_are_not_run(tmp_path: Path) -> None:
    again = call(("x1", "terminal", {"command": "echo x >> log"}))
    more = say("I want more. ") + call(("x2", "terminal", {"command": "echo y >> log"}))
    async with rig(tmp_path, [again, more], options=Options(max_turns=1, yolo=True)) as r:
        result = await r.turn()
        assert result.status == "partial" and result.error_code == "max_turns"
        assert (r.home.work / "log").read_text() == "x\n"


async def test_24_an_interrupt_reaches_tools_on_worker_threads(tmp_path: Path) -> None:
    started = threading.Event()
    release = threading.Event()
    finished = threading.Event()

    async def run(p: Nothing, ctx: Any) -> str:
        def block() -> None:
            started.set()
            release.wait(30)
            finished.set()

        await asyncio.to_thread(block)
        return "done"

    blocking = Tool("block", "Blocks a thread.", Nothing, run)
    async with rig(tmp_path, [call(("c1", "block", {}))], tools=[blocking]) as r:
        turn = r.begin()
        await r.until(lambda e: isinstance(e, ToolStarted))
        while not started.is_set():
            await asyncio.sleep(0)
        r.session.interrupt()
        result = await turn
        assert result.status == "interrupted" and not finished.is_set()
        release.set()


async def test_24_finished_results_stay_and_the_rest_is_skipped(tmp_path: Path) -> None:
    gate = Gate()

    async def run(p: Name, ctx: Any) -> str:
        if p.name == "slow":
            await gate.arrive()
        return f"{p.name} done"

    one = Tool("job", "A job.", Name, run, exclusive=True)
    names = ["quick", "slow", "never"]
    steps = [call(*((f"c{n}", "job", {"name": n}) for n in names))]
    async with rig(tmp_path, steps, tools=[one]) as r:
        turn = r.begin()
        await gate.reached()
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        texts = [p.text for m in await r.stored() if m.role == "tool" for p in m.parts]  # type: ignore[union-attr]
        assert texts[0] == "quick done" and len(texts) == 3
        assert "interrupted" in texts[1] and texts[2] == "skipped: interrupted by the user"
