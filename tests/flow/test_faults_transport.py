"""F1-F10, F16-F18: the network and the transport fail; the turn survives or says why it cannot."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hermes.config.load import load_setup
from hermes.llm.endpoints.endpoint import ModelChoice
from hermes.llm.endpoints.resolver import resolve_chain
from tests.kit import (
    WIRES,
    Gate,
    Home,
    Provider,
    Reply,
    call,
    garbage,
    hang_up,
    html,
    raw,
    reset,
    say,
    stall,
)
from tests.kit.bodies import messages
from tests.kit.rig import Rig, rig

SSE_WIRES = [w for w in WIRES if w != "bedrock"]
FRAGMENTED = [w for w in WIRES if w != "gemini"]
"""Wires that send arguments in fragments."""


def limits(**seconds: float) -> dict[str, Any]:
    return {"providers": {"custom": {f"{k}_timeout_seconds": v for k, v in seconds.items()}}}


async def stored_user_texts(r: Rig) -> list[str]:
    return [m.text for m in await r.stored() if m.role == "user"]


# -- F1 ------------------------------------------------------------------------------------


async def test_F01_connection_refused_is_retried_then_reported(tmp_path: Path) -> None:
    async with rig(tmp_path, Provider(listening=False)) as r:
        result = await r.turn("are you there?")
        assert result.status == "failed" and result.error_code == "network"
        assert "cannot reach 127.0.0.1" in result.error.lower()
        assert len(r.waits) >= 2, "three tries in all need at least two waits"
        assert all(0 < w <= 60 for w in r.waits) and r.waits[0] <= 2 and r.waits[1] <= 4
        assert await stored_user_texts(r) == ["are you there?"]


async def test_F01_backoff_is_jittered(tmp_path: Path) -> None:
    async with rig(tmp_path, Provider(listening=False)) as r:
        for _ in range(3):
            await r.turn()
        assert len(set(r.waits)) > len(r.waits) // 2, f"no jitter in {r.waits}"


async def test_F01_connection_refused_falls_back(tmp_path: Path) -> None:
    async with (
        Provider([say("from the spare")]) as spare,
        rig(tmp_path, Provider(listening=False), spare=spare) as r,
    ):
        result = await r.turn()
        assert result.status == "completed" and result.text == "from the spare"
        assert result.target is not None and result.target.provider == "spare"


@pytest.mark.parametrize("problem", ["dns", "no route"])
async def test_F01_unresolvable_and_unroutable_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    broken = True
    real = socket.getaddrinfo

    def lookup(host: Any, port: Any, *args: Any, **kwargs: Any) -> Any:
        if host not in ("nowhere.invalid", b"nowhere.invalid"):
            return real(host, port, *args, **kwargs)
        if broken and problem == "dns":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("255.255.255.255" if broken else "127.0.0.1", port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    provider = Provider()
    url = f"http://nowhere.invalid:{provider.port}/v1"
    async with rig(tmp_path, provider, config={"model": {"base_url": url}}) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "network"
        assert "cannot reach nowhere.invalid" in result.error.lower()
        assert len(r.waits) >= 2
        broken = False


# -- F2 ------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
        "-keyout key.pem -out cert.pem".split(),
        cwd=folder,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_F02_invalid_certificate_is_reported_at_once(
    tmp_path: Path, certificate: ssl.SSLContext
) -> None:
    async with rig(tmp_path, Provider([say("secret")], tls=certificate), check=False) as r:
        result = await r.turn("hello?")
        assert result.status == "failed" and result.error_code == "tls"
        assert "certificate" in result.error.lower() and "127.0.0.1" in result.error
        assert r.provider.connections == 1 and not r.requests and not r.waits
        again = await r.turn("hello again?")
        assert again.error_code == "tls"
        session = r.session.id
    async with rig(tmp_path, [say("hello")], resume=session) as r:
        assert (await r.turn("third")).text == "hello"
        assert await stored_user_texts(r) == ["hello?", "hello again?", "third"]


# -- F3 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fault", [reset(), hang_up()], ids=["reset", "close"])
async def test_F03_reset_before_headers_is_retried(tmp_path: Path, wire: str, fault: Reply) -> None:
    async with rig(tmp_path, [fault, say("ok")], wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok"
        assert len(r.requests) == 2
        assert r.requests[0].connection != r.requests[1].connection
        assert r.requests[0].body == r.requests[1].body


async def test_F03_reset_for_ever_ends_after_three_tries_and_a_rebuilt_connection(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, [], then=reset()) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "network"
        assert len(r.requests) == 4, "3 tries in all, those inside the call counted, then one more"
        assert r.recoveries and r.recoveries[0].kind == "network"


async def test_F03_reset_for_ever_falls_back_and_the_next_turn_tries_the_primary(
    tmp_path: Path,
) -> None:
    async with (
        Provider([say("spare")], wire="anthropic") as spare,
        rig(tmp_path, [], then=reset(), spare=spare) as r,
    ):
        result = await r.turn()
        assert result.status == "completed" and result.text == "spare"
        assert len(r.requests) == 4 and len(spare.requests) == 1


async def test_F03_a_stale_pooled_connection_costs_nothing(tmp_path: Path) -> None:
    """The server closed the idle connection: the next request simply gets a new one."""
    async with rig(tmp_path, [say("one"), say("two")]) as r:
        await r.turn()
        for connection in list(r.provider._live):
            connection.transport.abort()
        result = await r.turn()
        assert result.text == "two" and not r.waits


# -- F4 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_F04_reset_mid_text_keeps_the_text_and_goes_on(tmp_path: Path, wire: str) -> None:
    gate = Gate()
    broken = say("Hello ", "wor", "ld").hold(gate, "text", 2).reset("text", 2)
    async with rig(tmp_path, [broken, say("ld, again")], wire=wire) as r:
        turn = r.begin()
        await r.until_shown("wor")
        gate.open()
        result = await turn
        assert result.status == "completed" and result.text == "Hello world, again"
        assert r.shown == "Hello world, again"
        assert len(r.requests) == 2
        assert any("Hello wor" in m.text for m in messages(r.requests[1]))


@pytest.mark.parametrize("wire", WIRES)
async def test_F04_when_going_on_fails_too_the_turn_is_partial(tmp_path: Path, wire: str) -> None:
    broken = say("Hello ", "wor", "ld").cut("text", 2)
    async with rig(tmp_path, [broken], wire=wire, then=reset()) as r:
        result = await r.turn()
        assert (
            result.status == "partial"
            and result.status != "completed"
            and result.status != "failed"
        )
        assert result.text == "Hello wor" and result.error_code == "network"
        assert len(r.requests) <= 5
        assert (await r.state()) == "partial"


async def test_F04_two_broken_streams_keep_both_pieces(tmp_path: Path) -> None:
    steps = [say("Hello ", "world").cut("text", 1), say("wide ", "web").cut("text", 1)]
    async with rig(tmp_path, steps, then=reset()) as r:
        result = await r.turn()
        assert result.status == "partial" and result.text == "Hello wide "


# -- F5 ------------------------------------------------------------------------------------

WRITE = ("c1", "write_file", {"path": "lost.txt", "content": "never " * 9})


@pytest.mark.parametrize("wire", FRAGMENTED)
async def test_F05_reset_mid_arguments_after_text_is_never_silent(
    tmp_path: Path, wire: str
) -> None:
    broken = (say("I write it now. ") + call(WRITE)).cut("args", 3)
    async with rig(tmp_path, [broken, say("I see.")], wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "I see."
        assert not (r.home.work / "lost.txt").exists() and not r.started
        for place in (r.shown, (await r.stored())[1].text, r.requests[1].body.decode()):
            assert "Stream stalled mid tool-call" in place
            assert "write_file" in place and "not executed" in place
        kept = (await r.stored())[1]
        assert kept.text.startswith("I write it now. ") and kept.calls == ()


@pytest.mark.parametrize("wire", FRAGMENTED)
async def test_F05_reset_mid_arguments_without_text(tmp_path: Path, wire: str) -> None:
    whole = ("c2", "write_file", {"path": "kept.txt", "content": "once"})
    steps = [call(WRITE).cut("args", 3), call(whole), say("done")]
    async with rig(tmp_path, steps, wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "done"
        assert not (r.home.work / "lost.txt").exists()
        assert (r.home.work / "kept.txt").read_text() == "once"
        assert [c.name for c in r.started] == ["write_file"]


async def test_F05_when_the_repeated_call_breaks_too_the_turn_is_partial(tmp_path: Path) -> None:
    broken = (say("I write. ") + call(WRITE)).cut("args", 3)
    async with rig(tmp_path, [], then=broken) as r:
        result = await r.turn()
        assert result.status == "partial" and not (r.home.work / "lost.txt").exists()
        assert len(r.requests) == 2
        assert "not executed" in result.text


# -- F6, F7 --------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("fault", [stall(), say("x").stall(n=0)], ids=["nothing", "headers only"])
async def test_F06_no_first_byte_is_dropped_and_retried_on_a_fresh_connection(
    tmp_path: Path, wire: str, fault: Reply
) -> None:
    config = limits(ttfb=0.5)
    async with rig(tmp_path, [fault, say("ok")], wire=wire, config=config) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok"
        assert len(r.requests) == 2 and r.requests[0].gone.is_set()
        assert r.requests[0].connection != r.requests[1].connection


async def test_F06_stalled_for_ever_is_reported(tmp_path: Path) -> None:
    async with rig(tmp_path, [], then=stall(), config=limits(ttfb=0.3)) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "stalled"
        assert len(r.requests) <= 4


async def test_F06_zero_turns_the_limit_off(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("slow start").hold(gate, n=0)]
    async with rig(tmp_path, steps, config=limits(ttfb=0)) as r:
        turn = r.begin()
        await gate.reached()
        asyncio.get_running_loop().call_later(0.2, gate.open)
        assert (await turn).text == "slow start" and len(r.requests) == 1


def test_F06_F07_default_limits(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.configure(
        model={"default": "m", "provider": "custom", "base_url": "http://127.0.0.1:9/v1"}
    )
    setup = load_setup("", home.env)
    timeouts = resolve_chain(setup.config, setup.secrets, ModelChoice())[0].timeouts
    assert timeouts.ttfb == 45 and timeouts.stale == 180


@pytest.mark.parametrize("wire", WIRES)
async def test_F07_stall_mid_text_keeps_it_and_goes_on(tmp_path: Path, wire: str) -> None:
    steps = [say("Hello ", "never").stall("text", 1), say("world")]
    async with rig(tmp_path, steps, wire=wire, config=limits(stale=0.5)) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "Hello world" == r.shown
        assert r.requests[0].gone.is_set()


@pytest.mark.parametrize("wire", FRAGMENTED)
async def test_F07_stall_mid_tool_call(tmp_path: Path, wire: str) -> None:
    steps = [(say("Now. ") + call(WRITE)).stall("args", 2), say("noted")]
    async with rig(tmp_path, steps, wire=wire, config=limits(stale=0.5)) as r:
        result = await r.turn()
        assert result.status == "completed" and not (r.home.work / "lost.txt").exists()
        assert "Stream stalled mid tool-call" in r.shown


async def test_F07_the_first_event_feeds_the_stale_limit_not_the_first_byte_one(
    tmp_path: Path,
) -> None:
    """Once events flow only the stale limit applies: a pause longer than ttfb is fine."""
    gate = Gate()
    steps = [say("a", "b").hold(gate, "text", 1)]
    async with rig(tmp_path, steps, config=limits(ttfb=0.5, stale=8)) as r:
        turn = r.begin()
        await gate.reached()
        asyncio.get_running_loop().call_later(0.8, gate.open)
        assert (await turn).text == "ab" and len(r.requests) == 1


async def test_F07_any_event_is_activity_also_pings(tmp_path: Path) -> None:
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'
    steps = [say("a", "b").drip(ping, 0.1, after="text", times=12)]
    async with rig(tmp_path, steps, wire="anthropic", config=limits(stale=0.8)) as r:
        assert (await r.turn()).text == "ab" and len(r.requests) == 1


# -- F8, F9 --------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", SSE_WIRES)
async def test_F08_comments_alone_do_not_keep_a_stream_alive(tmp_path: Path, wire: str) -> None:
    comment = b": keep-alive\n\n"
    steps = [
        say("x").drip(comment, 0.05, n=0),
        say("Hello ", "never").drip(comment, 0.05, after="text"),
        say("world"),
    ]
    config = limits(ttfb=0.5, stale=0.5)
    async with rig(tmp_path, steps, wire=wire, config=config) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "Hello world"
        assert len(r.requests) == 3 and r.requests[0].gone.is_set()


async def test_F09_a_trickle_ends_at_the_total_limit(tmp_path: Path) -> None:
    chunk = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    trickle = say("x").drip(chunk, 0.05, after="text")
    async with rig(tmp_path, [], then=trickle, config=limits(request=0.5)) as r:
        result = await r.turn()
        assert result.status == "partial" and result.error_code == "stalled"
        assert set(result.text) == {"x"} and len(r.requests) == 2
        assert all(q.gone.is_set() for q in r.requests)


async def test_F09_single_bytes_that_never_make_an_event_are_no_activity(tmp_path: Path) -> None:
    steps = [say("x" * 500).bytes_each(1).slow(0.03), say("ok")]
    async with rig(tmp_path, steps, config=limits(ttfb=0.5)) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok"


# -- F10, F16-F18 --------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "fault",
    [
        html(),
        raw(b"<html>sign in</html>", content_type="application/json"),
        raw(b"Welcome to the hotel network", content_type="text/plain"),
    ],
    ids=["html", "html as json", "text"],
)
async def test_F10_a_page_instead_of_an_answer_is_reported(
    tmp_path: Path, wire: str, fault: Reply
) -> None:
    async with rig(tmp_path, [fault], wire=wire) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "network"
        assert "not an API" in result.error and len(r.requests) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_F16_a_stream_without_content_and_end_is_retried(tmp_path: Path, wire: str) -> None:
    hollow = say("x").edit(lambda events: [e for e in events if e.kind == "start"])
    async with rig(tmp_path, [hollow, say("ok")], wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok" and len(r.requests) == 2


@pytest.mark.parametrize("wire", WIRES)
async def test_F16_for_ever_is_an_error(tmp_path: Path, wire: str) -> None:
    hollow = say("x").edit(lambda events: [e for e in events if e.kind == "start"])
    async with rig(tmp_path, [], wire=wire, then=hollow) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code in ("server_error", "network")
        assert wire != "responses" or "did not emit a terminal response" in result.error
        assert len(r.requests) <= 4


@pytest.mark.parametrize("wire", WIRES)
async def test_F17_a_truncated_gzip_body_is_retried(tmp_path: Path, wire: str) -> None:
    broken = say("this answer is cut in the middle").as_json().gzip(truncated=True)
    async with rig(tmp_path, [broken, say("ok")], wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok" and len(r.requests) == 2


async def test_F17_a_truncated_gzip_stream_keeps_what_was_shown(tmp_path: Path) -> None:
    broken = say("Hello ", "wor").without("stop", "usage", "done").gzip(truncated=True)
    async with rig(tmp_path, [broken, say("ld")]) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "Hello world"


@pytest.mark.parametrize("form", ["json", "stream"])
async def test_F17_a_good_gzip_body_is_read(tmp_path: Path, form: str) -> None:
    reply = say("squeezed").gzip() if form == "stream" else say("squeezed").as_json().gzip()
    async with rig(tmp_path, [reply]) as r:
        assert (await r.turn()).text == "squeezed"


async def test_F18_a_connection_closed_as_the_request_leaves_is_retried(tmp_path: Path) -> None:
    """What GOAWAY is in HTTP/2: the server gives up a connection we were about to use."""
    async with rig(tmp_path, [say("one"), hang_up(), say("two")]) as r:
        assert (await r.turn()).text == "one"
        assert r.provider.connections == 1
        result = await r.turn("again")
        assert result.status == "completed" and result.text == "two" and len(r.requests) == 3


async def test_F18_frames_of_another_protocol_are_no_crash(tmp_path: Path) -> None:
    goaway = bytes.fromhex("000008070000000000000000000000000b")
    async with rig(tmp_path, [], then=garbage(goaway)) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "network" and len(r.requests) <= 4


def test_no_route_is_what_this_test_thinks() -> None:
    """255.255.255.255 is refused by the kernel without a packet: else F1 would use the network."""
    with socket.socket() as s, pytest.raises(OSError) as error:
        s.settimeout(2)
        s.connect(("255.255.255.255", 9))
    assert error.value.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES)
