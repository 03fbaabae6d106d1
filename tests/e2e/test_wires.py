"""The program as a process on each wire: output forms, exit status, sessions, signals, images."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.kit import (
    WIRES,
    Event,
    Gate,
    Home,
    Provider,
    Received,
    Reply,
    call,
    finish,
    nothing,
    raw,
    run_hermes,
    say,
    stall,
    start_hermes,
    status,
    think,
)
from tests.kit.bodies import check_legal, messages
from tests.kit.home import KEY
from tests.kit.processes import alive, appears, until

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def leak_free(home: Home, *outputs: str) -> None:
    assert not home.leaks() and all(KEY not in text for text in outputs)


# -- output forms --------------------------------------------------------------------------


async def first_delta(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    async with asyncio.timeout(90):
        while line := await process.stdout.readline():
            event = json.loads(line)
            if event["type"] == "text.delta":
                return dict(event)
    raise AssertionError("it ended without text")


async def test_stream_json_reports_recoveries(tmp_path: Path) -> None:
    steps = [status(429, "slow down", headers={"Retry-After": "0.05"}), say("ok")]
    async with Provider(steps) as p:
        ran = await run_hermes(
            ["chat", "-q", "hi", "--output", "stream-json"], Home.of(tmp_path, p)
        )
        (event,) = [e for e in ran.events if e["type"] == "recovering"]
        assert set(event) == {"type", "kind", "action", "wait_seconds"}
        assert event["kind"] == "rate_limited" and ran.rc == 0


async def test_notices_and_the_providers_own_cost(tmp_path: Path) -> None:
    def priced(events: list[Event]) -> list[Event]:
        end = b'"total_tokens": 18'
        return [Event(e.kind, e.data.replace(end, b'"cost": 0.0125, ' + end)) for e in events]

    refusal = status(402, "no credits")
    async with Provider([refusal]) as p, Provider([say("spare").edit(priced)]) as q:
        home = Home.of(tmp_path, p)
        home.fall_back(q)
        ran = await run_hermes(["chat", "-q", "hi", "--output", "stream-json"], home)
        assert ran.rc == 0 and ran.result["text"] == "spare", ran
        assert ran.result["provider"] == "spare" and ran.result["model"] == "spare-model"
        assert ran.result["cost_usd"] == 0.0125
        (notice,) = [e for e in ran.events if e["type"] == "notice"]
        assert set(notice) == {"type", "code", "text"} and "spare" in notice["text"]


async def test_the_environment_alone_is_enough(tmp_path: Path) -> None:
    async with Provider([say("hello")]) as p:
        home = Home(tmp_path)
        (home.path / "config.yaml").unlink()
        env = {"OPENAI_API_KEY": "sk-from-the-environment", "OPENAI_BASE_URL": p.base_url}
        ran = await run_hermes(["chat", "-q", "hi", "--model", "some-model"], home, env=env)
        assert (ran.rc, ran.stdout) == (0, "hello\n"), ran
        assert p.requests[0].headers["authorization"] == "Bearer sk-from-the-environment"
        assert p.requests[0].model == "some-model"


# -- exit status ---------------------------------------------------------------------------


async def test_exit_1_when_the_turn_failed(tmp_path: Path) -> None:
    refusal = status(401, f"Incorrect API key: {KEY}", error="invalid_api_key")
    async with Provider([refusal, refusal]) as p:
        home = Home.of(tmp_path, p)
        ran = await run_hermes(["chat", "-q", "hi", "--output", "json"], home)
        assert ran.rc == 1 and ran.json["error"]["code"] == "auth"
        assert "KIT_KEY" in ran.json["error"]["message"]
        assert not ran.json["completed"]
        plain = await run_hermes(["chat", "-q", "hi"], home)
        assert plain.rc == 1 and plain.stdout == ""
        sentence = plain.stderr.splitlines()[-1]
        assert sentence.startswith("hermes: ") and "KIT_KEY" in sentence and len(sentence) <= 308
        leak_free(home, ran.stdout, ran.stderr, plain.stderr)


async def test_exit_1_when_thinking_used_up_the_budget(tmp_path: Path) -> None:
    async with Provider([think("hm").stop("length")]) as p:
        ran = await run_hermes(["chat", "-q", "hi", "--output", "json"], Home.of(tmp_path, p))
        assert ran.rc == 1 and ran.json["error"]["code"] == "thinking_exhausted"
        assert "Thinking Budget Exhausted" in ran.json["error"]["message"]
        assert ran.json["error"]["detail"] is None


async def test_exit_2_for_usage_and_configuration(tmp_path: Path) -> None:
    async with Provider() as p:
        home = Home.of(tmp_path, p)
        for args in (
            ["chat", "--no-such-option"],
            ["chat", "-q", "hi", "--output", "xml"],
            ["chat", "-q", "hi", "--resume", "no-such-session"],
            ["chat", "-q", "hi", "--image", "missing.png"],
            ["chat", "-q", "hi", "--continue"],
        ):
            ran = await run_hermes(args, home)
            assert ran.rc == 2 and "Traceback" not in ran.stderr and ran.stderr, (args, ran)
        unknown = await run_hermes(["-q", "hi", "--provider", "nope", "--output", "json"], home)
        assert unknown.rc == 2 and unknown.json["error"]["detail"] is None
        broken = "model:\n  default: kit\n  provider: [unclosed\nagent: {}\n"
        (home.path / "config.yaml").write_text(broken)
        ran = await run_hermes(["chat", "-q", "hi"], home)
        assert ran.rc == 2 and "line" in ran.stderr and "Traceback" not in ran.stderr
        assert (home.path / "config.yaml").read_text() == broken
        assert not p.requests


async def test_exit_3_when_the_answer_is_partial(tmp_path: Path) -> None:
    async with Provider(then=say("more ").stop("length")) as p:
        ran = await run_hermes(["chat", "-q", "hi", "--output", "json"], Home.of(tmp_path, p))
        assert ran.rc == 3 and ran.json["partial"]
        assert ran.json["error"]["code"] == "output_truncated"
        assert ran.json["text"] == "more more more more "


async def test_exit_3_at_the_limit_of_model_calls(tmp_path: Path) -> None:
    steps = [call((f"c{i}", "read_file", {"path": "a.txt", "offset": i + 1})) for i in range(2)]
    async with Provider([*steps, say("Two done."), steps[0], say("One done.")]) as p:
        home = Home.of(tmp_path, p)
        home.file("a.txt", "1\n2\n3\n")
        ran = await run_hermes(["chat", "-q", "go", "--max-turns", "2", "--output", "json"], home)
        assert ran.rc == 3 and ran.json["error"]["code"] == "max_turns"
        assert ran.json["text"] == "Two done." and len(p.requests) == 3
        ran = await run_hermes(["chat", "-q", "go", "--max-turns", "1"], home)
        assert ran.rc == 3 and ran.stdout == "One done.\n"
        assert "Stopped after 1 model call (max_turns)" in ran.stderr


async def test_exit_3_when_the_loop_guard_ends_the_turn(tmp_path: Path) -> None:
    numbers = iter(range(100))

    def again(request: Received) -> Reply:
        return call((f"c{next(numbers)}", "read_file", {"path": "a.txt"}))

    async with Provider(then=again) as p:
        home = Home.of(tmp_path, p)
        home.file("a.txt", "alpha")
        ran = await run_hermes(["chat", "-q", "go", "--output", "json"], home)
        assert ran.rc == 3 and ran.json["error"]["code"] == "tool_loop"
        assert len(p.requests) == 5
        outcomes = [t["result"] for t in ran.json["tool_calls"]]
        assert sum("alpha" in o for o in outcomes) <= 3
        assert any("strategy" in o for o in outcomes)


# -- sessions ------------------------------------------------------------------------------


async def test_after_a_kill_the_session_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    gate = Gate()
    async with Provider([say("Half ", "of it").hold(gate, "text", 1), say("the rest")]) as p:
        home = Home.of(tmp_path, p)
        process = await start_hermes(["chat", "-q", "tell", "--output", "stream-json"], home)
        await first_delta(process)
        process.kill()
        await finish(process)
        listed = await run_hermes(["sessions", "list"], home)
        assert listed.rc == 0 and "interrupted" in listed.stdout and "tell" in listed.stdout
        ran = await run_hermes(["chat", "--continue", "-q", "go on", "--output", "json"], home)
        assert ran.rc == 0 and ran.json["text"] == "the rest"
        assert "previous turn was interrupted" in ran.stderr
        check_legal(p.requests[1])
        texts = "\n".join(m.text for m in messages(p.requests[1]) if m.role == "user")
        assert texts.count("tell") == 1 and texts.count("go on") == 1
        listed = await run_hermes(["sessions", "list"], home)
        assert "interrupted" not in listed.stdout
        gate.open()


# -- input ---------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_images_arrive_byte_for_byte(tmp_path: Path, wire: str) -> None:
    async with Provider([say("a pixel")], wire=wire) as p:
        home = Home.of(tmp_path, p)
        home.file("dot.dat", PIXEL)
        args = ["chat", "-q", "what?", "--image", "dot.dat", "--image", "dot.dat"]
        ran = await run_hermes(args, home)
        assert ran.rc == 0 and ran.stdout == "a pixel\n", ran
        (message,) = messages(p.requests[0])
        assert message.images == [PIXEL, PIXEL] and message.text == "what?"


async def test_an_image_is_stored(tmp_path: Path) -> None:
    async with Provider([say("a pixel"), say("still")]) as p:
        home = Home.of(tmp_path, p)
        home.file("dot.png", PIXEL)
        await run_hermes(["chat", "-q", "what?", "--image", "dot.png"], home)
        ran = await run_hermes(["chat", "--continue", "-q", "and now?"], home)
        assert ran.rc == 0 and messages(p.requests[1])[0].images == [PIXEL]


async def test_options_name_another_endpoint(tmp_path: Path) -> None:
    async with Provider() as p, Provider([say("elsewhere")], wire="anthropic") as q:
        home = Home.of(tmp_path, p)
        args = ["chat", "-q", "hi", "--output", "json", "--base-url", q.base_url]
        args += ["--api-mode", "anthropic", "--model", "claude-x", "--api-key-env", "SPARE_KEY"]
        ran = await run_hermes([*args, "--provider", "custom"], home)
        assert ran.rc == 0 and ran.json["text"] == "elsewhere" and ran.json["model"] == "claude-x"
        assert q.requests[0].model == "claude-x" and not p.requests
        assert KEY not in str(q.requests[0].headers)


# -- signals -------------------------------------------------------------------------------

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(
    ("form", "number", "code"),
    [*(("stream-json", *one) for one in SIGNALS), ("text", *SIGNALS[0]), ("json", *SIGNALS[1])],
)
async def test_a_signal_during_the_stream(
    tmp_path: Path, form: str, number: int, code: int
) -> None:
    async with Provider([say("Hello ", "world").stall("text", 1), say("ok")]) as p:
        home = Home.of(tmp_path, p)
        process = await start_hermes(["chat", "-q", "hi", "--output", form], home)
        if form == "stream-json":
            await first_delta(process)
        elif form == "text":
            assert process.stdout is not None and await process.stdout.read(6) == b"Hello "
        else:
            await until(lambda: bool(p.requests and p.requests[0].sent))
        process.send_signal(number)
        ran = await finish(process, timeout=90)
        assert ran.rc == code, ran
        await asyncio.wait_for(p.requests[0].gone.wait(), 90)
        if form != "text":
            assert ran.result["interrupted"] and ran.result["error"]["code"] == "interrupted"
        if form == "stream-json":
            assert ran.result["type"] == "result" and ran.result["text"] == "Hello "
        again = await run_hermes(["chat", "--continue", "-q", "go on"], home)
        assert again.rc == 0 and again.stdout == "ok\n"
        assert "previous turn was interrupted" in again.stderr
        check_legal(p.requests[1])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_before_the_first_byte(tmp_path: Path, number: int) -> None:
    async with Provider([stall()]) as p:
        process = await start_hermes(["chat", "-q", "hi", "--output", "json"], Home.of(tmp_path, p))
        await until(lambda: bool(p.requests))
        process.send_signal(number)
        ran = await finish(process, timeout=90)
        assert ran.rc == 128 + number and ran.json["interrupted"]


EARLY = """
import os, sys
from hermes.cli import prompt_input
from hermes.cli.main import main

number = int(sys.argv.pop())

class Finalized:
    def __del__(self):
        os.kill(os.getpid(), number)
        for _ in range(100): pass

read_prompt = prompt_input.read_prompt
def read_interrupted(*args):
    Finalized()
    return read_prompt(*args)

prompt_input.read_prompt = read_interrupted
main()
"""
"""The program, which a signal reaches where Python drops exceptions."""


@pytest.mark.parametrize(("number", "code"), SIGNALS)
async def test_a_signal_at_the_start_is_never_lost(tmp_path: Path, number: int, code: int) -> None:
    async with Provider(then=say("ok")) as p:
        home = Home.of(tmp_path, p)
        words = ["chat", "-q", "hi", str(int(number))]
        process = await start_hermes(words, home, command=[sys.executable, "-c", EARLY])
        ran = await finish(process, timeout=90)
        assert ran.rc == code and not ran.stdout and not p.requests, ran


@pytest.mark.parametrize(("number", "code"), SIGNALS)
async def test_a_signal_during_a_command_leaves_no_orphan(
    tmp_path: Path, number: int, code: int
) -> None:
    command = "echo $$ > pid; (trap '' TERM HUP INT; sleep 300) & echo $! > child; wait"
    async with Provider([call(("c1", "terminal", {"command": command})), say("ok")]) as p:
        home = Home.of(tmp_path, p)
        process = await start_hermes(["chat", "--yolo", "-q", "go", "--output", "json"], home)
        pids = [int(await appears(home.work / name)) for name in ("pid", "child")]
        process.send_signal(number)
        ran = await finish(process, timeout=90)
        assert ran.rc == code, ran
        await asyncio.sleep(0)
        assert not [pid for pid in pids if alive(pid)], "an orphan survived"
        assert ran.json["interrupted"]
        again = await run_hermes(["chat", "--continue", "-q", "go on"], home)
        assert again.rc == 0 and again.stdout == "ok\n"
        check_legal(p.requests[1])


async def test_a_killed_agent_leaves_no_orphan_either(tmp_path: Path) -> None:
    command = "echo $$ > pid; sleep 300 & echo $! > child; wait"
    async with Provider([call(("c1", "terminal", {"command": command}))]) as p:
        home = Home.of(tmp_path, p)
        process = await start_hermes(["chat", "--yolo", "-q", "go"], home)
        pids = [int(await appears(home.work / name)) for name in ("pid", "child")]
        process.kill()
        await process.wait()
        await until(lambda: not any(map(alive, pids)))
        await finish(process)


async def test_a_second_signal_ends_the_process_at_once(tmp_path: Path) -> None:
    command = "trap '' TERM INT HUP; echo $$ > pid; while :; do sleep 1; done"
    async with Provider([call(("c1", "terminal", {"command": command}))]) as p:
        home = Home.of(tmp_path, p)
        process = await start_hermes(["chat", "--yolo", "-q", "go"], home)
        pid = int(await appears(home.work / "pid"))
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.1)  # two at the same moment are one
        process.send_signal(signal.SIGINT)
        ran = await finish(process, timeout=90)
        assert ran.rc == 130
        await until(lambda: not alive(pid))


async def test_a_reader_that_left_ends_the_turn(tmp_path: Path) -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
    endless = say("x").drip(chunk, 0.01, after="text")
    async with Provider([endless]) as p:
        home = Home.of(tmp_path, p)
        process = await start_hermes(["chat", "-q", "hi", "--output", "stream-json"], home)
        await first_delta(process)
        assert process.stdout is not None
        process._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await asyncio.wait_for(p.requests[0].gone.wait(), 90)
        assert await asyncio.wait_for(process.wait(), 90) == 141
        assert "Traceback" not in (await process.stderr.read()).decode()  # type: ignore[union-attr]


# -- oddities through the whole program ----------------------------------------------------


async def test_an_empty_model_never_gives_an_empty_bubble(tmp_path: Path) -> None:
    async with Provider(then=nothing()) as p:
        ran = await run_hermes(["chat", "-q", "hi"], Home.of(tmp_path, p))
        assert ran.rc == 1 and ran.stdout == "" and ran.stderr
        assert len(p.requests) == 3


async def test_odd_characters_survive_the_whole_program(tmp_path: Path) -> None:
    body = b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud800\\u0000b\xff"}}]}\n\n'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    reply = raw(body + end, content_type="text/event-stream")
    async with Provider([reply, say("ok")]) as p:
        home = Home.of(tmp_path, p)
        ran = await run_hermes(["chat", "-q", "hi", "--output", "json"], home)
        assert ran.rc == 0 and ran.json["text"].startswith("a"), ran
        again = await run_hermes(["chat", "--continue", "-q", "more"], home)
        assert again.rc == 0
        check_legal(p.requests[1])
