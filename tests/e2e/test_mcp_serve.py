"""`hermes mcp serve`: a client of the official library reads, asks, and answers questions."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.kit import Home, Provider, call, run_hermes, say, start_hermes
from tests.kit.home import program

TOOLS = {
    "conversations_list", "conversation_get", "messages_read", "attachments_fetch", "events_poll",
    "events_wait", "messages_send", "channels_list", "permissions_list_open",
    "permissions_respond", "agent_ask",
}  # fmt: skip


async def use(client: Client, name: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(name, arguments)
    found = json.loads(result.content[0].text)  # type: ignore[union-attr]
    assert result.is_error == (not found["ok"])
    return dict(found)


async def test_a_client_talks_to_the_agent_over_stdio(tmp_path: Path) -> None:
    steps = [
        say("hello"),
        say("again"),
        call(("c1", "terminal", {"command": f"git push {'x' * 5000} --the-end"})),
        say("done"),
    ]
    async with Provider(steps) as p:
        home = Home.of(tmp_path, p)
        command, *words = program()
        server = StdioServerParameters(
            command=command, args=[*words, "mcp", "serve"], env=home.env, cwd=str(home.work)
        )
        async with Client(server) as client:
            listed = await client.list_tools()
            assert {tool.name for tool in listed.tools} == TOOLS
            assert await use(client, "conversations_list") == {"ok": True, "conversations": []}
            cursor = (await use(client, "events_poll"))["cursor"]
            first = await use(client, "agent_ask", prompt="hi")
            assert first["ok"] and first["text"] == "hello" and first["status"] == "completed"
            session = first["session_id"]
            again = await use(client, "agent_ask", prompt="once more", session_id=session)
            assert again["text"] == "again" and again["session_id"] == session
            rows = (await use(client, "messages_read", session_id=session))["messages"]
            assert [(r["role"], r["text"]) for r in rows] == [
                ("user", "hi"), ("assistant", "hello"), ("user", "once more"),
                ("assistant", "again"),
            ]  # fmt: skip
            later = await use(client, "messages_read", session_id=session, after=rows[1]["n"])
            assert [r["text"] for r in later["messages"]] == ["once more", "again"]
            about = await use(client, "conversation_get", session_id=session)
            assert about["conversation"]["messages"] == 4
            missing = await use(client, "conversation_get", session_id="nothing")
            assert missing == {"ok": False, "error": "There is no conversation nothing."}
            empty = await use(client, "agent_ask")
            assert empty["error"] == "Invalid arguments: prompt: Field required."
            events = (await use(client, "events_wait", after=cursor, timeout=60))["events"]
            assert {"answer"} <= {event["type"] for event in events}
            fetched = await client.call_tool(
                "attachments_fetch", {"session_id": session, "message": rows[0]["n"]}
            )
            assert json.loads(fetched.content[0].text) == {"ok": True, "attachments": []}  # type: ignore[union-attr]
            assert await use(client, "channels_list") == {"ok": True, "channels": []}
            sent = await use(client, "messages_send", target="telegram:1", text="hi")
            assert not sent["ok"] and "There is no chat telegram:1" in sent["error"]
            asking = asyncio.create_task(use(client, "agent_ask", prompt="push it"))
            async with asyncio.timeout(90):
                while not (rows := (await use(client, "permissions_list_open"))["permissions"]):
                    await asyncio.sleep(0.05)
            shown = rows[0]["arguments"]
            assert rows[0]["tool"] == "terminal" and "git push" in shown
            assert "--the-end" in shown and len(shown) <= 2000
            assert (await use(client, "permissions_respond", id=rows[0]["id"], decision="deny"))[
                "ok"
            ]
            assert (await asking)["text"] == "done"
            assert "denied" in p.requests[-1].body.decode()


async def test_a_conversation_is_open_in_one_place_and_once(tmp_path: Path) -> None:
    async with Provider([], then=say("yes")) as p:
        home = Home.of(tmp_path, p)
        command, *words = program()
        server = StdioServerParameters(
            command=command, args=[*words, "mcp", "serve"], env=home.env, cwd=str(home.work)
        )
        asked = await run_hermes(["chat", "-q", "hi", "--output", "json"], home)
        stored = asked.json["session_id"]
        async with Client(server) as one, Client(server) as other:
            questions = [
                use(one, "agent_ask", prompt=f"question {n}", session_id=stored) for n in range(3)
            ]
            assert [found["text"] for found in await asyncio.gather(*questions)] == ["yes"] * 3
            refused = await use(other, "agent_ask", prompt="me too", session_id=stored)
            assert "is open elsewhere; nothing was asked" in refused["error"]
            rows = (await use(other, "messages_read", session_id=stored))["messages"]
            assert [row["role"] for row in rows] == ["user", "assistant"] * 4
            past = await use(other, "messages_read", session_id=stored, after=10**30)
            assert past == {"ok": True, "messages": []}
            blank = await use(other, "agent_ask", prompt=" ")
            assert blank == {"ok": False, "error": "The prompt is empty."}
        async with Client(server) as other:
            found = await use(other, "agent_ask", prompt="now", session_id=stored)
            assert found["text"] == "yes"
        assert len(p.requests) == 5


@asynccontextmanager
async def serving(home: Home, *words: str) -> AsyncIterator[tuple[str, Any]]:
    process = await start_hermes(["mcp", "serve", "--http", *words], home)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(90):
            line = (await process.stderr.readline()).decode()
        found = re.fullmatch(r"listening on (http://127\.0\.0\.1:\d+/mcp)\n", line)
        assert found, line
        yield found[1], process
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGTERM)
        async with asyncio.timeout(90):
            assert await process.wait() == 0


async def test_http_checks_key_host_and_origin(tmp_path: Path) -> None:
    key = "k" + os.urandom(24).hex()
    async with Provider([say("hello")]) as p:
        home = Home.of(tmp_path, p)
        home.env["API_SERVER_KEY"] = key
        async with serving(home) as (address, _):
            bearer = {"Authorization": f"Bearer {key}"}
            async with httpx2.AsyncClient(trust_env=False) as plain:
                body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
                assert (await plain.post(address, json=body)).status_code == 401
                wrong = {"Authorization": "Bearer wrong"}
                assert (await plain.post(address, json=body, headers=wrong)).status_code == 401
                for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                    answer = await plain.post(address, json=body, headers={**bearer, **headers})
                    assert answer.status_code in (403, 421), headers
            async with (
                httpx2.AsyncClient(headers=bearer, trust_env=False, timeout=90) as http,
                Client(streamable_http_client(address, http_client=http)) as client,
            ):
                assert (await use(client, "agent_ask", prompt="hi"))["text"] == "hello"


async def test_a_public_address_needs_a_strong_key(tmp_path: Path) -> None:
    home = Home(tmp_path)
    process = await start_hermes(["mcp", "serve", "--http", "--host", "0.0.0.0"], home)
    async with asyncio.timeout(90):
        _, err = await process.communicate()
    assert process.returncode == 2 and b"without a key" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_while_the_client_is_silent(
    tmp_path: Path, number: signal.Signals
) -> None:
    home = Home(tmp_path)
    process = await start_hermes(["mcp", "serve"], home, stdin=asyncio.subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}\n')
    async with asyncio.timeout(90):
        await process.stdout.readline()
        process.send_signal(number)
        assert await process.wait() == 0
