"""Who is at the other end of a loopback connection."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes.server.http import peer_user
from tests.server.other_user import NOBODY, connect_as


class Ends(asyncio.Protocol):
    """The server's ends of the connections to a listener."""

    def __init__(self) -> None:
        self.url = ""
        self.accepted: asyncio.Queue[asyncio.Transport] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.accepted.put_nowait(transport)

    def eof_received(self) -> bool:
        return True  # stay open


@pytest.fixture(params=["127.0.0.1", "::1"])
async def ends(request: pytest.FixtureRequest) -> AsyncIterator[Ends]:
    made = Ends()
    server = await asyncio.get_running_loop().create_server(lambda: made, request.param, 0)
    host = f"[{request.param}]" if ":" in request.param else request.param
    made.url = f"http://{host}:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


@pytest.fixture(params=["question", "table", "neither"])
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the kernel's word comes from: it may not answer questions, or tell nothing at all."""

    def refuse(*ends: object) -> int:
        raise PermissionError

    if request.param != "question":
        monkeypatch.setattr(peer_user, "_query_kernel", refuse)
    if request.param == "neither":
        monkeypatch.setattr(peer_user, "Path", lambda *parts: Path("/nonexistent"))
    return str(request.param)


async def test_only_the_same_user_is_let_in(ends: Ends, source: str) -> None:
    for uid in (os.geteuid(), NOBODY):
        with connect_as(uid, ends.url):
            transport = await ends.accepted.get()
            known = source != "neither"
            assert peer_user.is_own_user(transport) == (uid == os.geteuid() or not known)
            transport.abort()


async def test_who_has_gone_is_nobody(ends: Ends) -> None:
    """A socket that nobody holds belongs to root, says the kernel."""
    made = connect_as(NOBODY, ends.url)
    transport = await ends.accepted.get()
    made.close()
    await asyncio.sleep(0.05)
    for find in (peer_user._query_kernel, peer_user._search_table):
        peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        assert find(peer, here) == -1
    assert not peer_user.is_own_user(transport)
    transport.abort()
    assert not peer_user.is_own_user(None)


async def test_a_client_of_both_families_is_found(ends: Ends) -> None:
    if "[" in ends.url:
        pytest.skip("for IPv4")
    with socket.socket(socket.AF_INET6) as made:
        made.connect(("::ffff:127.0.0.1", int(ends.url.rpartition(":")[2])))
        transport = await ends.accepted.get()
        for find in (peer_user._query_kernel, peer_user._search_table):
            peer, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
            assert find(peer, here) == os.geteuid()
        transport.abort()
