"""Keys, proxies and certificates of calls to a scripted server."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.core.errors import ConfigError, Failure, Kind
from hermes.llm.auth.key_pool import Credential, clean_key
from hermes.llm.http.transport import Transport
from tests.flow.transport.conftest import KEY, OTHER, ask, client
from tests.kit import (
    Provider,
    Received,
    Reply,
    say,
    status,
)

# -- keys ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("auth", "header", "value"),
    [
        ("bearer", "authorization", f"Bearer {KEY}"),
        ("x-api-key", "x-api-key", KEY),
        ("x-goog-api-key", "x-goog-api-key", KEY),
        ("none", "authorization", ""),
    ],
)
async def test_where_the_key_goes(transport: Transport, auth: str, header: str, value: str) -> None:
    async with Provider([say("ok")]) as p:
        await ask(client(transport, p, auth=auth, headers={"X-Title": "Hermes"}))
        assert p.last.headers.get(header, "") == value
        assert KEY not in p.last.target and p.last.headers["x-title"] == "Hermes"


@pytest.mark.parametrize(
    "written",
    [
        f" {KEY}\n",
        KEY.replace("-", "\u2013"),
        f"\ufeff{KEY[:9]}\u200b{KEY[9:]}",
        KEY[:20] + "\u00a0" + KEY[20:],
        "".join(chr(ord(c) + 0xFEE0) for c in KEY),
    ],
)
def test_look_alikes_from_a_pdf_are_put_right(written: str) -> None:
    assert clean_key(Credential("TEST_KEY", written)) == KEY


async def test_other_characters_are_named(transport: Transport) -> None:
    async with Provider() as p:
        odd = Credential("LAB_KEY", "sk-pa\u00e9ss-word-123456")
        heard = await ask(client(transport, p, keys=(odd,)))
        assert heard.kind is Kind.AUTH and not p.requests
        assert "LAB_KEY" in heard.said and "character 6" in heard.said and "U+00E9" in heard.said


async def test_a_signature_in_place_of_a_key(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("botocore")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    key = Credential(
        "AWS_SECRET_ACCESS_KEY", "secret/secret/secret", "AKIDEXAMPLE", "session-token"
    )
    async with Provider([say("ok")], wire="bedrock") as p:
        assert (await ask(client(transport, p, auth="aws", keys=(key,)))).text == "ok"
        signed = p.last.headers["authorization"]
        assert signed.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-west-1/bedrock/aws4_request" in signed
        assert p.last.headers["x-amz-security-token"] == "session-token"


async def test_streams_need_no_package_of_amazons(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.llm.auth.aws.is_installed", lambda: False)
    async with Provider([say("ok")], wire="bedrock") as p:
        assert (await ask(client(transport, p))).text == "ok"
        assert p.last.path.endswith("/converse-stream")


async def test_the_next_key_of_the_pool(transport: Transport) -> None:
    keys = (Credential("FIRST", KEY), Credential("SECOND", OTHER))

    def picky(received: Received) -> Reply:
        good = received.headers["authorization"].endswith(OTHER)
        return say("in") if good else status(402, "no credit left")

    async with Provider(then=picky) as p:
        c = client(transport, p, keys=keys)
        heard = await ask(c)
        assert heard.kind is Kind.BILLING and c.credentials.key_source == "FIRST"
        assert heard.failure is not None and c.credentials.rotate_key(heard.failure)
        assert (await ask(c)).text == "in" and c.credentials.key_source == "SECOND"
        # Everybody at this endpoint knows now, another model's client too.
        assert (await ask(client(transport, p, keys=keys))).text == "in"
        assert not c.credentials.rotate_key(heard.failure), "both have been set aside"
        assert not client(transport, p).credentials.rotate_key(heard.failure), "there is only one"


async def test_a_late_failure_of_the_first_key_does_not_cost_the_second(
    transport: Transport,
) -> None:
    keys = (Credential("FIRST", KEY), Credential("SECOND", OTHER))
    failure = Failure(Kind.AUTH, "no")
    async with Provider(then=say("ok")) as p:
        c = client(transport, p, keys=keys)
        sent, go = asyncio.Event(), asyncio.Event()

        async def late() -> bool:
            await ask(c)
            sent.set()
            await go.wait()
            return c.credentials.rotate_key(failure)

        task = asyncio.ensure_future(late())
        await sent.wait()
        await ask(c)
        assert c.credentials.rotate_key(failure)
        go.set()
        assert await task, "the second key is still good"


async def test_f37_everybody_waits_but_the_one_who_waits_already(transport: Transport) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with Provider(then=say("ok")) as p:
        c = client(transport, p, sleep=sleep)
        c.credentials.pause_key(30)
        await ask(c)
        assert slept == []
        await asyncio.ensure_future(ask(client(transport, p, sleep=sleep)))
        assert len(slept) == 1 and 29 < slept[0] < 32
        another = client(transport, p, sleep=sleep, keys=(Credential("X", OTHER),))
        await asyncio.ensure_future(ask(another))
        assert len(slept) == 1, "another key has its own limit"


def test_a_key_over_plain_http_is_worth_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    transport = Transport()
    with caplog.at_level(logging.WARNING):
        for url in ("http://lab.example:8000/v1", "http://lab.example/v1", "http://127.0.0.1/v1"):
            client(transport, url)
        client(transport, "http://other.example/v1", keys=())
        client(transport, "https://third.example/v1")
    assert [r.getMessage() for r in caplog.records] == [
        "The key for lab.example is sent over plain http; use https if the host offers it."
    ]


# -- proxies and TLS -----------------------------------------------------------------------------


async def test_the_proxy_of_the_environment(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Provider([say("through the proxy")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://joe:hunter22@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("NO_PROXY", "direct.invalid")
        heard = await ask(client(transport, "http://api.invalid/v1"))
        assert heard.text == "through the proxy"
        assert proxy.last.target == "http://api.invalid/v1/chat/completions"
        assert proxy.last.headers["proxy-authorization"].startswith("Basic ")
        assert (await ask(client(transport, "http://direct.invalid/v1"))).kind is Kind.NETWORK
        assert len(proxy.requests) == 1
        refused = await ask(client(transport, "https://api.invalid/v1"))
        assert refused.kind is Kind.NETWORK


@pytest.mark.parametrize(
    ("address", "direct"),
    [
        ("http://127.0.0.1:11434/v1/models", True),
        ("http://127.0.0.1:11435/v1/models", False),
        ("http://api.invalid:11434/v1/models", False),
    ],
)
def test_no_proxy_is_between_us_and_a_model_server_of_this_machine(
    transport: Transport, monkeypatch: pytest.MonkeyPatch, address: str, direct: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:3128")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert (transport.find_proxy(address) == "") is direct


async def test_a_proxy_that_is_not_there(
    transport: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Provider(listening=False) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://joe:hunter22@127.0.0.1:{proxy.port}")
        heard = await ask(client(transport, "http://api.invalid/v1"))
        assert heard.kind is Kind.NETWORK and "proxy" in heard.said
        assert "hunter22" not in heard.said


@pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("aiohttp_socks") is not None,
    reason="with the package it is a proxy like others",
)
def test_a_socks_proxy_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="aiohttp-socks"):
        client(Transport(), "https://api.invalid/v1")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
        "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 "
        "-keyout key.pem -out cert.pem".split(),
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


def serving(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_f02_a_certificate_nobody_trusts(transport: Transport, certificate: Path) -> None:
    async with Provider([say("secret")], tls=serving(certificate)) as p:
        heard = await ask(client(transport, p))
        assert heard.kind is Kind.TLS and "self-signed" in heard.said
        assert not p.requests


async def test_f02_https_to_a_plain_server(transport: Transport) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(plain, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        heard = await ask(client(transport, f"https://127.0.0.1:{port}/v1"))
    assert heard.kind is Kind.TLS and "wrong version number" in heard.said


TRUSTED = """
import asyncio, ssl, sys
from hermes.llm.http.lazy_tls import load_aiohttp
from hermes.llm.http.transport import Transport
started = ssl.SSLContext.set_default_verify_paths
load_aiohttp()
assert ssl.SSLContext.set_default_verify_paths is started
from aiohttp import connector
verified = connector._SSL_CONTEXT_VERIFIED
assert ssl.SSLContext.cert_store_stats(verified)["x509"] == 0, "read before anybody needs it"
async def main():
    transport = Transport()
    exchange = await transport.send("GET", sys.argv[1] + "/models", headers={})
    print(exchange.status, (await exchange.read_all(9999)).decode())
    exchange.close()
    await transport.close()
asyncio.run(main())
assert type(verified) is ssl.SSLContext and verified.cert_store_stats()["x509"] > 0
"""


def test_certificates_are_read_when_https_is_first_spoken(certificate: Path) -> None:
    with Provider(tls=serving(certificate)) as p:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", TRUSTED, p.base_url],
            env={"SSL_CERT_FILE": str(certificate / "cert.pem"), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=90,
        )
    assert done.stdout.startswith("200 ") and "kit-model" in done.stdout, done.stderr
