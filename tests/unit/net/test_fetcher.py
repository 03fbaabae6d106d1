"""Fetching through the fetcher, with real sockets on loopback standing for the internet."""

from __future__ import annotations

import asyncio
import gzip
import shutil
import socket
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from hermes.net.errors import EgressError
from hermes.net.fetcher import WebFetcher
from hermes.net.ip_ranges import IPAddress, is_public

OUTSIDE, SECRET = "127.0.0.1", "127.0.0.66"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Net:
    """Two servers: one on the "internet", one that nobody may reach; and the resolver."""

    def __init__(self) -> None:
        self.port = self.secret_port = 0
        self.leaked: list[str] = []
        self.seen: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.asked: list[str] = []
        self.names: dict[str, list[list[str]]] = {}
        self.routes: dict[str, Handler] = {}

    async def resolve(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self.names.get(host, [[OUTSIDE]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def fetcher(self, **changes: Any) -> WebFetcher:
        def is_allowed(address: IPAddress) -> bool:
            return str(address) == OUTSIDE or is_public(address)

        given = {"resolve": self.resolve, "public": is_allowed, "proxy": lambda url: None}
        return WebFetcher(**{**given, **changes})

    def url(self, path: str = "/", host: str = "site.example") -> str:
        return f"http://{host}:{self.port}{path}"

    def at(self, path: str, handler: Handler) -> None:
        self.routes[path] = handler

    def text(self, path: str, body: bytes, **headers: str) -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(
                body=body, headers={k.replace("_", "-"): v for k, v in headers.items()}
            )

        self.at(path, answer)

    def moved(self, path: str, to: str, status: int = 302) -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": to})

        self.at(path, answer)

    async def _public(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        handler = self.routes.get(request.path)
        return await handler(request) if handler else web.Response(text="hello")

    async def _secret(self, request: web.Request) -> web.Response:
        self.leaked.append(str(request.url))
        return web.Response(text="SECRET")


@asynccontextmanager
async def listening(
    handler: Any, host: str, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=tls)
    await site.start()
    try:
        yield site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    finally:
        await runner.cleanup()


@pytest.fixture
async def net() -> AsyncIterator[Net]:
    made = Net()
    async with (
        listening(made._public, OUTSIDE) as made.port,
        listening(made._secret, SECRET) as made.secret_port,
    ):
        yield made


async def get(fetcher: WebFetcher, url: str, **options: Any) -> bytes:
    async with fetcher.fetch(url, **options) as page:
        return page.body


async def test_a_page_with_all_its_parts(net: Net) -> None:
    net.text("/a", "grüße".encode(), Content_Type="text/plain; charset=UTF-8", X_Own="1")
    async with net.fetcher().fetch(net.url("/a?b=ü#c")) as page:
        assert (page.status, page.body.decode()) == (200, "grüße")
        assert (page.content_type, page.charset.lower()) == ("text/plain", "utf-8")
        assert page.url == net.url("/a?b=%C3%BC")
        assert page.headers["x-own"] == "1"
    assert net.seen[0].headers["Host"] == f"site.example:{net.port}"
    assert net.seen[0].path_qs == "/a?b=%C3%BC"
    assert "Cookie" not in net.seen[0].headers


async def test_errors_of_the_server_are_pages_too(net: Net) -> None:
    async def gone(request: web.Request) -> web.Response:
        return web.Response(status=410, text="gone", content_type="image/png")

    net.at("/x", gone)
    async with net.fetcher().fetch(net.url("/x"), accept=["text/"]) as page:
        assert (page.status, page.body) == (410, b"gone")


# -- rebinding and redirects -----------------------------------------------------------------------


async def test_a_name_is_resolved_once_and_the_connection_pinned(net: Net) -> None:
    net.names["flip.example"] = [[OUTSIDE], [SECRET]]
    url = f"http://flip.example:{net.port}/"
    assert await get(net.fetcher(), url) == b"hello"
    assert net.asked == ["flip.example"]
    with pytest.raises(EgressError):
        await get(net.fetcher(), f"http://flip.example:{net.secret_port}/")
    assert net.leaked == []


async def test_a_name_that_flips_between_hops(net: Net) -> None:
    net.names["flip.example"] = [[OUTSIDE], [SECRET]]
    net.moved("/a", f"http://flip.example:{net.secret_port}/b")
    with pytest.raises(EgressError):
        await get(net.fetcher(), net.url("/a", "flip.example"))
    assert net.asked == ["flip.example", "flip.example"]
    assert net.leaked == []


TARGETS = [
    "http://127.0.0.66:{s}/",
    "http://inner.example:{s}/",
    "//127.0.0.66:{s}/",
    "//inner.example:{s}/x",
    "http://2130706498:{s}/",
    "http://0x7f000042:{s}/",
    "http://127.66:{s}/",
    "http://0177.0.0.0102:{s}/",
    "http://[::ffff:127.0.0.66]:{s}/",
    "http://[::ffff:7f00:42]:{s}/",
    "http://[::127.0.0.66]:{s}/",
    "http://[64:ff9b::7f00:42]:{s}/",
    "http://[2002:7f00:42::]:{s}/",
    "http://localhost:{s}/",
    "http://user@127.0.0.66:{s}/",
    "http://site.example@127.0.0.66:{s}/",
    "http://127.0.0.66\\@site.example:{s}/",
    "\\\\127.0.0.66:{s}/",
    "/\\127.0.0.66:{s}/",
    "http:\\\\127.0.0.66:{s}/",
    "http://127.0.0.66:{s}\t/",
    "ht\ttp://127.0.0.66:{s}/",
    "http://127。0。0。66:{s}/",
    "http://①②⑦.0.0.66:{s}/",
    "http://mixed.example:{s}/",
    "file:///etc/passwd",
    "ftp://127.0.0.66:{s}/",
    "gopher://127.0.0.66:{s}/_x",
    "javascript:alert(1)",
    "http://169.254.169.254/latest/meta-data/",
    "http://metadata.google.internal/",
]


@pytest.mark.parametrize("target", TARGETS)
async def test_no_redirect_leads_inside(net: Net, target: str) -> None:
    net.names["inner.example"] = [[SECRET]]
    net.names["mixed.example"] = [[OUTSIDE, SECRET]]
    for status in (301, 302, 303, 307, 308):
        net.moved("/go", target.format(s=net.secret_port), status)
        with pytest.raises(EgressError):
            await get(net.fetcher(), net.url("/go"))
    assert net.leaked == [] and len(net.seen) == 5


async def test_redirects_are_followed_up_to_a_limit(net: Net) -> None:
    net.moved("/1", "2")
    net.moved("/2", f"//other.example:{net.port}/3")
    net.moved("/3", "/a b")
    net.text("/a b", b"there", Content_Type="text/plain")
    async with net.fetcher().fetch(net.url("/1")) as page:
        assert page.body == b"there"
        assert page.url == net.url("/a%20b", "other.example")
    net.moved("/loop", "/loop")
    with pytest.raises(EgressError, match="too often"):
        await get(net.fetcher(), net.url("/loop"))
    assert sum(r.path == "/loop" for r in net.seen) == 4


async def test_credentials_stay_with_their_origin(net: Net) -> None:
    sent = {"Authorization": "Bearer k", "X-Key": "k", "Cookie": "s=1", "Accept": "text/plain"}
    net.moved("/same", "/b")
    net.moved("/other", f"http://other.example:{net.port}/b")
    await get(net.fetcher(), net.url("/same"), headers=sent)
    assert net.seen[-1].headers["Authorization"] == "Bearer k"
    await get(net.fetcher(), net.url("/other"), headers=sent)
    last = net.seen[-1].headers
    assert not {"Authorization", "X-Key", "Cookie"} & set(last)
    assert last["Accept"] == "text/plain"


async def test_cookies_of_a_redirect_are_not_sent_back(net: Net) -> None:
    async def baker(request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "/b", "Set-Cookie": "a=1; Path=/"})

    net.at("/a", baker)
    await get(net.fetcher(), net.url("/a"))
    assert "Cookie" not in net.seen[-1].headers


async def test_data_is_not_passed_on_to_another_origin(net: Net) -> None:
    for status in (307, 308):
        net.moved("/p", f"http://other.example:{net.port}/b", status)
        with pytest.raises(EgressError, match="not passed on"):
            await get(net.fetcher(), net.url("/p"), method="POST", body=b"secret")
    net.moved("/p", f"http://other.example:{net.port}/b", 302)
    await get(
        net.fetcher(), net.url("/p"), method="POST", body=b"secret", headers={"Content-Type": "x/y"}
    )
    assert (net.seen[-1].method, net.bodies[-1]) == ("GET", b"")
    assert net.seen[-1].headers.get("Content-Type") != "x/y"
    net.moved("/p", "/b", 307)
    await get(net.fetcher(), net.url("/p"), method="POST", body=b"secret")
    assert (net.seen[-1].method, net.bodies[-1]) == ("POST", b"secret")


# -- caps ------------------------------------------------------------------------------------------


async def test_size_is_capped_while_streaming(net: Net) -> None:
    written = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)
            written += 65536

    net.at("/endless", endless)
    net.text("/exact", b"x" * 1000)
    with pytest.raises(EgressError, match="larger than 100000 bytes"):
        await get(net.fetcher(), net.url("/endless"), max_bytes=100_000)
    assert written < 50_000_000
    assert len(await get(net.fetcher(), net.url("/exact"), max_bytes=1000)) == 1000
    with pytest.raises(EgressError, match="larger"):
        await get(net.fetcher(), net.url("/exact"), max_bytes=999)


@pytest.mark.parametrize("name", ["gzip", "deflate", "raw", "members"])
async def test_bombs_do_not_unfold(net: Net, name: str) -> None:
    zeros = b"\0" * (64 * 1024 * 1024)
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = {
        "gzip": lambda: gzip.compress(zeros),
        "deflate": lambda: zlib.compress(zeros),
        "raw": lambda: raw.compress(zeros) + raw.flush(),
        "members": lambda: gzip.compress(zeros[:1000_000]) * 70,
    }[name]()
    encoding = "gzip" if name in ("gzip", "members") else "deflate"
    net.text("/bomb", packed, Content_Encoding=encoding)
    with pytest.raises(EgressError, match="larger"):
        await get(net.fetcher(), net.url("/bomb"), max_bytes=1_000_000)


@pytest.mark.parametrize("size", [0, 1, 262_144, 262_145, 3_000_000])
async def test_compressed_pages_arrive_whole(net: Net, size: int) -> None:
    body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
    cut = size // 2
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    net.text("/g", gzip.compress(body), Content_Encoding="gzip")
    net.text(
        "/m",
        gzip.compress(body[:cut]) + gzip.compress(body[cut:]) + b"\0\0",
        Content_Encoding="gzip",
    )
    net.text("/d", zlib.compress(body), Content_Encoding="deflate")
    net.text("/r", raw.compress(body) + raw.flush(), Content_Encoding="deflate")
    for path in "/g", "/m", "/d", "/r":
        assert await get(net.fetcher(), net.url(path), max_bytes=4_000_000) == body


async def test_encodings_that_were_not_offered(net: Net) -> None:
    net.text("/br", b"\x0b\x02\x80hello\x03", Content_Encoding="br")
    net.text("/bad", b"\x1f\x8bnonsense and more of it", Content_Encoding="gzip")
    for path in "/br", "/bad":
        with pytest.raises(EgressError, match="compress"):
            await get(net.fetcher(), net.url(path))
    assert "br" not in net.seen[0].headers["Accept-Encoding"]


async def test_a_body_that_breaks_off_is_no_page(net: Net) -> None:
    net.text("/half", gzip.compress(b"hello " * 1000)[:-20], Content_Encoding="gzip")
    with pytest.raises(EgressError, match="ended too early"):
        await get(net.fetcher(), net.url("/half"))


async def test_a_slow_server_is_left(net: Net) -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    net.at("/slow", never)
    with pytest.raises(EgressError, match="took longer than"):
        await get(net.fetcher(), net.url("/slow"), timeout=0.1)


async def test_only_accepted_types_are_read(net: Net) -> None:
    net.text("/png", b"\x89PNG", Content_Type="image/png")
    net.text("/json", b"{}", Content_Type="application/ld+json; x=y")
    with pytest.raises(EgressError, match="image/png"):
        await get(net.fetcher(), net.url("/png"), accept=["text/", "application/pdf"])
    assert await get(net.fetcher(), net.url("/json"), accept=["+json"]) == b"{}"
    assert await get(net.fetcher(), net.url("/png")) == b"\x89PNG"


async def test_what_is_no_http_is_one_sentence() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        writer.close()

    async def resolve(host: str, port: int) -> list[str]:
        return [OUTSIDE]

    fetcher = WebFetcher(resolve=resolve, public=lambda a: True, proxy=lambda u: None)
    async with await asyncio.start_server(babble, OUTSIDE, 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(EgressError, match="no valid response"):
            await get(fetcher, f"http://x.example:{port}/")
    with socket.socket() as free:
        free.bind((OUTSIDE, 0))
        with pytest.raises(EgressError, match=r"No connection to x\.example: connection refused"):
            await get(fetcher, f"http://x.example:{free.getsockname()[1]}/")


async def test_the_second_address_is_tried(net: Net) -> None:
    net.names["two.example"] = [["127.0.0.99", OUTSIDE]]
    fetcher = net.fetcher(public=lambda a: True)
    assert await get(fetcher, net.url("/", "two.example")) == b"hello"


# -- TLS -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=site.example -addext subjectAltName=DNS:site.example "
        "-keyout key.pem -out cert.pem".split(),
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


async def test_tls_is_for_the_name(net: Net, certificate: Path) -> None:
    names: list[str | None] = []
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    serving.sni_callback = lambda sock, name, context: names.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    async with listening(net._public, OUTSIDE, serving) as port:
        url = f"https://site.example:{port}/"
        assert await get(net.fetcher(tls=trusting), url) == b"hello"
        assert names == ["site.example"]
        with pytest.raises(EgressError, match="cannot be trusted"):
            await get(net.fetcher(), url)
        with pytest.raises(EgressError, match="cannot be trusted"):
            await get(net.fetcher(tls=trusting), f"https://other.example:{port}/")
        net.moved("/down", net.url("/plain"))
        assert await get(net.fetcher(tls=trusting), url + "down") == b"hello"
        with pytest.raises(EgressError, match="plain http"):
            await get(net.fetcher(tls=trusting), url + "down", headers={"X-Key": "k"})


# -- the environment's proxy -----------------------------------------------------------------------


@asynccontextmanager
async def forwarding(asked: list[str]) -> AsyncIterator[int]:
    """A CONNECT proxy that notes what it is asked for."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        asked.append(head)
        host, _, port = head.split(" ")[1].rpartition(":")
        there = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n")

        async def pipe(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
            while data := await r.read(65536):
                w.write(data)
            w.close()

        await asyncio.gather(pipe(reader, there[1]), pipe(there[0], writer))

    async with await asyncio.start_server(one, OUTSIDE, 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_a_proxy_is_asked_for_the_checked_address(net: Net) -> None:
    asked: list[str] = []
    async with forwarding(asked) as port:
        fetcher = net.fetcher(proxy=lambda url: f"http://me:p%40ss@{OUTSIDE}:{port}")
        assert await get(fetcher, net.url("/")) == b"hello"
        assert asked[0].startswith(f"CONNECT {OUTSIDE}:{net.port} HTTP/1.1\r\n")
        assert "Proxy-Authorization: Basic bWU6cEBzcw==" in asked[0]
        assert net.seen[-1].headers["Host"] == f"site.example:{net.port}"
        assert "Proxy-Authorization" not in net.seen[-1].headers
        net.names["inner.example"] = [[SECRET]]
        with pytest.raises(EgressError):
            await get(fetcher, f"http://inner.example:{net.secret_port}/")
        assert len(asked) == 1
    assert net.leaked == []


async def test_a_socks_proxy_is_asked_for_the_checked_address(net: Net) -> None:
    asked: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(3) == b"\x05\x01\x00"
        writer.write(b"\x05\x00")
        asked.append(await reader.readexactly(10))
        there = await asyncio.open_connection(OUTSIDE, int.from_bytes(asked[-1][8:], "big"))
        writer.write(b"\x05\x00\x00\x01\0\0\0\0\0\0")
        there[1].write(await reader.readuntil(b"\r\n\r\n"))
        writer.write(await there[0].read())
        there[1].close()
        writer.close()

    async with await asyncio.start_server(one, OUTSIDE, 0) as server:
        port = server.sockets[0].getsockname()[1]
        fetcher = net.fetcher(proxy=lambda url: f"socks5h://{OUTSIDE}:{port}")
        assert await get(fetcher, net.url("/"), headers={"Connection": "close"}) == b"hello"
    assert asked[0][:8] == b"\x05\x01\x00\x01\x7f\x00\x00\x01"


async def test_a_proxy_of_an_unknown_kind_is_not_ignored(net: Net) -> None:
    with pytest.raises(EgressError, match="unsupported kind"):
        await get(net.fetcher(proxy=lambda url: "https://proxy.example:1"), net.url("/"))
    assert net.seen == []
