"""Threats A1-A7 and A30-A31: keys, hosts, origins, request smuggling.

Where the HTTP contract differs, it holds: a key of 16 characters is enough (A4: 32), and a
websocket without a key is a 401 (A31: 403).
"""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from hermes.server.routes import list_routes
from tests.kit.api import API_KEY, Api
from tests.server.raw_http import CHAT, HI, request_head, status_of, with_key


class TestAdmission:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize("route", list_routes(), ids=lambda r: f"{r.method} {r.path}")
    @pytest.mark.parametrize("sent", [None, "", "Bearer", "Bearer ", "Basic Zm86YmFy", "x y z"])
    async def test_A1_without_a_valid_key_every_route_refuses(
        self, shared: Api, route, sent: str | None
    ) -> None:
        path = route.path.replace("{id}", "x").replace("{run_id}", "x")
        headers = {} if sent is None else {"Authorization": sent}
        before = len(shared.provider.requests)
        answer = await shared.call(route.method, path, headers=headers, key="")
        assert answer.status == (200 if route.public else 401)
        assert route.public or answer.error["type"] == "authentication_error"
        assert len(shared.provider.requests) == before

    @pytest.mark.parametrize(
        "wrong",
        [
            "x" * len(API_KEY),
            API_KEY[:-1] + "x",
            API_KEY[:-1],
            API_KEY + "x",
            API_KEY.upper(),
            "ключ",
            "k" * 16000,
        ],
        ids=lambda k: f"{k[:8]}{len(k)}",
    )
    async def test_A2_wrong_keys_are_refused(self, shared: Api, wrong: str) -> None:
        assert (await shared.get("/v1/models", key=wrong)).status == 401

    async def test_A2_a_key_of_a_megabyte(self, shared: Api) -> None:
        lines = ("Host: localhost", "Authorization: Bearer " + "k" * 1_000_000)
        got = await shared.raw(request_head("/v1/models", *lines, method="GET"))
        assert not got or status_of(got) in (400, 401, 431)

    async def test_A3_a_key_elsewhere_in_the_request_does_not_count(self, shared: Api) -> None:
        for lines, path in (
            ((), f"/v1/models?api_key={API_KEY}&key={API_KEY}&token={API_KEY}"),
            ((f"Cookie: key={API_KEY}; Authorization={API_KEY}",), "/v1/models"),
            ((f"Api-Key: {API_KEY}",), "/v1/models"),
            ((f"Proxy-Authorization: Bearer {API_KEY}",), "/v1/models"),
        ):
            request = request_head(
                path, "Host: localhost", "Connection: close", *lines, method="GET"
            )
            assert status_of(await shared.raw(request)) == 401

    async def test_A3_x_api_key_counts_on_every_route(self, shared: Api) -> None:
        body = {**HI, "max_tokens": 9}
        for key, expected in ((API_KEY, 200), ("wrong", 401)):
            headers = {"X-Api-Key": key}
            answer = await shared.post("/v1/messages", body, headers=headers, key="")
            assert answer.status == expected
            assert (await shared.get("/v1/models", headers=headers, key="")).status == expected

    @pytest.mark.parametrize("second", [API_KEY, "wrong"], ids=["the same", "another"])
    async def test_A3_two_authorization_headers_are_refused(self, shared: Api, second: str) -> None:
        lines = with_key(f"Authorization: Bearer {second}", "Connection: close")
        assert status_of(await shared.raw(request_head("/v1/models", *lines, method="GET"))) == 400

    @pytest.mark.parametrize(
        ("target", "hosts", "expected"),
        [
            ("/health", ["evil.example"], {421}),
            ("/health", [], {400, 421}),
            ("/health", ["localhost", "evil.example"], {400, 421}),
            ("/health", ["localhost", "localhost"], {400, 421}),
            ("http://evil.example/health", ["evil.example"], {421}),
            ("http://localhost/health", ["localhost"], {400}),
            ("http://evil.example/health", ["localhost"], {400, 421}),
            ("//evil.example/health", ["localhost"], {404}),
        ],
    )
    async def test_A5_unknown_hosts_are_refused(
        self, shared: Api, target: str, hosts: list[str], expected: set[int]
    ) -> None:
        lines = [*(f"Host: {host}" for host in hosts), "Connection: close"]
        assert status_of(await shared.raw(request_head(target, *lines, method="GET"))) in expected

    async def test_A5_the_host_is_checked_before_the_key(self, shared: Api) -> None:
        lines = ("Host: evil.example", f"Authorization: Bearer {API_KEY}", "Connection: close")
        assert status_of(await shared.raw(request_head("/v1/models", *lines, method="GET"))) == 421

    @pytest.mark.parametrize("origin", ["https://evil", "null", "http://localhost", "file://"])
    async def test_A6_pages_of_other_origins_are_refused(self, keyless: Api, origin: str) -> None:
        """Also without a key: a browser on this machine must not be a way in."""
        headers = {"Origin": origin, "Content-Type": "text/plain"}
        body = json.dumps(HI).encode()
        before = len(keyless.provider.requests)
        for method in ("POST", "OPTIONS"):
            answer = await keyless.call(method, CHAT, data=body, headers=headers)
            assert answer.status == 403
            assert "Access-Control-Allow-Origin" not in answer.headers
        assert len(keyless.provider.requests) == before

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded"])
    async def test_A7_forms_are_refused(self, keyless: Api, kind: str) -> None:
        headers = {"Content-Type": kind}
        for path in (CHAT, "/v1/responses", "/v1/messages", "/v1/runs"):
            answer = await keyless.post(path, data=json.dumps(HI).encode(), headers=headers)
            assert answer.status == 415


# -- A30, A31: request smuggling and upgrades ------------------------------------------------

BODY = json.dumps(HI)
SMUGGLED = (
    f"GET /v1/smuggled HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {API_KEY}\r\n\r\n"
)
TWO_IN_ONE = {
    "length and chunks": request_head(
        CHAT, *with_key("Content-Length: 4", "Transfer-Encoding: chunked")
    )
    + b"0\r\n\r\n"
    + SMUGGLED.encode(),
    "chunks and length": request_head(
        CHAT, *with_key("Transfer-Encoding: chunked", "Content-Length: 4")
    )
    + b"0\r\n\r\n"
    + SMUGGLED.encode(),
    "two lengths": request_head(
        CHAT, *with_key("Content-Length: 0", f"Content-Length: {len(SMUGGLED)}")
    )
    + SMUGGLED.encode(),
    "a list of lengths": request_head(CHAT, *with_key(f"Content-Length: 0, {len(SMUGGLED)}"))
    + SMUGGLED.encode(),
    "a signed length": request_head(CHAT, *with_key("Content-Length: +2"))
    + b"{}"
    + SMUGGLED.encode(),
    "a length in hex": request_head(CHAT, *with_key("Content-Length: 0x2"))
    + b"{}"
    + SMUGGLED.encode(),
    "a negative length": request_head(CHAT, *with_key("Content-Length: -1")) + SMUGGLED.encode(),
    "chunked, identity": request_head(CHAT, *with_key("Transfer-Encoding: chunked, identity"))
    + b"0\r\n\r\n"
    + SMUGGLED.encode(),
    "identity": request_head(CHAT, *with_key("Transfer-Encoding: identity", "Content-Length: 2"))
    + b"{}",
    "xchunked": request_head(CHAT, *with_key("Transfer-Encoding: xchunked"))
    + b"0\r\n\r\n"
    + SMUGGLED.encode(),
    "chunked twice": request_head(
        CHAT, *with_key("Transfer-Encoding: chunked", "Transfer-Encoding: identity")
    )
    + b"0\r\n\r\n"
    + SMUGGLED.encode(),
    "a space before the colon": request_head(CHAT, *with_key("Content-Length : 5"))
    + SMUGGLED.encode(),
    "a folded header": request_head(CHAT, *with_key("X-A: 1\r\n Content-Length: 5")) + b"{}",
    "bare line feeds": request_head(CHAT, *with_key()).replace(b"\r\n", b"\n"),
    "a bad chunk": request_head(CHAT, *with_key("Transfer-Encoding: chunked"))
    + b"zz\r\nhello\r\n0\r\n\r\n",
    "a chunk that is longer": request_head(CHAT, *with_key("Transfer-Encoding: chunked"))
    + b"2\r\n{}{}\r\n0\r\n\r\n",
    "a bare CR in a header": request_head(CHAT, *with_key("X-A: a\rContent-Length: 3")) + b"{}",
    "TRACE": request_head("/health", "Host: localhost", method="TRACE"),
    "CONNECT": request_head("localhost:443", "Host: localhost", method="CONNECT"),
    "CONNECT with a path": request_head("/health", "Host: localhost", method="CONNECT"),
    "HTTP/1.0": request_head("/health", "Host: localhost", method="GET", version="1.0"),
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/2": request_head("/health", "Host: localhost", method="GET", version="2.0"),
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + b"x" * 60,
}


class TestSmuggling:
    pytestmark = pytest.mark.asyncio(loop_scope="module")

    @pytest.mark.parametrize("case", TWO_IN_ONE, ids=str)
    async def test_A30_one_request_is_never_taken_for_two(self, shared: Api, case: str) -> None:
        """One answer at most, a 4xx, and the connection is closed."""
        before = len(shared.provider.requests)
        got = await shared.raw(TWO_IN_ONE[case])
        assert not got or 400 <= status_of(got) < 500
        assert len(re.findall(rb"HTTP/[0-9.]+ [0-9]{3} ", got)) <= 1, got
        assert b"Unknown path" not in got  # what /v1/smuggled would get
        assert len(shared.provider.requests) == before

    @pytest.mark.parametrize(
        ("lines", "expected"),
        [
            (("Origin: https://evil.example",), 403),
            ((), 401),
            (("Origin: https://ui.example",), 401),
        ],
    )
    async def test_A31_websockets_are_refused(
        self, shared: Api, lines: tuple, expected: int
    ) -> None:
        upgrade = (
            "Host: localhost",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
        got = await shared.raw(
            request_head("/v1/models", *upgrade, *lines, method="GET"), until=b"}}"
        )
        assert status_of(got) == expected and b" 101 " not in got

    async def test_A31_with_a_key_nothing_is_upgraded(self, shared: Api) -> None:
        lines = with_key("Connection: Upgrade", "Upgrade: websocket")
        got = await shared.raw(request_head("/health", *lines, method="GET"), until=b"}")
        assert status_of(got) == 200

    async def test_pipelined_requests_are_answered_in_order(self, shared: Api) -> None:
        one = request_head("/health", "Host: localhost", method="GET")
        two = request_head("/v1/models", *with_key("Connection: close"), method="GET")
        got = await shared.raw(one + two)
        assert got.index(b'"platform"') < got.index(b'"object"') and got.count(b" 200 OK") == 2

    async def test_expect_100_continue(self, shared: Api) -> None:
        body = json.dumps(HI).encode()
        request = request_head(
            CHAT,
            *with_key(f"Content-Length: {len(body)}", "Expect: 100-continue", "Connection: close"),
        )
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(shared.url.rpartition(":")[2])
        )
        writer.write(request)
        async with asyncio.timeout(90):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert status_of(await reader.read()) == 200
        writer.close()
