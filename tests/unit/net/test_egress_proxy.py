"""The sandbox's proxy and the relay in front of it, with real sockets and real programs."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import stat
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from hermes.exec.sandbox.network import wrap_in_relay
from hermes.net.egress_proxy import DomainList, ProxyLimits, serve_loopback_proxy, serve_unix_proxy
from hermes.net.errors import EgressError
from hermes.net.ip_ranges import is_public
from hermes.net.ssrf import SsrfGuard
from hermes.net.tls_hello import read_server_name

NAMES = {"inner.example": "127.0.0.66", "meta.example": "169.254.169.254"}


async def resolve(host: str, port: int) -> list[str]:
    return [NAMES.get(host, "127.0.0.1")]


GUARD = SsrfGuard(
    resolve=resolve,
    public=lambda address: str(address) == "127.0.0.1" or is_public(address),
    proxy=lambda url: None,
)


@asynccontextmanager
async def origin(seen: list[bytes]) -> AsyncIterator[int]:
    """Notes a request with its body, answers and closes."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = 0
        for line in head.decode().lower().split("\r\n"):
            if line.startswith("content-length:"):
                length = int(line.split(":")[1])
        seen.append(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
        await shut(writer)

    async with await asyncio.start_server(one, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def shut(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def talk(path: Path, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        await shut(writer)


async def test_plain_requests_are_forwarded_in_origin_form(tmp_path: Path) -> None:
    seen: list[bytes] = []
    async with (
        origin(seen) as port,
        serve_unix_proxy(tmp_path / "p", [f"site.example:{port}"], GUARD) as path,
    ):
        answer = await talk(
            path,
            f"POST http://site.example:{port}/a?b HTTP/1.1\r\nHost: evil.example\r\n"
            "Proxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nX-Own: 1\r\n"
            "Content-Length: 4\r\n\r\nbodyGET http://evil.example/ HTTP/1.1\r\n\r\n".encode(),
        )
    assert answer.endswith(b"\r\n\r\nhello")
    text = seen[0].decode()
    assert text.startswith(f"POST /a?b HTTP/1.1\r\nHost: site.example:{port}\r\n")
    assert text.endswith("\r\n\r\nbody")
    assert "X-Own: 1" in text and "Connection: close" in text
    assert "roxy" not in text and "evil" not in text


REFUSED = [
    ("GET http://evil.example:{p}/ HTTP/1.1\r\n\r\n", 403, "not on this sandbox's list"),
    ("GET http://site.example.evil.com:{p}/ HTTP/1.1\r\n\r\n", 403, "list"),
    ("GET http://site.example/ HTTP/1.1\r\n\r\n", 403, "site.example:80"),
    ("GET http://127.0.0.1:{p}/ HTTP/1.1\r\n\r\n", 403, "list"),
    ("GET http://inner.example:{p}/ HTTP/1.1\r\n\r\n", 403, "public internet"),
    ("GET http://meta.example:{p}/ HTTP/1.1\r\n\r\n", 403, "public internet"),
    ("CONNECT inner.example:{p} HTTP/1.1\r\n\r\n", 403, "public internet"),
    ("CONNECT evil.example:443 HTTP/1.1\r\n\r\n", 403, "list"),
    ("CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n", 403, "list"),
    ("CONNECT user@site.example:{p} HTTP/1.1\r\n\r\n", 403, "user name"),
    ("CONNECT site.example HTTP/1.1\r\n\r\n", 400, "host:port"),
    ("CONNECT site.example:{p}/x HTTP/1.1\r\n\r\n", 400, "host:port"),
    ("GET /etc HTTP/1.1\r\nHost: site.example\r\n\r\n", 403, "complete URL"),
    ("GET ftp://site.example/ HTTP/1.1\r\n\r\n", 403, "Only http"),
    ("GET https://site.example:{p}/ HTTP/1.1\r\n\r\n", 400, "CONNECT"),
    ("GET http://site.example:{p}/\r\n\r\n", 400, "understood"),
    ("GET http://site.example:{p}/ HTTP/2\r\n\r\n", 400, "understood"),
    ("GET http://site.example:{p}/ HTTP/1.1\r\nbad line\r\n\r\n", 400, "header"),
    ("GET http://site.example:{p}/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n", 400, "understood"),
    ("POST http://site.example:{p}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, "length"),
    (
        "POST http://site.example:{p}/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        400,
        "length",
    ),
]


@pytest.mark.parametrize(("request_", "status", "says"), REFUSED)
async def test_everything_else_is_refused(
    tmp_path: Path, request_: str, status: int, says: str
) -> None:
    seen: list[bytes] = []
    async with origin(seen) as port:
        allowed = [f"{name}:{port}" for name in ("site.example", "inner.example", "meta.example")]
        async with serve_unix_proxy(tmp_path / "p", allowed, GUARD) as path:
            answer = (await talk(path, request_.format(p=port).encode())).decode()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert says in answer.partition("\r\n\r\n")[2]
    assert seen == []


async def test_a_head_that_never_ends(tmp_path: Path) -> None:
    async with serve_unix_proxy(tmp_path / "p", ["*"], GUARD, ProxyLimits(head=0.1)) as path:
        assert (await talk(path, b"GET http://a.example/" + b"a" * 60_000)).startswith(
            b"HTTP/1.1 400"
        )
        assert await talk(path, b"GET http://a.ex") == b""


async def test_bytes_and_silence_are_limited(tmp_path: Path) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
        except OSError:
            await shut(writer)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        await shut(writer)

    for server, limits, most in (
        (endless, ProxyLimits(down=100_000), 100_000 + 200),
        (silent, ProxyLimits(idle=0.1), 200),
    ):
        async with await asyncio.start_server(server, "127.0.0.1", 0) as running:
            port = running.sockets[0].getsockname()[1]
            async with serve_unix_proxy(
                tmp_path / "p", [f"a.example:{port}"], GUARD, limits
            ) as path:
                got = await talk(path, f"CONNECT a.example:{port} HTTP/1.1\r\n\r\n".encode())
        assert got.startswith(b"HTTP/1.1 200 ") and len(got) <= most


async def test_the_socket_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir(mode=0o777)
    async with serve_unix_proxy(folder, [], GUARD) as path:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(EgressError):
        async with serve_unix_proxy(tmp_path / "link", [], GUARD):
            pass


def test_domains() -> None:
    domains = DomainList(["example.org", "*.Example.com", "git.corp:8443", "[2606:4700::1111]:443"])
    for yes in (
        ("example.org", 443),
        ("example.org", 80),
        ("a.example.com", 443),
        ("a.b.example.com", 80),
        ("git.corp", 8443),
        ("2606:4700::1111", 443),
    ):
        assert yes in domains
    for no in (
        ("xexample.org", 443),
        ("a.example.org", 443),
        ("example.org.evil.com", 443),
        ("example.org", 22),
        ("example.com", 443),
        ("notexample.com", 443),
        ("git.corp", 443),
        ("com", 443),
        ("", 443),
    ):
        assert no not in domains
    assert ("anything.example", 443) in DomainList(["*"])
    assert ("anything.example", 8080) not in DomainList(["*"])
    with pytest.raises(EgressError):
        DomainList(["http://example.org/"])


# -- tunnels ---------------------------------------------------------------------------------------


def hello(name: str | None) -> bytes:
    """A real ClientHello."""
    context = ssl.create_default_context()
    context.check_hostname = name is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    shaking = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        shaking.do_handshake()
    return outgoing.read()


def test_server_names_are_read_from_every_prefix() -> None:
    data = hello("site.example")
    assert read_server_name(data) == "site.example"
    assert read_server_name(hello(None)) == ""
    assert all(read_server_name(data[:n]) is None for n in range(len(data)))
    halves = b"".join(
        b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in (data[5:80], data[80:])
    )
    assert read_server_name(halves) == "site.example"
    for bad in (
        b"GET / HTTP/1.1",
        b"SSH-2.0-x\r\n",
        b"\x16\x03\x01\x00\x04\x02\0\0\0",
        b"\x17" * 9,
    ):
        with pytest.raises(ConnectionError):
            read_server_name(bad)


@asynccontextmanager
async def echo() -> AsyncIterator[tuple[SsrfGuard, list[bytes]]]:
    """Port 443 of the world leads to a server here that notes what it gets."""
    got: list[bytes] = []

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.read(65536))
        writer.write(b"welcome")
        await shut(writer)

    async with await asyncio.start_server(one, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            if data := await reader.read(65536):
                there = await asyncio.open_connection("127.0.0.1", port)
                there[1].write(data)
                writer.write(await there[0].read())
                await shut(there[1])
            await shut(writer)

        async with await asyncio.start_server(tunnel, "127.0.0.1", 0) as front:
            at = front.sockets[0].getsockname()[1]
            yield (
                SsrfGuard(
                    resolve=resolve,
                    public=lambda address: True,
                    proxy=lambda url: f"http://127.0.0.1:{at}",
                ),
                got,
            )


async def through(path: Path, name: str, data: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(f"CONNECT {name}:443 HTTP/1.1\r\nHost: {name}:443\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.write(data)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        await shut(writer)


async def test_a_tunnel_carries_tls_for_the_allowed_name_only(tmp_path: Path) -> None:
    async with (
        echo() as (guard, got),
        serve_unix_proxy(tmp_path / "p", ["site.example"], guard) as path,
    ):
        assert await through(path, "site.example", hello("site.example")) == b"welcome"
        assert got == [hello_ for hello_ in got if read_server_name(hello_) == "site.example"]
        assert len(got) == 1
        for wrong in (hello("evil.example"), hello(None), b"GET / HTTP/1.1\r\nHost: evil\r\n\r\n"):
            assert await through(path, "site.example", wrong) == b""
        assert len(got) == 1


async def test_a_port_of_loopback_asks_for_its_password() -> None:
    seen: list[bytes] = []
    async with origin(seen) as at, serve_loopback_proxy(GUARD) as local:

        async def ask(host: str, login: str) -> str:
            reader, writer = await asyncio.open_connection(*local.url[7:].split(":"))
            writer.write(f"GET http://{host}:{at}/ HTTP/1.1\r\n{login}\r\n".encode())
            answer = (await reader.read()).decode()
            await shut(writer)
            return answer

        def login(password: str) -> str:
            token = b64encode(f"{local.user}:{password}".encode()).decode()
            return f"Proxy-Authorization: Basic {token}\r\n"

        for wrong in ("", login(""), login("guess"), login(local.password) * 2):
            answer = await ask("any.example", wrong)
            assert answer.startswith("HTTP/1.1 407 ") and "Proxy-Authenticate: Basic" in answer
        assert seen == []
        assert (await ask("any.example", login(local.password))).endswith("hello")
        assert "public internet" in await ask("inner.example", login(local.password))
        assert "public internet" in await ask("127.0.0.66", login(local.password))
        assert local.password not in seen[0].decode()
    assert len(seen) == 1


# -- the relay and real programs -------------------------------------------------------------------


async def run(*argv: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": os.defpath, **(env or {})},
    )
    async with asyncio.timeout(90):
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


FETCH = "import sys,urllib.request as u;print(u.urlopen(sys.argv[1],timeout=10).read().decode())"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
async def test_the_only_way_out_of_a_network_namespace(tmp_path: Path) -> None:
    seen: list[bytes] = []
    async with (
        origin(seen) as at,
        serve_unix_proxy(tmp_path / "p", [f"site.example:{at}"], GUARD) as path,
    ):
        jail = "bwrap --unshare-user --unshare-net --unshare-pid --ro-bind / / --dev /dev".split()
        jail += ["--proc", "/proc", "--die-with-parent", "--"]
        fetch = [sys.executable, "-c", FETCH, f"http://site.example:{at}/"]
        probe = await run(*jail, "true")
        if probe[0]:
            pytest.skip(f"bubblewrap does not work here: {probe[1].strip()}")
        code, out = await run(*jail, *fetch, env={"NO_PROXY": "*"})
        assert code == 1 and seen == []

        async def behind(*command: str) -> tuple[int, str]:
            argv, env = wrap_in_relay(list(command), str(path), str(path))
            return await run(*jail, *argv, env=env)

        assert await behind(*fetch) == (0, "hello\n")
        code, out = await behind(sys.executable, "-c", FETCH, f"http://evil.example:{at}/")
        assert code == 1 and "403" in out
        assert (await behind("sh", "-c", "exit 7"))[0] == 7
        code, out = await behind("no-such-program")
        assert code == 127 and "no-such-program" in out
    assert len(seen) == 1
