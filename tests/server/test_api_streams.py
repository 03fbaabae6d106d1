"""Streams: frames and their order, keep-alives, clients that leave or do not read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from hermes.server.turns.sse import EventStream
from tests.kit import Gate, call, say, think
from tests.kit.api import Api, api, only_one_node
from tests.server.exchanges import wait_until_idle

CHAT = "/v1/chat/completions"
ASK = {"messages": [{"role": "user", "content": "hi"}], "stream": True}


# -- chat completions ------------------------------------------------------------------------


async def test_chunks(tmp_path: Path) -> None:
    async with api(tmp_path, [say("One ", "two ", "three.")]) as a:
        answer = await a.post(CHAT, {**ASK, "model": "m"})
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["Cache-Control"] == "no-cache"
        assert answer.headers["X-Accel-Buffering"] == "no"
        assert answer.headers["X-Hermes-Session-Id"].startswith("api-")
        *chunks, done = [data for _, data in answer.events]
        assert done == "[DONE]" and answer.body.endswith(b"data: [DONE]\n\n")
        assert {(c["id"], c["object"], c["model"]) for c in chunks} == {
            (chunks[0]["id"], "chat.completion.chunk", "m")
        }
        assert chunks[0]["id"].startswith("chatcmpl-")
        deltas = [c["choices"][0]["delta"] for c in chunks]
        assert deltas[0]["role"] == "assistant"
        assert "".join(d.get("content") or "" for d in deltas) == "One two three."
        reasons = [c["choices"][0]["finish_reason"] for c in chunks]
        assert reasons == [None] * (len(chunks) - 1) + ["stop"]
        usage = chunks[-1]["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"] > 0
        assert "hermes" not in chunks[-1]


async def test_include_usage_adds_its_own_chunk(tmp_path: Path) -> None:
    async with api(tmp_path, [say("Hi.")]) as a:
        answer = await a.post(CHAT, {**ASK, "stream_options": {"include_usage": True}})
        last = answer.events[-2][1]
        assert last["choices"] == [] and last["usage"]["total_tokens"] > 0


async def test_tool_progress_has_its_own_events(tmp_path: Path) -> None:
    script = [
        say("Let me see. ") + call(("c1", "read_file", {"path": "a.txt"})),
        call(("c2", "todo", {}), ("c3", "read_file", {"path": "b.txt"})),
        say("Done."),
    ]
    async with api(tmp_path, script) as a:
        answer = await a.post(CHAT, ASK)
        steps = [data for name, data in answer.events if name == "hermes.tool.progress"]
        assert {s["tool"] for s in steps} == {"read_file", "todo"}
        for step in steps:
            assert step.keys() >= {"tool", "label", "toolCallId", "status"} and step["label"]
        for identity in ("c1", "c2", "c3"):
            of = [s["status"] for s in steps if s["toolCallId"] == identity]
            assert of == ["running", "completed"]
        first = next(s for s in steps if s["toolCallId"] == "c1")
        assert "a.txt" in first["label"]
        text = "".join(
            data["choices"][0]["delta"].get("content") or ""
            for name, data in answer.events
            if name == "" and data != "[DONE]"
        )
        assert text.startswith("Let me see.") and text.endswith("Done.")
        assert "read_file" not in text and "a.txt" not in text


async def test_a_pause_for_tools_does_not_end_the_stream(tmp_path: Path) -> None:
    slow = call(("c1", "terminal", {"command": "sleep 0.5"}))
    async with api(tmp_path, [say("First. ") + slow, say("Second.")]) as a:
        answer = await a.post(CHAT, ASK)
        assert b"Second" in answer.body
        assert answer.body.index(b"First") < answer.body.index(b"hermes.tool.progress")
        assert answer.body.count(b"[DONE]") == 1


async def test_internal_tools_are_not_shown(tmp_path: Path) -> None:
    """A call of a tool whose name starts with _: no event in any stream, no item."""
    script = [call(("c1", "_secret", {})), say("Done.")]
    for n, path in enumerate((CHAT, "/v1/responses")):
        async with api(tmp_path / str(n), script) as a:
            answer = await a.post(path, {**ASK, "input": "x"})
            assert b"_secret" not in answer.body and b"Done" in answer.body
    async with api(tmp_path / "run", script) as a:
        run = (await a.post("/v1/runs", {"input": "x"})).json["run_id"]
        assert b"_secret" not in (await a.get(f"/v1/runs/{run}/events")).body
    async with api(tmp_path / "whole", script) as a:
        assert [i["type"] for i in (await a.ask()).json["output"]] == ["message"]


@pytest.mark.parametrize("shown", [True, False])
async def test_reasoning_where_it_is_enabled(tmp_path: Path, shown: bool) -> None:
    script = [think("Hmm, well.") + say("Yes.")]
    async with api(tmp_path, script, settings={"reasoning": shown}) as a:
        answer = await a.post(CHAT, ASK)
        told = "".join(
            d["choices"][0]["delta"].get("reasoning_content") or ""
            for _, d in answer.events
            if d != "[DONE]"
        )
        assert told == ("Hmm, well." if shown else "")


async def test_keepalive_when_nothing_was_sent_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes.server.turns import sse

    assert sse.KEEPALIVE_SECONDS == 15.0
    monkeypatch.setattr(sse, "KEEPALIVE_SECONDS", 0.15)
    gate = Gate()
    async with api(tmp_path, [say("One ", "two.").hold(gate, after="text")]) as a:
        async with a.open_stream("POST", CHAT, ASK) as reading:
            got = await reading.until(b": keepalive\n\n")
            got += await reading.until(b": keepalive\n\n")
            gate.open()
            rest = await reading.rest()
        assert got.count(b": keepalive\n\n") == 2 and rest.endswith(b"data: [DONE]\n\n")


async def test_no_keepalive_while_there_is_news(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timer may fire at any time: only silence since the last frame counts."""
    streams: list[EventStream] = []
    open_stream = EventStream.open

    async def remember_stream(stream: EventStream) -> None:
        streams.append(stream)
        await open_stream(stream)

    monkeypatch.setattr(EventStream, "open", remember_stream)
    gate = Gate()
    steps = [say("One ", "two.").hold(gate, after="text")]
    async with api(tmp_path, steps) as a, a.open_stream("POST", CHAT, ASK) as reading:
        await reading.until(b"One ")
        streams[0]._keep_alive()
        gate.open()
        assert b"keepalive" not in await reading.rest()


async def test_a_client_that_leaves_stops_the_turn_and_its_text_is_kept(tmp_path: Path) -> None:
    headers = {"X-Hermes-Session-Id": "left"}
    async with api(tmp_path, [say("Half", " of it").stall(after="text"), say("On.")]) as a:
        async with a.open_stream("POST", CHAT, ASK, **headers) as reading:
            await reading.until(b"Half")
        await asyncio.wait_for(a.provider.requests[0].gone.wait(), 90)
        await wait_until_idle(a)
        kept = (await a.get("/api/sessions/left/messages")).body
        assert b"hi" in kept and b"Half" in kept
        again = await a.chat("go on", headers=headers)
        assert again.status == 200 and b"Half" in a.provider.last.body


async def test_leaving_before_the_model_answers(tmp_path: Path) -> None:
    for path in (CHAT, "/v1/responses", "/v1/messages"):
        gate = Gate()
        async with api(tmp_path / path[-5:], [say("x").hold(gate, n=0)]) as a:
            body = {**ASK, "input": "x", "max_tokens": 9}
            asking = asyncio.create_task(a.open_stream("POST", path, body).__aenter__())
            await gate.reached()
            asking.cancel()
            await wait_until_idle(a)


async def test_leaving_before_the_stream_starts_is_no_crash(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with api(tmp_path, then=say("never read")) as a:
        left = asyncio.Event()

        async def late(stream: EventStream) -> None:
            transport = stream._request.transport
            assert transport is not None
            transport.abort()
            left.set()
            await opened(stream)

        opened = EventStream.open
        monkeypatch.setattr(EventStream, "open", late)
        with pytest.raises(aiohttp.ClientError):
            await a.post(CHAT, ASK)
        await left.wait()
        await wait_until_idle(a)
    assert "crashed" not in caplog.text


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
async def test_leaving_while_a_tool_is_silent_kills_its_process_tree(
    tmp_path: Path, path: str
) -> None:
    """F95: nothing of the tool is left once the client has disconnected."""
    command = "sh -c 'echo $$ > pid; sleep 300 & echo $! > child; wait'"
    async with api(tmp_path, [call(("c1", "terminal", {"command": command}))]) as a:
        body = {**ASK, "input": "x", "max_tokens": 9}
        async with a.open_stream("POST", path, body):
            child = a.home.work / "child"
            marker = f"{a.home.work}".encode()
            async with asyncio.timeout(90):
                while not (
                    child.exists()
                    and child.read_text().strip()
                    and _list_sleeping_processes(marker)
                ):
                    await asyncio.sleep(0.02)
        await wait_until_idle(a)
        async with asyncio.timeout(90):
            while _list_sleeping_processes(marker):
                await asyncio.sleep(0.02)


def _list_sleeping_processes(marker: bytes) -> list[str]:
    """The processes `sleep 300` whose working directory is below this folder."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            where = bytes(folder.joinpath("cwd").readlink())
        except OSError:
            continue
        if command.startswith(b"sleep\x00300") and where.startswith(marker):
            found.append(folder.name)
    return found


# -- a client that does not read -------------------------------------------------------------


async def _connect_without_reading(a: Api, path: str, body: bytes) -> asyncio.StreamWriter:
    """A client that sends a request and never reads, with the smallest receive buffer."""
    import socket

    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    port = int(a.url.rpartition(":")[2])
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {a.key}\r\n"
        f"X-Hermes-Session-Id: deaf\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(sock, head.encode() + body)
    return sock


@only_one_node
@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
async def test_a_slow_reader_is_dropped_and_its_turn_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    from hermes.server.turns import sse

    assert sse.STALLED_SECONDS == 30.0 and sse.MAX_UNREAD_BYTES == 1024 * 1024
    monkeypatch.setattr(sse, "STALLED_SECONDS", 0.3)
    monkeypatch.setattr(sse, "MAX_UNREAD_BYTES", 64 * 1024)
    gate = Gate()
    pieces = ["x" * 50_000 + " "] * 120 + ["the end"]
    reply = say(*pieces).hold(gate, after="text", n=110)
    async with api(tmp_path, [reply, say("Yes.")]) as a:
        body = b'{"messages":[{"role":"user","content":"hi"}],"input":"hi","stream":true}'
        sock = await _connect_without_reading(a, path, body)
        await gate.reached()
        async with asyncio.timeout(90):  # it is dropped while the model still speaks
            while a.server.connection_count:
                await asyncio.sleep(0.02)
        assert a.server.turns.slots.active_turns == 1
        gate.open()
        await wait_until_idle(a)
        kept = (await a.get("/api/sessions/deaf/messages")).json["data"]
        assert kept[-1]["role"] == "assistant"
        assert kept[-1]["content"][0]["text"].endswith("the end")
        if path == "/v1/responses":
            objects = await a.server.runtime.store.objects.list_all("response")
            assert b"the end" in objects[0].body and b"completed" in objects[0].body
        sock.close()


@only_one_node
async def test_a_slow_reader_of_a_run_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.server.turns.sse.STALLED_SECONDS", 0.3)
    monkeypatch.setattr("hermes.server.turns.sse.MAX_UNREAD_BYTES", 64 * 1024)
    async with api(tmp_path, [say(*["y" * 50_000 + " "] * 100)]) as a:
        run = (await a.post("/v1/runs", {"input": "hi"})).json["run_id"]
        whole = await a.get(f"/v1/runs/{run}/events")
        import socket

        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(sock, ("127.0.0.1", int(a.url.rpartition(":")[2])))
        head = f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n"
        await loop.sock_sendall(sock, f"{head}Authorization: Bearer {a.key}\r\n\r\n".encode())
        async with asyncio.timeout(90):
            while a.server.connection_count < 2:
                await asyncio.sleep(0.01)
            while a.server.connection_count > 1:
                await asyncio.sleep(0.02)
        sock.close()
        assert (await a.get(f"/v1/runs/{run}/events")).body == whole.body
        assert whole.events[-1][0] == "run.completed"
