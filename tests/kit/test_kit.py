"""The kit itself, held against plain HTTP clients and the vendors' own stream readers."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from botocore.eventstream import EventStreamBuffer

from tests.kit import (
    WIRES,
    Gate,
    Provider,
    call,
    error_frame,
    garbage,
    hang_up,
    nothing,
    raw,
    redirect,
    reset,
    say,
    stall,
    status,
    think,
)
from tests.kit.render import STREAM_TYPE

PATHS = {
    "chat": "/chat/completions",
    "responses": "/responses",
    "anthropic": "/v1/messages",
    "gemini": "/models/m:streamGenerateContent?alt=sse",
    "bedrock": "/model/m/converse-stream",
}


async def post(p: Provider, http: aiohttp.ClientSession, **body: object) -> tuple[int, str, bytes]:
    url = p.base_url + PATHS[p.wire]
    async with http.post(url, json={"model": "m", "stream": True, **body}) as answer:
        return answer.status, answer.content_type, await answer.read()


async def test_every_wire_streams_and_keeps_what_was_asked() -> None:
    reply = think("hm", signature="sig") + say("Grüße ✓") + call(("c1", "f", {"a": 1}))
    for wire in WIRES:
        async with Provider([reply], wire=wire) as p, aiohttp.ClientSession() as http:
            code, kind, body = await post(p, http, messages=[])
            assert (code, kind) == (200, STREAM_TYPE[wire])
            assert "✓".encode() in body or b"\\u2713" in body
            assert p.requests[0].json["messages"] == []
            assert p.requests[0].streams and p.requests[0].answered
            assert not p.surprises


def test_frames_are_what_botocore_reads() -> None:
    with Provider([think("a") + say("text") + call(("c1", "f", {"x": [1]}))], wire="bedrock") as p:
        body = asyncio.run(_post_once(p))
    buffer = EventStreamBuffer()
    buffer.add_data(body)
    events = [(e.headers[":event-type"], json.loads(e.payload)) for e in buffer]
    assert events[0][0] == "messageStart" and events[-1][0] == "metadata"
    inputs = [
        e["delta"]["toolUse"]["input"]
        for kind, e in events
        if kind == "contentBlockDelta" and "toolUse" in e["delta"]
    ]
    assert json.loads("".join(inputs)) == {"x": [1]}


async def _post_once(p: Provider) -> bytes:
    async with aiohttp.ClientSession() as http:
        return (await post(p, http))[2]


@pytest.mark.parametrize("wire", WIRES)
async def test_chunking_changes_nothing_but_the_chunks(wire: str) -> None:
    reply = say("Käse, ein 🧀")
    script = [reply, reply.bytes_each(1), reply.random_cuts(7), reply.until_close(), reply.gzip()]
    async with Provider(script, wire=wire) as p, aiohttp.ClientSession() as http:
        bodies = [(await post(p, http))[2] for _ in script]
    assert len(set(bodies)) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_whole_json_and_errors(wire: str) -> None:
    script = [say("hi").as_json(), status(429, "slow", headers={"Retry-After": "3"}), nothing()]
    async with Provider(script, wire=wire) as p, aiohttp.ClientSession() as http:
        assert b"hi" in (await post(p, http))[2]
        code, _, body = await post(p, http)
        assert code == 429 and b"slow" in body
        assert (await post(p, http))[0] == 200
        assert p.connections == 1
        assert (await post(p, http))[0] == 418
        assert len(p.surprises) == 1


async def test_faults_of_the_socket() -> None:
    script = [reset(), hang_up(), garbage(b"\x00\x00nonsense\r\n"), say("abcdef").cut("text", 1)]
    async with Provider(script) as p:
        for _ in script:
            with pytest.raises(aiohttp.ClientError):
                await _post_once(p)
        assert len(p.requests) == 4 and p.connections == 4


async def test_cut_at_a_byte_and_truncated_gzip() -> None:
    script = [say("x" * 40).cut(byte=77).until_close(), say("y").as_json().gzip(truncated=True)]
    async with Provider(script) as p:
        assert len(await _post_once(p)) == 77
        with pytest.raises(json.JSONDecodeError):  # aiohttp does not notice; the body is short
            json.loads(await _post_once(p))


async def test_marks_point_at_the_same_place_on_every_wire() -> None:
    for wire in WIRES:
        reply = say("one ", "two ", "three").cut("text", 2).until_close()
        async with Provider([reply], wire=wire) as p:
            body = await _post_once(p)
            assert b"two" in body and b"three" not in body


async def test_a_stall_is_ended_by_the_client_and_a_gate_by_the_test() -> None:
    gate = Gate()
    script = [stall(), say("ab", "cd").stall("text", 1), say("ab", "cd").hold(gate, "text", 1)]
    async with Provider(script) as p:
        for i in range(2):
            task = asyncio.create_task(_post_once(p))
            while len(p.requests) <= i:
                await asyncio.sleep(0)
            assert not p.requests[i].gone.is_set()
            task.cancel()
            await asyncio.wait_for(p.requests[i].gone.wait(), 90)
            assert not p.requests[i].answered
        task = asyncio.create_task(_post_once(p))
        await gate.reached()
        assert not task.done()
        gate.open()
        assert b"cd" in await task


async def test_steps_may_be_functions_and_bodies_lazy() -> None:
    async with Provider(
        [lambda r: say(r.model), raw(lambda: (b"z" * 1000 for _ in range(100)))]
    ) as p:
        assert b'"content": "m"' in await _post_once(p)
        assert len(await _post_once(p)) == 100_000


async def test_error_frames_redirects_refused_and_models() -> None:
    async with Provider([error_frame("too much", status=429), redirect("http://other/")]) as p:
        assert b"too much" in await _post_once(p)
        async with aiohttp.ClientSession() as http:
            async with http.post(p.base_url + PATHS["chat"], allow_redirects=False) as answer:
                assert answer.headers["Location"] == "http://other/"
            async with http.get(p.base_url + "/models") as answer:
                assert (await answer.json())["data"][0]["id"] == "kit-model"
    async with Provider([say("up")], listening=False) as p:
        with pytest.raises(aiohttp.ClientConnectorError):
            await _post_once(p)
        await p.listen()
        assert b"up" in await _post_once(p)


async def test_a_bug_in_a_step_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Provider([lambda r: 1 // 0]) as p:  # type: ignore[arg-type,return-value]
            with pytest.raises(aiohttp.ClientError):
                await _post_once(p)


async def test_the_vendors_clients_understand_the_script() -> None:
    """The rendering is right when the official SDKs read what was scripted."""
    reply = think("hm", signature="c2ln") + say("Grüße, Welt") + call(("c1", "f", {"a": 1}))
    for form in (reply, reply.as_json()):
        for wire, ask in {
            "chat": _ask_chat,
            "responses": _ask_responses,
            "anthropic": _ask_anthropic,
            "gemini": _ask_gemini,
        }.items():
            async with Provider([form], wire=wire) as p:
                text, calls = await ask(p, form is reply)
                assert (text, calls) == ("Grüße, Welt", [("f", {"a": 1})]), wire


async def _ask_chat(p: Provider, stream: bool) -> tuple[str, list[tuple[str, object]]]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="k", base_url=p.base_url) as client:
        if not stream:
            done = await client.chat.completions.create(model="m", messages=[])
            message = done.choices[0].message
            calls = [
                (c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls
            ]
            return message.content, calls
        async with client.chat.completions.stream(model="m", messages=[]) as events:
            async for _ in events:
                pass
            message = (await events.get_final_completion()).choices[0].message
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls]
        return message.content, calls


async def _ask_responses(p: Provider, stream: bool) -> tuple[str, list[tuple[str, object]]]:
    from openai import AsyncOpenAI

    async with AsyncOpenAI(api_key="k", base_url=p.base_url) as client:
        if stream:
            async with client.responses.stream(model="m", input="x") as events:
                async for _ in events:
                    pass
                done = await events.get_final_response()
        else:
            done = await client.responses.create(model="m", input="x")
    calls = [i for i in done.output if i.type == "function_call"]
    return done.output_text, [(c.name, json.loads(c.arguments)) for c in calls]


async def _ask_anthropic(p: Provider, stream: bool) -> tuple[str, list[tuple[str, object]]]:
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(api_key="k", base_url=p.base_url) as client:
        args = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
        if stream:
            async with client.messages.stream(**args) as events:
                done = await events.get_final_message()
        else:
            done = await client.messages.create(**args)
    text = "".join(b.text for b in done.content if b.type == "text")
    return text, [(b.name, b.input) for b in done.content if b.type == "tool_use"]


async def _ask_gemini(p: Provider, stream: bool) -> tuple[str, list[tuple[str, object]]]:
    from google import genai

    client = genai.Client(api_key="k", http_options={"base_url": p.origin})
    models = client.aio.models
    if stream:
        chunks = [c async for c in await models.generate_content_stream(model="m", contents="x")]
    else:
        chunks = [await models.generate_content(model="m", contents="x")]
    await client.aio.aclose()
    parts = [part for c in chunks for part in c.candidates[0].content.parts]
    text = "".join(part.text for part in parts if part.text and not part.thought)
    calls = [part.function_call for part in parts if part.function_call]
    return text, [(c.name, c.args) for c in calls]
