"""Threats A8-A16: hostile bodies, slow clients, many connections, dangerous text.

Connections are limited to 2,048 by default (A13: 256), so that one address can hold a thousand
streams; the limits are settings.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit import Gate, call, say
from tests.kit.api import Api, api
from tests.server.json_bombs import JSON_BOMBS
from tests.server.raw_http import CHAT, HI, request_head, status_of, with_key

# -- A8 to A10: bodies -----------------------------------------------------------------------


async def test_A8_a_body_one_byte_too_large(tmp_path: Path) -> None:
    async with api(tmp_path, then=say("Yes."), settings={"max_request_bytes": 200_000}) as a:
        fits = json.dumps(HI).encode().ljust(200_000)
        assert (await a.post(CHAT, data=fits)).status == 200
        over = await a.post(CHAT, data=fits + b" ")
        assert over.status == 413 and "200,000" in over.error["message"]

        async def chunks():
            for _ in range(21):
                yield b" " * 10_000

        headers = {"Authorization": f"Bearer {a.key}", "Content-Type": "application/json"}
        async with a.http.post(a.url + CHAT, data=chunks(), headers=headers) as answer:
            assert answer.status == 413
        # Where the length is known, the answer does not wait for any of the body.
        lines = with_key("Content-Length: 200001", "Content-Type: application/json")
        assert status_of(await a.raw(request_head(CHAT, *lines), until=b"}")) == 413


async def test_A8_endless_chunks_are_not_read_to_their_end(tmp_path: Path) -> None:
    async with api(tmp_path, settings={"max_request_bytes": 100_000}) as a:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(a.url.rpartition(":")[2]))
        writer.write(request_head(CHAT, *with_key("Transfer-Encoding: chunked")))
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(8):
            writer.write(chunk)
        async with asyncio.timeout(90):
            assert status_of(await reader.read(4096)) == 413
        writer.close()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd", "x", "gzip, gzip"])
async def test_A9_compressed_bodies(keyless_once: Api, coding: str) -> None:
    data = gzip.compress(b" " * 50_000_000) if "gzip" in coding else zlib.compress(b"{}")
    answer = await keyless_once.post(CHAT, data=data, headers={"Content-Encoding": coding})
    assert answer.status == 415


@pytest.fixture
async def keyless_once(tmp_path: Path):
    async with api(tmp_path, key="") as a:
        yield a


async def test_A10_json_bombs_are_refused(tmp_path: Path) -> None:
    async with api(tmp_path) as a:
        for case, body in JSON_BOMBS.items():
            answer = await a.post(CHAT, data=body)
            assert answer.status == 400, case
            assert answer.error["message"]
        assert not a.provider.requests


# -- A11 to A13: slow clients and many connections -------------------------------------------


def test_time_limits_are_within_bounds() -> None:
    from hermes.server import middleware
    from hermes.server.http import connection
    from hermes.server.turns import sse

    assert connection.HEADER_SECONDS <= 10 and middleware.BODY_SECONDS <= 60
    assert sse.STALLED_SECONDS <= 30 and sse.MAX_UNREAD_BYTES <= 1 << 20


async def test_A11_slow_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.server.http.connection.HEADER_SECONDS", 0.3)
    async with api(tmp_path) as a:
        port = int(a.url.rpartition(":")[2])

        async def send_slowly(first: bytes) -> bool:
            """Whether the server closes the connection before the headers are complete."""
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            if first:
                writer.write(first)
                await reader.readuntil(b"ok")
            try:
                for byte in b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 500:
                    writer.write(bytes([byte]))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            if not await reader.read(1000):
                                return True
            except ConnectionError:
                return True
            finally:
                writer.close()
            return False

        before = request_head("/health", "Host: localhost", method="GET")
        silent = asyncio.create_task(a.raw(b""))
        assert await asyncio.gather(send_slowly(b""), send_slowly(before)) == [True, True]
        assert await silent == b""


async def test_A12_slow_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes.server.middleware.BODY_SECONDS", 0.3)
    async with api(tmp_path) as a:
        request = request_head(CHAT, *with_key("Content-Length: 1000"))
        got = await a.raw(request + b"{", until=b"}}")
        assert status_of(got) == 408 and b"Connection: close" in got


async def test_A13_idle_connections_make_room(tmp_path: Path) -> None:
    settings = {"max_connections": 60, "max_connections_per_address": 40}
    async with api(tmp_path, settings=settings) as a:
        port = int(a.url.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        assert a.server.connection_count <= 60
        for _ in range(20):
            assert (await a.get("/health")).status == 200
        assert a.server.connection_count <= 60
        for _, writer in idle:
            writer.close()


async def test_A13_busy_connections_are_kept(tmp_path: Path) -> None:
    gate = Gate()
    settings = {"max_connections": 8, "max_connections_per_address": 3}
    async with api(tmp_path, then=say("Yes.").hold(gate, n=0), settings=settings) as a:
        busy = [asyncio.create_task(a.chat(f"n{n}")) for n in range(3)]
        while a.server.turns.slots.active_turns < 3:
            await asyncio.sleep(0.01)
        models = request_head("/v1/models", "Host: localhost", method="GET")
        assert await a.raw(models) == b""
        with socket.socket() as other:  # another address has its own
            other.setblocking(False)
            other.bind(("127.0.0.2", 0))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(other, ("127.0.0.1", int(a.url.rpartition(":")[2])))
            await loop.sock_sendall(other, request_head("/health", "Host: localhost", method="GET"))
            assert status_of(await loop.sock_recv(other, 4096)) == 200
        gate.open()
        assert {(await task).status for task in busy} == {200}


# -- A14 to A16: text with a meaning for other programs --------------------------------------


class TestText:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize(
        "header",
        ["X-Hermes-Session-Id", "X-Hermes-Session-Key", "Idempotency-Key", "Last-Event-ID"],
    )
    @pytest.mark.parametrize("value", ["a\rSet-Cookie: x", "a\0b", "a\x0bb", "a\x85b", "a\u2028b"])
    async def test_A14_control_characters_in_headers(
        self, shared: Api, header: str, value: str
    ) -> None:
        body = json.dumps(HI)
        path = "/v1/runs/run_x/events" if header == "Last-Event-ID" else CHAT
        method = "GET" if header == "Last-Event-ID" else "POST"
        lines = with_key(f"{header}: {value}", f"Content-Length: {len(body)}", "Connection: close")
        got = await shared.raw(request_head(path, *lines, method=method) + body.encode())
        assert status_of(got) in (400, 404)
        assert b"Set-Cookie" not in got

    @pytest.mark.parametrize("text", ["a\r\nSet-Cookie: x=1", "a\0b", "\x1b[31m"])
    async def test_A14_control_characters_in_bodies(self, shared: Api, text: str) -> None:
        """Text from JSON is answered in JSON, never in a header."""
        chat = await shared.chat(model=text)
        assert chat.json["model"] == text and "Set-Cookie" not in chat.headers
        made = await shared.post("/api/sessions", {"title": text})
        assert made.status in (201, 400) and "Set-Cookie" not in made.headers
        named = await shared.ask(conversation=text)
        assert named.status == 400
        run = await shared.post("/v1/runs", {"input": "x", "session_id": text})
        assert run.status == 400

    @pytest.mark.parametrize(
        "identity",
        [
            "../../etc/passwd",
            "..%2f..%2fetc%2fpasswd",
            "%2e%2e%2f",
            "%2e%2e",
            "..",
            "a/b",
            "a%2fb",
            "x" * 10_000,
            "ünïcödé",
            "%00",
            "a%00b",
            "%0d%0aSet-Cookie:x",
            "' OR 1=1 --",
            "*",
            "%ff",
        ],
        ids=lambda i: i[:20],
    )
    @pytest.mark.parametrize(
        "path", ["/v1/responses/{}", "/v1/runs/{}", "/v1/runs/{}/events", "/api/sessions/{}"]
    )
    async def test_A15_ids_that_look_like_paths(
        self, shared: Api, path: str, identity: str
    ) -> None:
        target = path.format(identity.replace(" ", "%20"))
        got = await shared.raw(request_head(target, *with_key("Connection: close"), method="GET"))
        assert status_of(got) in (400, 404)
        assert b"Set-Cookie:x\r\n" not in got and b"root:" not in got

    async def test_A15_session_ids_name_no_files(self, shared: Api) -> None:
        evil = "../../../../../../tmp/hermes-escaped"
        shared.provider.then = say("Yes.")
        answer = await shared.chat(headers={"X-Hermes-Session-Id": evil})
        assert answer.status == 200 and answer.headers["X-Hermes-Session-Id"] == evil
        assert not list(Path("/tmp").glob("hermes-escaped*"))

    @pytest.mark.parametrize(
        "query",
        [
            '" OR 1=1',
            "*",
            "NEAR(",
            '"',
            "'; DROP TABLE messages; --",
            "a AND",
            "title:x",
            "^",
            "-",
            "\\",
            "{a b}:c",
            "a\0b",
            "x" * 5000,
            "((((((",
        ],
        ids=lambda q: q[:12],
    )
    async def test_A16_search_queries_are_no_syntax(self, shared: Api, query: str) -> None:
        from urllib.parse import quote

        answer = await shared.get(f"/api/sessions/search?q={quote(query)}")
        assert answer.status in (200, 400)
        assert (await shared.get("/api/sessions/search?q=hi")).status == 200


EVIL = "../../escaped"
"""Leads from the folder of large outputs to the folder of the test."""


async def test_A15_large_output_of_a_session_with_an_evil_name(tmp_path: Path) -> None:
    """Large output is saved to a file; the session id must not choose its folder."""
    work = call(("c1", "terminal", {"command": "seq 1 60000"}))
    async with api(tmp_path, [work, say("Done.")]) as a:
        await a.chat(headers={"X-Hermes-Session-Id": EVIL})
        assert not list(tmp_path.glob("escaped*"))
        assert len(list((a.home.path / "outputs").glob("*escaped*"))) == 1


def test_A15_a_long_result_of_a_session_with_an_evil_name(tmp_path: Path) -> None:
    from hermes.agent.tool_output import limit_output, output_path
    from tests.kit.tools import tool_context

    spill = tmp_path / "home" / "outputs"
    assert str(spill) in limit_output("x" * 1000, 100, output_path(spill, EVIL, "../../c1"))
    assert len(list(spill.iterdir())) == 1 and not list(tmp_path.glob("escaped*"))
    for identity in ("", "a" * 5000, "\0", "a/b", "..", "ü"):
        prefix = tool_context(tmp_path, tmp_path, session_id=identity).output_prefix
        assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", prefix)
