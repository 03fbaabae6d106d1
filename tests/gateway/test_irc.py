"""IRC: accounts and masks, channels, pace, what may have arrived, and lines nobody can inject."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway import texts
from hermes.gateway.platforms import _irc_connection
from hermes.gateway.platforms._irc_protocol import (
    IrcLine,
    format_line,
    matches_mask,
    parse_line,
    read_message,
)
from tests.gateway.platform_gateways import live_platform, platform_process, until_failed
from tests.gateway.test_turns import prompts
from tests.kit import Gate, Home, call, run_hermes, say
from tests.kit.irc import PASSWORD, Irc
from tests.kit.irc import irc as irc_server
from tests.kit.server import Step

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def chat(
    root: Path,
    *steps: Step,
    server: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    process: bool = False,
    config: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Any, Irc]]:
    async with irc_server(**(server or {})) as fake:
        whole = {"port": fake.port, "tls": False, "allowed_users": ["alice"], **settings}
        start: Any = platform_process if process else live_platform
        async with start(
            root,
            steps,
            name="irc",
            settings=whole,
            env={"IRC_SERVER": "127.0.0.1", **(env or {})},
            **(config or {}),
        ) as g:
            yield g, fake


# -- the protocol ----------------------------------------------------------------------------


def test_lines_are_read_with_tags_sources_and_text() -> None:
    line = parse_line(
        b"@time=2026-01-02T03:04:05.000Z;+x=a\\sb\\:c :a!u@h PRIVMSG #c :hi :there\r\n"
    )
    assert line == IrcLine(
        "PRIVMSG",
        ("#c", "hi :there"),
        "a!u@h",
        {"time": "2026-01-02T03:04:05.000Z", "+x": "a b;c"},
    )
    assert parse_line(b"PING x") == IrcLine("PING", ("x",))
    assert parse_line(b":s 001 n :\r\n").params == ("n", "")
    assert parse_line("PRIVMSG n :gr\u00fc\u00df".encode("latin-1")).text == "gr\u00fc\u00df"
    assert parse_line(b"\r\n").command == ""


@given(st.text(), st.text())
def test_nothing_in_a_text_ends_its_line(name: str, text: str) -> None:
    try:
        line = format_line("PRIVMSG", name, text=text)
    except ValueError:
        line = format_line("PRIVMSG", "x", text=text)
    assert line.endswith(b"\r\n") and line.count(b"\r") == line.count(b"\n") == 1
    assert b"\0" not in line and b"\x01" not in line
    assert len(parse_line(line).params) == 2


@pytest.mark.parametrize(
    ("mask", "source", "fits"),
    [
        ("*!*@host.example", "a!u@host.example", True),
        ("*@Host.example", "a!u@host.example", True),
        ("[a]!u@h?st", "{A}!u@host", True),
        ("a!*@*", "a!u@h", False),
        ("*!*@*", "a!u@h", False),
        ("a!u@*", "a!u@h", True),
        ("a.b!u@h", "axb!u@h", False),
    ],
)
def test_masks_need_more_than_a_nickname(mask: str, source: str, fits: bool) -> None:
    assert matches_mask(mask, source, "rfc1459") is fits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hermes: hi", ("hi", True)),
        ("@Hermes, hi", ("hi", True)),
        ("hermes hi", ("hermes hi", False)),
        ("ask hermes: now", ("ask hermes: now", False)),
        ("hermesbot: hi", ("hermesbot: hi", False)),
        ("\x02bold\x0f \x0304red", ("bold red", False)),
        ("\x01ACTION waves\x01", ("waves", False)),
        ("\x01VERSION\x01", None),
    ],
)
def test_what_a_message_says(text: str, expected: tuple[str, bool] | None) -> None:
    assert read_message(text, "hermes", "rfc1459") == expected


def test_five_lines_go_at_once_then_two_a_second() -> None:
    pace = _irc_connection.LinePace()
    assert [pace.reserve_line(100.0) for _ in range(8)] == [0, 0, 0, 0, 0, 0.5, 1.0, 1.5]
    assert [pace.reserve_line(102.0) for _ in range(2)] == [0, 0.5]
    assert [pace.reserve_line(200.0) for _ in range(6)] == [0, 0, 0, 0, 0, 0.5]


# -- whole turns -------------------------------------------------------------------------------


async def test_a_turn_in_a_direct_chat_goes_on_after_a_change_of_nickname(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Hello."), say("Again.")) as (g, server):
        await server.say("alice", "hi")
        assert (await server.until_said("Hello.")).target == "alice"
        server.leave("alice")
        server.add_person("ally", account="Alice")
        await server.say("ally", "still me")
        assert (await server.until_said("Again.")).target == "ally"
        assert prompts(g) == ["hi", "still me"]
        (row,) = (await run_hermes(["sessions", "list", "--json"], g.home)).json
        assert row["key"] == "agent:main:irc:dm:alice"


async def test_g3_a_nickname_alone_is_nobody(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Hello.")) as (g, server):
        server.people.clear()
        server.add_person("alice")  # the nickname, without the account
        server.add_person("mallory", account="Mallory")
        server.add_person("owner", account="ALICE")
        await server.say("alice", "let me in")
        await server.say("mallory", "me too")
        await server.say("owner", "hi", kind="NOTICE")
        await server.say("owner", "\x01VERSION\x01")
        await server.say("owner", "hi")
        await server.until_said("Hello.")
        assert prompts(g) == ["hi"] and server.texts() == ["Hello."]


@pytest.mark.parametrize("capabilities", ["", "multi-prefix chghost"])
@pytest.mark.parametrize("listed", [["alice"], ["*!*@host.example"]])
async def test_without_account_tags_the_server_is_asked(
    tmp_path: Path, listed: list[str], capabilities: str
) -> None:
    server = {"capabilities": capabilities}
    async with chat(tmp_path, say("Hello."), server=server, allowed_users=listed) as (g, fake):
        fake.add_person("mallory", host="elsewhere")
        for _ in range(20):
            await fake.say("mallory", "me too")
        await fake.say("alice", "hi")
        await fake.until_said("Hello.")
        asked = [line for line in fake.lines if line.startswith("WHOIS")]
        assert asked == (["WHOIS mallory", "WHOIS alice"] if listed == ["alice"] else [])
        assert prompts(g) == ["hi"]


async def test_channels_must_be_listed_and_only_mentions_count(tmp_path: Path) -> None:
    settings = {"channels": ["#ours", "#theirs"], "allowed_chats": ["#Ours"]}
    async with chat(tmp_path, say("Here."), say("Always."), **settings) as (g, server):
        await server.until_joined("#theirs")
        server.add_person("bob", account="bob")
        await server.say("alice", "hermes: hi", to="#theirs")
        await server.say("alice", "just talking", to="#ours")
        await server.say("bob", "hermes: and me?", to="#ours")
        await server.say("alice", "hermes: hi", to="#ours", bot="1")
        await server.say("alice", "hermes: hi", to="#ours")
        assert (await server.until_said("Here.")).target == "#ours"
        await server.say("alice", "!status", to="#ours")
        await server.until(lambda: len(server.texts("#ours")) > 1)
        assert prompts(g) == ["hi"]


async def test_everything_counts_where_no_mention_is_needed(tmp_path: Path) -> None:
    settings = {
        "channels": ["#ours"],
        "allowed_chats": ["#ours"],
        "require_mention": False,
        "group_members": True,
    }
    async with chat(tmp_path, say("Hi guest."), **settings) as (g, server):
        await server.until_joined("#ours")
        server.add_person("bob")
        await server.say("bob", "!restart", to="#ours")
        await server.until_said("/restart is for administrators.")
        await server.say("bob", "hello", to="#ours")
        await server.until_said("Hi guest.")
        assert prompts(g) == ["hello"]


async def test_long_answers_come_in_lines(tmp_path: Path) -> None:
    words = " ".join(f"w\u00f6rd{i}" for i in range(400))
    answer = f"First line\r\nQUIT :injected\n\n{words}"
    async with chat(tmp_path, say(answer)) as (_, server):
        await server.say("alice", "tell me")
        await server.until(lambda: "w\u00f6rd399" in " ".join(server.texts()))
        said = server.texts()
        assert "QUIT :injected" in said and " ".join(said).split() == answer.split()
        assert all(len(text.encode()) <= 400 for text in said) and len(said) > 9


async def test_an_approval_is_answered_by_a_command(tmp_path: Path) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Fine.")]
    async with chat(tmp_path, *steps) as (_, server):
        await server.say("alice", "push")
        await server.until(lambda: any("/approve or /deny" in t for t in server.texts()))
        await server.say("alice", "!deny")
        await server.until_said("Fine.")
        await server.until_said(texts.DENIED_BY.format(name="alice"))
        assert sum("Approval needed" in text for text in server.texts()) == 1


@pytest.mark.parametrize("word", ["yes", "No"])
async def test_an_approval_is_answered_by_a_word_of_the_requester(
    tmp_path: Path, word: str
) -> None:
    steps = [call(("c1", "terminal", {"command": "git push origin main"})), say("Fine.")]
    async with chat(tmp_path, *steps) as (g, server):
        await server.say("alice", "push")
        await server.until(lambda: any("/approve or /deny" in t for t in server.texts()))
        await server.say("alice", word)
        await server.until_said("Fine.")
        line = texts.ALLOWED_BY.format(answer="once", name="alice")
        expected = line if word == "yes" else texts.DENIED_BY.format(name="alice")
        await server.until_said(expected)
        assert len(g.provider.requests) == 2


async def test_files_are_named_and_not_sent(tmp_path: Path) -> None:
    async with chat(tmp_path, say("Here it is.\nMEDIA:a.txt")) as (g, server):
        g.home.file("a.txt", "content")
        await server.say("alice", "send it")
        await server.until_said("(not sent: a.txt: IRC carries no files)")
        assert server.texts()[0] == "Here it is."


async def test_g8_a_message_that_a_bouncer_repeats_is_one_turn(tmp_path: Path) -> None:
    server = {"capabilities": "account-tag server-time"}
    async with chat(tmp_path, say("once"), say("next"), server=server) as (g, fake):
        for _ in range(3):
            await fake.say("alice", "hi", time="2999-01-02T03:04:05.000Z")
        await fake.until_said("once")
        fake.hang_up()
        await fake.until(lambda: fake.connections == 2 and fake.nick)
        await fake.until(lambda: any(line.startswith("CAP END") for line in fake.lines[-5:]))
        await fake.say("alice", "hi", time="2999-01-02T03:04:05.000Z")
        await fake.say("alice", "more", time="2999-01-02T03:04:06.000Z")
        await fake.until_said("next")
        assert prompts(g) == ["hi", "more"]


async def test_g1_nobody_may_talk_until_somebody_is_listed(tmp_path: Path) -> None:
    async with chat(tmp_path, process=True, allowed_users=[]) as (g, server):
        assert "nobody may talk to it yet; list people in platforms.irc.allowed_users" in g.stderr
        await server.say("alice", "hi")
        await server.say("alice", "!status")
        assert await g.stop() == 0
        assert not server.texts() and not g.provider.requests


# -- failures ----------------------------------------------------------------------------------


def on_first(start: str, fault: str) -> Any:
    """The fault for the first line that begins so."""
    left = [fault]
    return lambda line: left.pop() if line.startswith(start) and left else ""


async def test_a_message_that_was_not_confirmed_is_repeated_with_a_mark(tmp_path: Path) -> None:
    async with chat(tmp_path, say("the answer")) as (_, server):
        server.fault = on_first("PRIVMSG", "after")
        await server.say("alice", "hi")
        await server.until_said(texts.REPEATED)
        await server.until_said("the answer", count=2)
        assert server.texts() == ["the answer", texts.REPEATED, "the answer"]


async def test_who_has_left_gets_the_answer_when_they_are_back(tmp_path: Path) -> None:
    gate = Gate()
    async with chat(tmp_path, say("the answer").hold(gate, n=0)) as (_, server):
        await server.say("alice", "hi")
        await gate.reached()
        server.leave("alice")
        server.add_person("alice", account="Mallory")  # somebody else takes the nickname
        gate.open()
        await server.until(lambda: sum(line == "WHOIS alice" for line in server.lines) >= 2)
        assert not server.texts()
        server.leave("alice")
        server.add_person("alice", account="Alice")
        await server.until_said("the answer")
        assert server.texts() == ["the answer"]


async def test_f84_a_channel_that_does_not_take_messages_is_given_up(tmp_path: Path) -> None:
    settings = {"channels": ["#ours"], "allowed_chats": ["#ours"]}
    async with chat(tmp_path, say("lost"), say("back"), **settings) as (g, server):
        await server.until_joined("#ours")
        server.fault = on_first("PRIVMSG", "404")
        await server.say("alice", "hermes: hi", to="#ours")
        await until_failed(g)
        await server.say("alice", "hermes: again", to="#ours")
        await server.until_said("back")
        assert server.texts() == ["back"]


async def test_a_silent_server_is_left_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_irc_connection, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(_irc_connection, "CONNECT_SECONDS", 2.0)
    async with chat(tmp_path, say("here")) as (_, server):
        server.silent = True
        await server.until(lambda: server.connections >= 2)
        server.silent = False
        await server.until(lambda: server.connections >= 3 or server._welcomed)
        await server.until(lambda: server._welcomed)
        await server.say("alice", "hi")
        await server.until_said("here")


async def test_a_taken_nickname_gets_an_underscore_and_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_irc_connection, "QUIET_SECONDS", 0.2)
    server = {"taken": {"hermes"}}
    settings = {"channels": ["#ours"], "allowed_chats": ["#ours"]}
    async with chat(tmp_path, say("one"), say("two"), server=server, **settings) as (_, fake):
        await fake.until_joined("#ours")
        await fake.say("alice", "hermes_: hi", to="#ours")
        await fake.until_said("one")
        fake.taken.clear()
        await fake.until(lambda: fake.nick == "hermes")
        await fake.say("alice", "hermes: hi", to="#ours")
        await fake.until_said("two")


async def test_passwords_are_sent_and_shown_nowhere(tmp_path: Path) -> None:
    env = {"IRC_SASL_PASSWORD": PASSWORD, "IRC_SERVER_PASSWORD": PASSWORD}
    server = {"password": PASSWORD}
    async with chat(tmp_path, say("here"), server=server, env=env, process=True) as (g, fake):
        await fake.say("alice", "hi")
        await fake.until_said("here")
        assert fake._account == "hermes"
        assert await g.stop() == 0
        assert "QUIT :bye" in fake.lines


@pytest.mark.parametrize(
    ("server", "env"),
    [
        ({}, {"IRC_SASL_PASSWORD": "wrong password 123"}),
        ({"capabilities": "server-time multi-prefix"}, {"IRC_SASL_PASSWORD": PASSWORD}),
        ({"capabilities": ""}, {"IRC_SASL_PASSWORD": PASSWORD}),
        ({"password": PASSWORD}, {"IRC_SERVER_PASSWORD": "wrong password 123"}),
    ],
)
async def test_f91_a_refused_password_turns_it_off(
    tmp_path: Path, server: dict[str, Any], env: dict[str, str]
) -> None:
    async with chat(tmp_path, server=server, env=env) as (g, _):
        status = g.service.status.platforms["irc"]
        assert (status.state, status.error_code) == ("fatal", "unauthorized")


@pytest.mark.parametrize(
    ("settings", "env"),
    [
        ({}, {"IRC_SERVER": "irc.example.org", "IRC_SASL_PASSWORD": PASSWORD}),
        ({"proxy": "http://127.0.0.1:1"}, {}),
        ({"nickname": "two words"}, {}),
        ({"channels": ["#a\r\nQUIT"]}, {}),
    ],
)
async def test_settings_that_cannot_work_turn_it_off(
    tmp_path: Path, settings: dict[str, Any], env: dict[str, str]
) -> None:
    async with chat(tmp_path, env=env, **settings) as (g, _):
        status = g.service.status.platforms["irc"]
        assert (status.state, status.error_code) == ("fatal", "unconfigured")


async def test_a_kill_after_the_message_was_stored_is_one_turn(tmp_path: Path) -> None:
    gate = Gate()
    steps = [say("never").hold(gate, n=0), say("the answer")]
    async with chat(tmp_path, *steps, process=True) as (g, server):
        await server.say("alice", "hi")
        await gate.reached()
        await g.kill()
        gate.open()
        await g.start()
        await server.until_said("the answer")
        assert len(g.provider.requests) == 2 and server.texts() == ["the answer"]


async def test_replies_of_running_turns_go_out_while_it_stops(tmp_path: Path) -> None:
    gate = Gate()
    async with chat(tmp_path, say("last words").hold(gate, n=0), process=True) as (g, server):
        await server.say("alice", "hi")
        await gate.reached()
        g.process.terminate()
        gate.open()
        assert await g.wait() == 0
        assert server.texts() == ["last words"]


async def test_setup_tries_the_server_and_saves_it(tmp_path: Path) -> None:
    async with irc_server() as fake:
        home = Home(tmp_path)
        home.configure(platforms={"irc": {"port": fake.port, "tls": False}})
        command = ["gateway", "setup", "irc"]
        wrong = await run_hermes(command, home, stdin="127.0.0.1\nwrong password 123\n")
        assert wrong.rc == 2 and "Nothing was saved" in wrong.stderr
        assert not (home.path / ".env").exists()
        done = await run_hermes(command, home, stdin=f"127.0.0.1\n{PASSWORD}\n")
        assert done.rc == 0 and "The settings work: hermes on 127.0.0.1." in done.stdout
        assert PASSWORD not in done.stdout + done.stderr
        assert "platforms.irc.allowed_users" in done.stdout
        saved = (home.path / ".env").read_text()
        assert "IRC_SERVER=" in saved and PASSWORD in saved


async def test_tls_is_checked_against_the_known_authorities(tmp_path: Path) -> None:
    name = "/CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    command = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj {name}"
    subprocess.run(
        [*command.split(), "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    async with irc_server(context=context) as fake:
        home = Home(tmp_path)
        home.configure(platforms={"irc": {"port": fake.port}})
        command_line = ["gateway", "setup", "irc"]
        unknown = await run_hermes(command_line, home, stdin="127.0.0.1\n")
        assert unknown.rc == 2 and "SSLCertVerificationError" in unknown.stderr
        home.env["SSL_CERT_FILE"] = str(tmp_path / "cert.pem")
        known = await run_hermes(command_line, home, stdin="127.0.0.1\n")
        assert known.rc == 0, known.stderr
