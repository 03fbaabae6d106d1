"""Finding, holding and reaching a browser, without one."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from pathlib import Path

import aiohttp
import pytest

from hermes.core.errors import ToolError
from hermes.exec import chromium
from hermes.net.cdp_bridge import open_bridge


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_the_configured_program_counts_then_the_path_then_playwrights(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "h")}
    with pytest.raises(ToolError, match="apt install chromium"):
        chromium.find_browser("", env)
    cache = tmp_path / "h/.cache/ms-playwright"
    program(cache / "chromium-1100/chrome-linux/chrome")
    newest = program(cache / "chromium-1200/chrome-linux64/chrome")
    assert chromium.find_browser("", env) == newest
    chrome = program(tmp_path / "bin/google-chrome")
    assert chromium.find_browser("", env) == chrome
    found = program(tmp_path / "bin/chromium")
    assert chromium.find_browser("", env) == found
    own = program(tmp_path / "own/browser")
    assert chromium.find_browser(own, env) == own
    with pytest.raises(ToolError, match=r"browser\.executable"):
        chromium.find_browser(str(tmp_path / "nothing"), env)


def test_folders_are_private_and_those_of_the_dead_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chromium, "_profile_root", lambda: tmp_path)
    dead = tmp_path / "hermes-browser-dead"
    (dead / "profile").mkdir(parents=True)
    link = tmp_path / "hermes-browser-link"
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with chromium.temporary_profile() as first:
        assert first.stat().st_mode & 0o777 == 0o700
        assert dead.exists()  # it may just have been made
        now = time.time()
        monkeypatch.setattr("time.time", lambda: now + 1000)
        with chromium.temporary_profile() as second:
            assert first.exists() and second != first
            assert not dead.exists() and link.is_symlink()
    assert not first.exists() and not second.exists()


async def test_a_program_that_is_no_browser_is_said(tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("#!/bin/sh\necho cannot open display >&2\nexit 3\n")
    bad.chmod(0o755)
    home = tmp_path / "home"
    home.mkdir()
    with pytest.raises(ToolError, match=r"did not start.*cannot open display"):
        async with chromium.run_browser(str(bad), home, env={"PATH": os.defpath}, policy=None):
            raise AssertionError("it runs")


async def test_the_bridge_serves_one_client_that_knows_the_path() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=2**20)
    far, back = await asyncio.open_connection(sock=theirs)
    async with open_bridge(reader, writer) as url, aiohttp.ClientSession() as session:
        assert url.startswith("ws://127.0.0.1:")
        base, _, path = url.rpartition("/")
        assert len(path) > 30
        for wrong in (f"{base}/", f"{base}/json/version", f"{url}x", url[:-1]):
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(wrong)
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(url, headers={"Origin": "http://evil.example"})
        async with session.ws_connect(url) as talk:
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(url)
            await talk.send_str('{"id":1,"text":"zwei Wörter"}')
            assert await far.readuntil(b"\0") == '{"id":1,"text":"zwei Wörter"}\0'.encode()
            large = b'{"a":"' + b"x" * 300_000 + b'"}'
            back.write(b"{}\0" + large + b"\0")
            assert (await talk.receive_str(), await talk.receive_str()) == ("{}", large.decode())
            back.close()
            assert (await talk.receive()).type is aiohttp.WSMsgType.CLOSE
    writer.close()
