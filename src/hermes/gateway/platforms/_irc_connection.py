"""One connection to an IRC server: registration, life signs, pace, and answers to what was sent."""

import asyncio
import base64
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec import Struct

from hermes.gateway.adapter import ConnectionFailure, SendFailure
from hermes.gateway.platforms._irc_protocol import IrcLine, fold_name, format_line, parse_line

log = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
QUIET_SECONDS = 60.0
"""After so long without a line the server is asked for a sign of life; after twice, it is dead."""
ANSWER_SECONDS = 30.0
BURST_LINES = 5
LINES_PER_SECOND = 2.0
NOT_CONNECTED = "IRC is not connected"
MAX_WAITING = 200
"""Messages that wait to be looked at; further ones are a flood and are left out."""
_LINE_LIMIT = 65_536
_CAPABILITIES = ("message-tags", "account-tag", "server-time")
_MAX_NICK_TRIES = 8
_GONE = frozenset({"403", "404", "405", "442"})
_BUSY = frozenset({"263", "439"})
_ABSENT = frozenset({"401", "402", "406"})
_JOIN_ERRORS = frozenset({"403", "405", "407", "471", "473", "474", "475", "476", "477"})
_SASL_ERRORS = frozenset({"902", "904", "905", "906", "908"})


class IrcAccess(Struct, frozen=True):
    """Where to connect, and as whom."""

    server: str
    port: int
    tls: bool
    nickname: str
    channels: tuple[str, ...]
    server_password: str = ""
    sasl_password: str = ""


class Whois(Struct):
    """What the server says about a nickname; no source: nobody has it."""

    source: str = ""
    account: str = ""


class LinePace:
    """Five lines at once, then two a second."""

    def __init__(self) -> None:
        self._next = 0.0

    def reserve_line(self, now: float) -> float:
        """The seconds until the next line may be sent, which is then taken."""
        step = 1 / LINES_PER_SECOND
        self._next = max(self._next, now - BURST_LINES * step) + step
        return max(0.0, self._next - now)


class IrcConnection:
    """Everything it sends in the name of people goes through one pace. A message counts as sent
    when the server has answered the ping behind it."""

    def __init__(self, access: IrcAccess) -> None:
        self.nick = access.nickname
        self.mapping = "rfc1459"
        self.channel_types = "#&"
        self.capabilities: frozenset[str] = frozenset()
        self.on_departure: Callable[[str], None] = lambda nick: None
        """Called with a nickname that somebody may have given up."""
        self._access = access
        self._offered: set[str] = set()
        self._has_account = False
        self._messages: asyncio.Queue[IrcLine | None] = asyncio.Queue()
        self._registered = asyncio.Event()
        self._reader: asyncio.StreamReader
        self._reading: asyncio.Task[None]
        self._writer: asyncio.StreamWriter | None = None
        self._send_lock = asyncio.Lock()
        self._pong: tuple[str, asyncio.Future[None]] | None = None
        self._target = ""
        self._error: IrcLine | None = None
        self._whois: tuple[str, Whois, asyncio.Future[Whois]] | None = None
        self._pace = LinePace()

    async def open(self) -> None:
        access = self._access
        context: Any = None
        if access.tls:
            import ssl

            context = ssl.create_default_context()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                self._reader, self._writer = await asyncio.open_connection(
                    access.server, access.port, ssl=context, limit=_LINE_LIMIT
                )
        except (OSError, TimeoutError) as error:
            text = f"{access.server}:{access.port} cannot be reached ({type(error).__name__})"
            raise ConnectionFailure("unreachable", text) from None
        self._write("CAP", "LS", "302")
        if access.server_password:
            self._write("PASS", text=access.server_password)
        self._write("NICK", self.nick)
        self._write("USER", access.nickname, "0", "*", text="Hermes")
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def wait_until_registered(self) -> None:
        """ConnectionFailure when the server does not let us in."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._registered.wait()
        except TimeoutError:
            raise ConnectionFailure("unreachable", "the server did not let us in") from None
        if self._reading.done():
            await self._reading

    def join_channels(self) -> None:
        for channel in self._access.channels:
            self._write("JOIN", *channel.split(" ", 1))

    @property
    def is_open(self) -> bool:
        """Whether something can be sent."""
        return self._writer is not None and self._registered.is_set() and not self._reading.done()

    async def next_message(self) -> IrcLine:
        """A message of somebody; ConnectionFailure when the connection has ended."""
        line = await self._messages.get()
        if line is None:
            await self._reading
            raise ConnectionFailure("unreachable", "the connection ended")
        return line

    async def _read(self) -> None:
        try:
            await self._read_lines()
        finally:  # whoever waits learns that it is over
            self._registered.set()
            self._messages.put_nowait(None)
            self._fail_waiting()

    async def _read_lines(self) -> None:
        was_quiet = False
        while True:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    raw = await self._reader.readline()
            except TimeoutError:
                if was_quiet:
                    raise ConnectionFailure("unreachable", "the server is silent") from None
                was_quiet = True
                self._write("PING", text="alive")
                self._reclaim_nick()
                continue
            except (OSError, ValueError) as error:
                text = f"the connection broke ({type(error).__name__})"
                raise ConnectionFailure("unreachable", text) from None
            if not raw.endswith(b"\n"):
                raise ConnectionFailure("unreachable", "the server closed the connection")
            was_quiet = False
            self._handle_line(parse_line(raw))

    def _handle_line(self, line: IrcLine) -> None:
        match line.command:
            case "PING":
                self._write("PONG", text=line.text)
            case "PONG":
                if self._pong is not None and line.text == self._pong[0]:
                    _resolve(self._pong[1], None)
            case "PRIVMSG":
                self._take_message(line)
            case "NICK" | "QUIT":
                self._follow_person(line)
            case "ERROR" if "password" in line.text.lower() and not self._registered.is_set():
                raise _explain_denial(line)
            case "ERROR":
                raise ConnectionFailure("unreachable", f"the server said: {line.text[:200]}")
            case "CAP" | "AUTHENTICATE":
                self._negotiate(line)
            case command if command.isdecimal():
                self._handle_numeric(line)

    def _take_message(self, line: IrcLine) -> None:
        if fold_name(line.nick, self.mapping) == fold_name(self.nick, self.mapping):
            return
        if self._messages.qsize() < MAX_WAITING:
            self._messages.put_nowait(line)
        else:
            log.warning("irc: a message was left out, because %s others wait", MAX_WAITING)

    def _follow_person(self, line: IrcLine) -> None:
        if fold_name(line.nick, self.mapping) != fold_name(self.nick, self.mapping):
            self.on_departure(line.nick)
        elif line.command == "NICK":
            self.nick = line.text

    # -- registration ------------------------------------------------------------------------

    def _negotiate(self, line: IrcLine) -> None:
        match line.command, line.get_param(1):
            case "CAP", "LS":
                self._offered |= {word.partition("=")[0] for word in line.text.split()}
                if line.get_param(2) != "*":
                    self._request_capabilities()
            case "CAP", "ACK":
                self.capabilities |= frozenset(line.text.split())
                if "sasl" in self.capabilities:
                    self._write("AUTHENTICATE", "PLAIN")
                else:
                    self._write("CAP", "END")
            case "CAP", "NAK":
                self._write("CAP", "END")
            case "AUTHENTICATE", _ if line.get_param(0) == "+":
                self._authenticate()

    def _request_capabilities(self) -> None:
        wanted = [name for name in _CAPABILITIES if name in self._offered]
        if self._access.sasl_password:
            wanted.append("sasl")  # refused where it is not offered
        if wanted:
            self._write("CAP", "REQ", text=" ".join(wanted))
        else:
            self._write("CAP", "END")

    def _authenticate(self) -> None:
        name, password = self._access.nickname, self._access.sasl_password
        token = base64.b64encode(f"{name}\0{name}\0{password}".encode()).decode()
        pieces = [token[at : at + 400] for at in range(0, len(token), 400)]
        if len(pieces[-1]) == 400:
            pieces.append("+")
        for piece in pieces:
            self._write("AUTHENTICATE", piece)

    def _handle_numeric(self, line: IrcLine) -> None:
        match line.command:
            case "001":
                if self._access.sasl_password and not self._has_account:
                    text = "the server took no SASL; remove IRC_SASL_PASSWORD or use another server"
                    raise ConnectionFailure("unauthorized", text, fatal=True)
                self.nick = line.get_param(0) or self.nick
            case "005":
                self._read_features(line)
            case "376" | "422":
                self._registered.set()
            case "432" if not self._registered.is_set():
                text = f"the server does not take the nickname {self.nick}; set another one"
                raise ConnectionFailure("unconfigured", text, fatal=True)
            case "433" | "436" | "437" if not self._registered.is_set():
                self._choose_other_nick()
            case "464" | "465":
                raise _explain_denial(line)
            case "903":
                self._has_account = True
                self._write("CAP", "END")
            case command if command in _SASL_ERRORS:
                text = "the server refused IRC_SASL_PASSWORD; set the one of the account"
                raise ConnectionFailure("unauthorized", text, fatal=True)
            case _:
                self._handle_answer(line)

    def _read_features(self, line: IrcLine) -> None:
        for word in line.params[1:]:
            name, _, value = word.partition("=")
            if name == "CASEMAPPING":
                self.mapping = value
            elif name == "CHANTYPES" and value:
                self.channel_types = value

    def _choose_other_nick(self) -> None:
        if len(self.nick) - len(self._access.nickname) >= _MAX_NICK_TRIES:
            text = f"the nickname {self._access.nickname} is taken, and others like it too"
            raise ConnectionFailure("conflict", text, wait=60.0)
        self.nick += "_"
        self._write("NICK", self.nick)

    def _reclaim_nick(self) -> None:
        if self._registered.is_set() and self.nick != self._access.nickname:
            self._write("NICK", self._access.nickname)

    # -- answers -------------------------------------------------------------------------------

    def _handle_answer(self, line: IrcLine) -> None:
        name = fold_name(line.get_param(1), self.mapping)
        if self._whois is not None and name == fold_name(self._whois[0], self.mapping):
            _, found, waiter = self._whois
            match line.command:
                case "311":
                    nick, user, host = line.get_param(1), line.get_param(2), line.get_param(3)
                    found.source = f"{nick}!{user}@{host}"
                case "330":
                    found.account = line.get_param(2)
                case "318":
                    _resolve(waiter, found)
            return
        if line.command in _GONE | _BUSY | _ABSENT and self._target:
            if name == fold_name(self._target, self.mapping) or line.command in _BUSY:
                self._error = line
        elif line.command in _JOIN_ERRORS:
            log.warning("irc: %s cannot be joined: %s", line.get_param(1), line.text[:200])

    async def find_person(self, nick: str) -> Whois:
        """What the server knows about a nickname; SendFailure when it does not answer."""
        async with self._send_lock:
            await asyncio.sleep(self._pace.reserve_line(time.monotonic()))
            if not self.is_open:
                raise SendFailure("certain", NOT_CONNECTED)
            waiter: asyncio.Future[Whois] = asyncio.get_running_loop().create_future()
            self._whois = (nick, Whois(), waiter)
            try:
                self._write("WHOIS", nick)
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await waiter
            except (TimeoutError, ValueError, SendFailure):
                raise SendFailure("certain", f"the server knows nothing about {nick}") from None
            finally:
                self._whois = None

    async def send_lines(self, target: str, lines: list[str]) -> None:
        """Send messages to a channel or a nickname; SendFailure says what became of them."""
        async with self._send_lock:
            if not self.is_open:
                raise SendFailure("certain", NOT_CONNECTED)
            token = secrets.token_hex(8)
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._pong, self._target, self._error = (token, waiter), target, None
            try:
                for line in lines:
                    await asyncio.sleep(self._pace.reserve_line(time.monotonic()))
                    self._write("PRIVMSG", target, text=line)
                self._write("PING", text=token)
                async with asyncio.timeout(ANSWER_SECONDS):
                    await waiter
            except TimeoutError:
                raise SendFailure("ambiguous", "the server did not confirm the message") from None
            except ValueError as error:
                raise SendFailure("rejected", str(error)) from None
            finally:
                self._pong, self._target = None, ""
            if self._error is not None:
                raise _explain_error(self._error)

    def _write(self, command: str, *params: str, text: str | None = None) -> None:
        """What is written to a connection that has ended goes nowhere: its reader tells."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(format_line(command, *params, text=text))

    async def close(self) -> None:
        """Say goodbye and end; who waits for an answer will not get one."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if not writer.is_closing():
            writer.write(format_line("QUIT", text="bye"))
        writer.close()
        self._reading.cancel()
        await asyncio.wait({self._reading})
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()

    def _fail_waiting(self) -> None:
        lost = SendFailure("ambiguous", "the connection broke before the server confirmed")
        for waiter in (self._pong and self._pong[1], self._whois and self._whois[2]):
            if waiter is not None and not waiter.done():
                waiter.set_exception(lost)


def _resolve(waiter: "asyncio.Future[Any]", value: Any) -> None:
    if not waiter.done():
        waiter.set_result(value)


def _explain_denial(line: IrcLine) -> ConnectionFailure:
    text = f"the server refused us: {line.text[:200]}"
    return ConnectionFailure("unauthorized", text, fatal=True)


def _explain_error(line: IrcLine) -> SendFailure:
    text = f"the server said: {line.text[:200]}"
    if line.command in _BUSY:
        return SendFailure("wait", text, wait=5.0)
    return SendFailure("gone" if line.command in _GONE else "certain", text)
