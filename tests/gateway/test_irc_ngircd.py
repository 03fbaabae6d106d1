"""IRC against a real server, ngircd: a direct chat, a channel, a long answer, a restart of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.gateways import GatewayProcess
from tests.gateway.platform_gateways import free_port, platform_process
from tests.kit import Home, call, run_hermes, say
from tests.kit.ngircd import IrcUser, ngircd
from tests.kit.server import Step

pytestmark = pytest.mark.e2e
PASSWORD = "ngircd-password-0123456789"


async def test_a_wrong_password_turns_it_off_and_a_taken_nickname_does_not(tmp_path: Path) -> None:
    port = free_port()
    async with ngircd(tmp_path / "irc", port, password=PASSWORD):
        holder = IrcUser("hermes", port, PASSWORD)
        await holder.connect()
        home = Home(tmp_path)
        home.configure(platforms={"irc": {"port": port, "tls": False}})
        command = ["gateway", "setup", "irc"]
        wrong = await run_hermes(command, home, stdin="127.0.0.1\n\nanother password\n")
        assert wrong.rc == 2 and "refused us" in wrong.stderr, wrong.stderr
        done = await run_hermes(command, home, stdin=f"127.0.0.1\n\n{PASSWORD}\n")
        assert done.rc == 0 and "hermes_ on 127.0.0.1" in done.stdout, done.stderr
        await holder.close()


@asynccontextmanager
async def meeting(
    root: Path, *steps: Step, **settings: Any
) -> AsyncIterator[tuple[GatewayProcess, IrcUser, AsyncExitStack]]:
    """The bot and alice on a server that is closed with the stack."""
    port = free_port()
    async with AsyncExitStack() as server:
        await server.enter_async_context(ngircd(root / "irc", port, password=PASSWORD))
        alice = IrcUser("alice", port, PASSWORD)
        await alice.connect()
        server.push_async_callback(alice.close)
        whole = {
            "port": port,
            "tls": False,
            "allowed_users": ["alice!*@127.0.0.1"],
            "channels": ["#kit"],
            "allowed_chats": ["#kit"],
            **settings,
        }
        env = {"IRC_SERVER": "127.0.0.1", "IRC_SERVER_PASSWORD": PASSWORD}
        async with platform_process(root, steps, name="irc", settings=whole, env=env) as g:
            alice.send("JOIN #kit")
            await alice.until(" 366 ")
            yield g, alice, server


async def test_a_direct_chat_a_channel_and_an_approval(tmp_path: Path) -> None:
    push = call(("c1", "terminal", {"command": "git push origin main"}))
    async with meeting(tmp_path, say("Hello."), say("In here."), push, say("Denied.")) as meet:
        g, alice, _ = meet
        alice.send("PRIVMSG hermes :hi")
        await alice.until("PRIVMSG alice :Hello.")
        alice.send("PRIVMSG #kit :nothing for anybody")
        alice.send("NOTICE hermes :not answered")
        alice.send("PRIVMSG #kit :hermes: and here?")
        await alice.until("PRIVMSG #kit :In here.")
        alice.send("PRIVMSG hermes :push")
        await alice.until("/approve or /deny")
        alice.send("PRIVMSG hermes :no")
        await alice.until(texts.DENIED_BY.format(name="alice"))
        await alice.until("PRIVMSG alice :Denied.")
        assert await g.stop() == 0
        await alice.until("QUIT")


async def test_a_long_answer_arrives_whole_and_in_order(tmp_path: Path) -> None:
    answer = "\n".join(f"line {i} " + "\u00fc" * 150 for i in range(12)) + "\nthe end"
    async with meeting(tmp_path, say(answer)) as (_, alice, _):
        alice.send("PRIVMSG hermes :tell me")
        await alice.until("PRIVMSG alice :the end")
        said = [line.partition("PRIVMSG alice :")[2] for line in alice.lines]
        assert "\n".join(filter(None, said)) == answer


async def test_it_comes_back_when_the_server_does(tmp_path: Path) -> None:
    async with meeting(tmp_path, say("one"), say("two")) as (g, alice, server):
        alice.send("PRIVMSG hermes :first")
        await alice.until("PRIVMSG alice :one")
        port = int(re.findall(r"port: (\d+)", (g.home.path / "config.yaml").read_text())[0])
        await server.aclose()
        async with ngircd(tmp_path / "irc", port, password=PASSWORD):
            again = IrcUser("alice", port, PASSWORD)
            await again.connect()
            again.send("JOIN #kit")
            await again.until("hermes", timeout=120)
            again.send("PRIVMSG #kit :hermes: second")
            await again.until("PRIVMSG #kit :two")
            await again.close()
