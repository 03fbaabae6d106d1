"""An IRC server with services on loopback: people are simulated, and what the bot sent is kept."""

from __future__ import annotations

import asyncio
import base64
import itertools
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

SERVER = "irc.kit"
NICK = "hermes"
PASSWORD = "kit-irc-password-0123456789"


@dataclass
class Person:
    nick: str
    account: str = ""
    user: str = "~u"
    host: str = "host.example"

    @property
    def source(self) -> str:
        return f"{self.nick}!{self.user}@{self.host}"


@dataclass
class Said:
    """A message of the bot."""

    target: str
    text: str


@dataclass
class Irc:
    """`say` is a person writing; `said` is what the bot wrote, in order."""

    capabilities: str = "message-tags account-tag server-time sasl=PLAIN"
    people: dict[str, Person] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    said: list[Said] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    joined: set[str] = field(default_factory=set)
    password: str = ""
    """What PASS must say."""
    silent: bool = False
    """Nothing is answered any more."""
    fault: Callable[[str], str] = lambda line: ""
    """What happens to a line of the bot: `drop` (hang up before), `after` (hang up afterwards), or
    a numeric instead."""
    nick: str = ""
    port: int = 0
    connections: int = 0

    def __post_init__(self) -> None:
        self._changed = asyncio.Condition()
        self._ids = itertools.count(1)
        self._writer: asyncio.StreamWriter | None = None
        self._enabled: set[str] = set()
        self._account = ""
        self._negotiating = False
        self._welcomed = False
        self._passed = False

    # -- people ------------------------------------------------------------------------------

    def add_person(self, nick: str, **more: str) -> Person:
        self.people[nick.lower()] = person = Person(nick, **more)
        return person

    async def say(
        self, nick: str, text: str, *, to: str = "", kind: str = "PRIVMSG", **tags: str
    ) -> None:
        person = self.people[nick.lower()]
        if "account-tag" in self._enabled and person.account:
            tags["account"] = person.account
        if "message-tags" in self._enabled:
            tags.setdefault("msgid", f"m{next(self._ids)}")
        shown = ";".join(f"{name}={value}" for name, value in tags.items())
        prefix = f"@{shown} " if shown and self._enabled else ""
        self._send(f"{prefix}:{person.source} {kind} {to or self.nick} :{text}")

    def leave(self, nick: str) -> None:
        person = self.people.pop(nick.lower())
        self._send(f":{person.source} QUIT :bye")

    # -- looking -----------------------------------------------------------------------------

    def texts(self, target: str = "") -> list[str]:
        return [s.text for s in self.said if not target or s.target == target]

    async def until(self, test: Callable[[], Any], timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(test)
        except TimeoutError:
            raise AssertionError(f"it did not happen; said: {self.said}") from None

    async def until_said(self, text: str, *, count: int = 1) -> Said:
        await self.until(lambda: self.texts().count(text) >= count)
        return next(s for s in reversed(self.said) if s.text == text)

    async def until_joined(self, channel: str) -> None:
        await self.until(lambda: channel in self.joined)

    # -- the server --------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer, self._enabled, self._account = writer, set(), ""
        self._negotiating = self._welcomed = self._passed = False
        self.nick = ""
        self.joined.clear()
        self.connections += 1
        try:
            while raw := await reader.readline():
                assert raw.endswith(b"\r\n") and len(raw) <= 512, raw
                line = raw.decode().removesuffix("\r\n")
                assert not set(line) & set("\r\n\0\x01"), line
                async with self._changed:
                    self.lines.append(line)
                    self._handle(line)
                    self._changed.notify_all()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def hang_up(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()

    def _send(self, line: str) -> None:
        if self._writer is not None and not self.silent:
            self._writer.write(line.encode() + b"\r\n")

    def _number(self, code: str, rest: str) -> None:
        self._send(f":{SERVER} {code} {self.nick or '*'} {rest}")

    def _handle(self, line: str) -> None:
        fault = self.fault(line)
        if fault == "drop":
            self.hang_up()
            return
        head, _, text = line.partition(" :")
        command, *params = head.split()
        if fault.isdecimal():
            self._number(fault, f"{params[0]} :refused by the test")
            return
        match command:
            case "CAP" if not self.capabilities:
                self._number("421", "CAP :Unknown command")
            case "CAP":
                self._negotiate(params, text)
            case "PASS":
                self._passed = text == self.password
            case "AUTHENTICATE":
                self._authenticate(params[0])
            case "NICK":
                self._set_nick(params[0])
            case "USER":
                self._welcome()
            case "PING":
                self._send(f":{SERVER} PONG {SERVER} :{text or params[0]}")
            case "JOIN":
                self.joined.add(params[0].lower())
                self._send(f":{self.nick}!~h@kit JOIN {params[0]}")
            case "WHOIS":
                self._answer_whois(params[0])
            case "PRIVMSG":
                self._deliver(params[0], text)
        if fault == "after":
            self.hang_up()

    @property
    def _offered(self) -> set[str]:
        return {word.partition("=")[0] for word in self.capabilities.split()}

    def _negotiate(self, params: list[str], text: str) -> None:
        match params[0]:
            case "LS":
                self._negotiating = True
                first, _, rest = self.capabilities.partition(" ")
                self._send(f":{SERVER} CAP * LS * :{first}")
                self._send(f":{SERVER} CAP * LS :{rest}")
            case "REQ" if not set(text.split()) <= self._offered:
                self._send(f":{SERVER} CAP * NAK :{text}")
            case "REQ":
                self._enabled |= set(text.split())
                self._send(f":{SERVER} CAP * ACK :{text}")
            case "END":
                self._negotiating = False
                self._welcome()

    def _authenticate(self, word: str) -> None:
        if word == "PLAIN":
            self._send("AUTHENTICATE +")
            return
        _, name, password = base64.b64decode(word).decode().split("\0")
        if password == PASSWORD:
            self._account = name
            self._number("903", ":SASL authentication successful")
        else:
            self._number("904", ":SASL authentication failed")

    def _set_nick(self, nick: str) -> None:
        if nick.lower() in self.taken:
            self._number("433", f"{nick} :Nickname is already in use")
            return
        if self._welcomed:
            self._send(f":{self.nick}!~h@kit NICK :{nick}")
        self.nick = nick
        self._welcome()

    def _welcome(self) -> None:
        if self._negotiating or self._welcomed or not self.nick:
            return
        if not any(line.startswith("USER ") for line in self.lines[-12:]):
            return
        if self.password and not self._passed:
            self._number("464", ":Password incorrect")
            return
        self._welcomed = True
        self._number("001", ":Welcome")
        self._number("005", "CASEMAPPING=rfc1459 CHANTYPES=# NICKLEN=16 :are supported")
        self._number("422", ":MOTD File is missing")

    def _answer_whois(self, nick: str) -> None:
        person = self.people.get(nick.lower())
        if person is None:
            self._number("401", f"{nick} :No such nick/channel")
        else:
            self._number("311", f"{person.nick} {person.user} {person.host} * :A person")
            if person.account:
                self._number("330", f"{person.nick} {person.account} :is logged in as")
        self._number("318", f"{nick} :End of /WHOIS list")

    def _deliver(self, target: str, text: str) -> None:
        target = target.lower()
        if target.startswith("#") and target not in self.joined:
            self._number("404", f"{target} :Cannot send to channel")
        elif not target.startswith("#") and target not in self.people:
            self._number("401", f"{target} :No such nick/channel")
        else:
            assert len(text.encode()) <= 400, text
            self.said.append(Said(target, text))


@asynccontextmanager
async def irc(*, context: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[Irc]:
    fake = Irc(**options)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0, ssl=context)
    fake.port = server.sockets[0].getsockname()[1]
    fake.add_person("alice", account="Alice")
    try:
        yield fake
    finally:
        server.close()
        if fake._writer is not None:
            fake._writer.close()
        await asyncio.sleep(0)
