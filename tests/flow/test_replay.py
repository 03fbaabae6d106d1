"""A recorded session replays identically, whatever happened in it; a change is found and shown."""

from __future__ import annotations

import asyncio
import json
import zlib
from asyncio import Event
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path

import pytest

from hermes.agent import loop
from hermes.app.agents import Options
from hermes.app.live.session_tape import TAPE_KIND, TapeTurn, load_tape
from hermes.batch.replay.tape_file import encode_tape, read_tape
from hermes.core.events import ToolDone, TurnEnd, TurnEvent
from hermes.core.message import user_message
from hermes.core.tool import ToolContext, tool
from hermes.llm.http.tape import TapeExchange
from tests.flow.loop_parts import Nothing, work
from tests.kit import WIRES, Gate, Provider, Tokens, call, reset, say, status, think
from tests.kit.home import KEY
from tests.kit.replay import replay
from tests.kit.rig import rig
from tests.unit.core.redaction import redaction_corpus as corpus

READ = ("c1", "read_file", {"path": "a.txt"})
AGAIN = ("c2", "read_file", {"path": "b.txt"})


@pytest.mark.parametrize("wire", WIRES)
async def test_reasoning_and_parallel_calls_on_every_wire(tmp_path: Path, wire: str) -> None:
    work(tmp_path, a="alpha", b="beta")
    steps = [think("hm") + say("Look. ") + call(READ, AGAIN), say("Both ", "read.")]
    async with rig(tmp_path, steps, wire=wire, replay=True) as r:
        assert (await r.turn()).text == "Both read."


@pytest.mark.parametrize("wire", WIRES)
async def test_retries_and_a_broken_stream(tmp_path: Path, wire: str) -> None:
    steps = [status(500, "oops"), reset(), say("one two three four").reset("text", 2), say("four")]
    async with rig(tmp_path, steps, wire=wire, replay=True, check=False) as r:
        await r.turn()
        assert r.recoveries


async def test_megabytes_of_requests_and_their_digests(tmp_path: Path) -> None:
    """Each is kept as what differs from the one before, and its digest is that of all of it."""
    work(tmp_path, a="alpha")
    steps = [call((f"c{n}", "read_file", {"path": "a.txt", "limit": n + 1})) for n in range(3)]
    config = {"model": {"context_length": 1_000_000}}
    async with rig(tmp_path, [*steps, say("all read")], config=config, replay=True) as r:
        assert (await r.turn("x" * 1_000_000)).text == "all read"
        (turn,) = await load_tape(r.runtime.store, r.session.id)
        exchanges = [entry for entry in turn.entries if isinstance(entry, TapeExchange)]
        last = b""
        for exchange, request in zip(exchanges, r.provider.requests, strict=True):
            last = last[: exchange.same] + exchange.request
            assert last == request.body
            assert exchange.digest == sha256(request.body).hexdigest()
        assert sum(len(exchange.request) for exchange in exchanges[1:]) < 3000


async def test_a_fallback(tmp_path: Path) -> None:
    async with (
        Provider([say("spare here")]) as spare,
        rig(tmp_path, [status(401, "bad key")], spare=spare, replay=True, check=False) as r,
    ):
        assert (await r.turn()).text == "spare here"


async def test_a_lesson_about_a_parameter_and_a_long_answer(tmp_path: Path) -> None:
    refusal = status(400, "Unsupported parameter: 'stream_options'")
    steps = [refusal, say("It begins ").stop("length"), say("and ends."), say("again")]
    async with rig(tmp_path, steps, replay=True) as r:
        assert (await r.turn()).text == "It begins and ends."
        assert (await r.turn("once more")).text == "again"


async def test_rate_limits_with_a_date(tmp_path: Path) -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    dated = status(429, "slow down").headers(Retry_After=when)
    short = status(429, "slow down").headers(Retry_After="3")
    async with rig(tmp_path, [short, dated, say("at last")], replay=True) as r:
        assert (await r.turn()).text == "at last"


async def test_guidance_while_a_tool_runs(tmp_path: Path) -> None:
    gate = Gate()

    @tool("Waits.")
    async def wait(p: Nothing, ctx: ToolContext) -> str:
        await gate.arrive()
        return "waited"

    steps = [call(("c1", "wait", {})), say("blue it is")]
    async with rig(tmp_path, steps, tools=[wait], replay=True) as r:
        turn = r.begin()
        await gate.reached()
        r.session.submit(user_message("use blue"), busy="steer")
        gate.open()
        assert (await turn).text == "blue it is"


async def test_interrupted_while_the_model_speaks(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("one ", "two ", "three").hold(gate, "text", 2), say("after")]
    async with rig(tmp_path, steps, replay=True) as r:
        turn = r.begin()
        await r.until_shown("two")
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        gate.open()
        assert (await r.turn("go on")).text == "after"


async def test_interrupted_before_a_request_is_sent(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    async with rig(tmp_path, [call(READ), say("after")], replay=True) as r:

        async def stop_second(size: int) -> None:
            if len(r.requests) == 1:
                r.runtime.transport.before_call = None
                r.session.interrupt()
                await Event().wait()

        r.runtime.transport.before_call = stop_second
        assert (await r.turn()).status == "interrupted"
        assert (await r.turn("go on")).text == "after"


async def test_interrupted_while_one_of_three_tools_runs(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    gate = Gate()

    @tool("Waits.")
    async def wait(p: Nothing, ctx: ToolContext) -> str:
        await gate.arrive()
        return "waited"

    @tool("Runs alone.", exclusive=True)
    async def alone(p: Nothing, ctx: ToolContext) -> str:
        return "never"

    steps = [call(READ, ("c2", "wait", {}), ("c3", "alone", {})), say("after")]
    async with rig(tmp_path, steps, tools=[wait, alone], replay=True) as r:
        turn = r.begin()
        await gate.reached()
        await r.until(lambda e: isinstance(e, ToolDone) and e.result.call_id == "c1")
        r.session.interrupt()
        assert (await turn).status == "interrupted"
        gate.open()
        assert (await r.turn("go on")).text == "after"


async def test_calls_that_cannot_be_run(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    bad = [("c1", "no_such_tool", {}), ("c2", "read_file", {"wrong": 1}), ("c3", "read_file", 7)]
    async with rig(tmp_path, [call(*bad), say("well")], replay=True) as r:
        assert (await r.turn()).text == "well"


async def test_a_budget_that_ends_the_turn(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    steps = [call(READ).usage(Tokens(9000, 900)), say("too late")]
    config = {"budget": {"session_tokens": 10_000}}
    async with rig(tmp_path, steps, config=config, replay=True, check=False) as r:
        assert (await r.turn()).error_code == "budget"


async def test_the_limit_of_calls(tmp_path: Path) -> None:
    work(tmp_path, a="alpha", b="beta")
    steps = [call(READ), call(AGAIN), say("so far")]
    options = Options(yolo=True, max_turns=2)
    async with rig(tmp_path, steps, options=options, replay=True, check=False) as r:
        assert (await r.turn()).error_code == "max_turns"


async def test_a_recorded_turn_takes_no_guidance_while_its_tape_is_stored(tmp_path: Path) -> None:
    seen: list[bool] = []

    class LateReader:
        is_closed = False

        def put(self, event: TurnEvent) -> None:
            if isinstance(event, TurnEnd):
                asyncio.get_running_loop().call_soon(lambda: seen.append(r.session.is_steerable))

        def close(self) -> None:
            self.is_closed = True

    async with rig(tmp_path, [say("done")], replay=True, check=False) as r:
        r.session.attach_sink(LateReader())
        await r.turn()
    assert seen == [False]


async def test_a_changed_byte_of_a_prompt_fragment_is_shown_with_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(tmp_path, a="alpha")
    steps = [call(READ), say("so far")]
    options = Options(yolo=True, max_turns=1)
    config = {"trace": {"record": "wire"}}
    async with rig(tmp_path, steps, check=False, options=options, config=config, replay=False) as r:
        await r.turn()
        monkeypatch.setattr(
            loop, "LAST_CALL", loop.LAST_CALL.replace("what is left", "what is 1eft")
        )
        played = await replay(r.runtime.store, r.session.id)
        found = played.report.difference
        assert not played.report.identical and found is not None
        assert found.step == 1 and found.kind == "request"
        assert "what is left" in found.recorded and "what is 1eft" in found.replayed
        assert len(found.recorded) <= 120


async def test_a_tape_is_a_file_and_back(tmp_path: Path) -> None:
    work(tmp_path, a="alpha")
    steps = [call(READ), say("done")]
    async with rig(tmp_path, steps, check=False, config={"trace": {"record": "wire"}}) as r:
        await r.turn()
        turns = await load_tape(r.runtime.store, r.session.id)
        file = tmp_path / "s.tape"
        file.write_text("\n".join(encode_tape(r.session.id, turns, {})), "utf-8")
        again = read_tape(file)
        assert again.session == r.session.id
        assert again.turns[0].entries == turns[0].entries
        assert again.turns[0].lessons == turns[0].lessons


def join_streams(turns: Iterable[TapeTurn]) -> str:
    """What models said, each text in one piece again."""
    texts: dict[tuple[int, str], str] = {}
    exchanges = [e for turn in turns for e in turn.entries if isinstance(e, TapeExchange)]
    for number, exchange in enumerate(exchanges):
        for line in exchange.body.split(b"\n"):
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[6:]).get("choices", ()):
                for made in choice["delta"].pop("tool_calls", ()):
                    key = (number, f"call {made['index']}")
                    part = made["function"].get("arguments", "")
                    texts[key] = texts.get(key, "") + part
                for name, part in choice["delta"].items():
                    texts[number, name] = texts.get((number, name), "") + (part or "")
    return "\n".join(texts.values())


async def test_a_tape_holds_no_secret(tmp_path: Path) -> None:
    """A model says secrets in pieces of six characters; the tape has none of them, and what is
    stored still replays."""
    token = "ghp_" + "a1B2" * 9
    aws = "AKIA" + "IOSFODNN7ABCDEFG"
    steps = [
        status(401, f"The key {token} is not valid"),
        say(f"It is {token}, and ", size=6),
        think(f"I know one: {aws}.") + say(f"also {aws}.", size=6),
        think("one") + say("Look: ") + call(("c1", "read_file", {"path": f"{token}.txt"})),
        think("then ") + say(f"It was {KEY} and {aws}!", size=6),
    ]
    config = {"trace": {"record": "wire"}, "agent": {"api_max_retries": 1}}
    async with rig(tmp_path, steps, check=False, config=config, replay=False) as r:
        await r.turn("hello")
        await r.turn("more")
        await r.turn("and more")
        mine = await r.session.submit(user_message("and your own?"))  # what r.turn would refuse
        assert mine.text == f"It was {KEY} and {aws}!"
        store = r.runtime.store
        rows = await store.objects.list_all(TAPE_KIND)
        assert rows
        for row in rows:
            body = zlib.decompress(row.body)
            assert token.encode() not in body and aws.encode() not in body
        turns = await load_tape(store, r.session.id)
        lines = "\n".join(encode_tape(r.session.id, turns, {})) + join_streams(turns)
        assert "It was [redacted] and [redacted:aws]!" in lines
        assert not any(secret in lines for secret in (token, aws, KEY))
        played = await replay(store, r.session.id)
        assert played.report.identical, played.report


async def test_no_sample_of_the_redaction_corpus_is_on_a_tape(tmp_path: Path) -> None:
    """A line of each family is said by the model, in small pieces, and quoted by an error."""
    samples = [corpus.samples(family, 1)[0] for family in corpus.MAKERS]
    said = say("\n\n".join(text for text, _ in samples), size=7)
    refused = status(400, "\n\n".join(text for text, _ in samples[:20]))
    config = {"trace": {"record": "wire"}, "agent": {"api_max_retries": 1}}
    steps = [said, refused, say("more")]
    async with rig(tmp_path, steps, check=False, config=config, replay=False) as r:
        await r.turn("hello")
        await r.turn("fails")
        await r.turn("again")
        turns = await load_tape(r.runtime.store, r.session.id)
        lines = "\n".join(encode_tape(r.session.id, turns, {})) + join_streams(turns)
        decoded = lines.encode().decode("unicode_escape", "replace")
        left = [secret for _, secret in samples if secret in lines or secret in decoded]
        assert not left, left
