"""Mail on loopback: a mailbox over IMAP, enough for imap-tools, and a real SMTP server."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session

ADDRESS = "bot@kit.example"
PASSWORD = "kit-mail-password-0123456789"
OWNER = "owner@kit.example"
AUTHSERV = "mx.kit.example"


@dataclass
class Stored:
    number: int
    data: bytes
    flags: set[str] = field(default_factory=set)


def compose(text: str = "", *, sender: str = OWNER, vouched: bool = True, **more: Any) -> bytes:
    """A mail; further headers by their names, `_` for `-`."""
    mail = EmailMessage()
    if vouched:
        domain = sender.rpartition("@")[2].rstrip(">")
        mail["Authentication-Results"] = f"{AUTHSERV}; dmarc=pass header.from={domain}"
    files = more.pop("files", {})
    html = more.pop("html", "")
    headers = {
        "From": sender,
        "To": ADDRESS,
        "Subject": "A question",
        "Date": formatdate(),
        "Message-ID": f"<{time.monotonic_ns()}@kit.example>",
    } | {name.replace("_", "-"): value for name, value in more.items()}
    for name, value in headers.items():
        if value is not None:
            mail[name] = value
    if text or not html:
        mail.set_content(text)
        if html:
            mail.add_alternative(html, subtype="html")
    else:
        mail.set_content(html, subtype="html")
    for name, data in files.items():
        mail.add_attachment(data, maintype="text", subtype="plain", filename=name)
    return mail.as_bytes(policy=policy.SMTP)


class MailServer:
    """`deliver` is a mail that arrives; `sent` is what was handed over by SMTP, in order."""

    def __init__(self, *, idle: bool = True) -> None:
        self.idle = idle
        self.inbox: list[Stored] = []
        self.sent: list[EmailMessage] = []
        self.validity = 7
        self.imap_port = 0
        self.smtp_port = 0
        self.password = PASSWORD
        self.logins = 0
        self.commands: list[str] = []
        self.smtp_fault: Callable[[str], str | None] = lambda command: None
        """What SMTP answers to a command instead; empty: it hangs up."""
        self.hang_up_after_data = 0
        self._changed = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self._announced: dict[asyncio.StreamWriter, int] = {}
        """How many mails each connection knows of."""

    async def deliver(self, data: bytes) -> int:
        async with self._changed:
            number = (self.inbox[-1].number if self.inbox else 0) + 1
            self.inbox.append(Stored(number, data))
            self._changed.notify_all()
        return number

    async def until(self, test: Callable[[], Any], timeout: float = 90) -> None:
        try:
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(test)
        except TimeoutError:
            shown = [(m["To"], read_text(m)) for m in self.sent]
            raise AssertionError(f"it did not happen; sent: {shown}") from None

    async def until_sent(self, text: str) -> EmailMessage:
        def find() -> list[EmailMessage]:
            return [m for m in self.sent if read_text(m) == text]

        await self.until(find)
        return find()[-1]

    def drop_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    # -- IMAP ------------------------------------------------------------------------------------

    async def serve_imap(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        writer.write(b"* OK kit ready\r\n")
        try:
            while line := await reader.readline():
                tag, _, command = line.decode().strip().partition(" ")
                if not await self._answer(tag, command, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            with suppress(Exception):
                writer.close()

    async def _answer(
        self, tag: str, command: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        word = command.split()[0].upper()
        async with self._changed:
            self.commands.append(command if word != "LOGIN" else word)
            self._changed.notify_all()
        lines: list[bytes] = []
        status = "OK done"
        if word == "CAPABILITY":
            lines.append(b"* CAPABILITY IMAP4rev1 " + (b"IDLE" if self.idle else b"NOTHING"))
        elif word == "LOGIN":
            self.logins += 1
            if f'"{self.password}"' not in command:
                status = "NO [AUTHENTICATIONFAILED] Invalid credentials"
        elif word in ("SELECT", "EXAMINE"):
            self._announced[writer] = -1
            lines.append(f"* OK [UIDVALIDITY {self.validity}] ok".encode())
        elif word == "STATUS":
            following = (self.inbox[-1].number if self.inbox else 0) + 1
            found = f'* STATUS "INBOX" (UIDVALIDITY {self.validity} UIDNEXT {following})'
            lines.append(found.encode())
        elif word == "UID":
            lines += self._answer_uid(command.split(" ", 2)[1:])
        elif word == "IDLE":
            await self._wait_idle(reader, writer)
        elif word == "LOGOUT":
            lines.append(b"* BYE")
        lines += self._announce(writer)
        writer.write(b"".join(row + b"\r\n" for row in lines) + f"{tag} {status}\r\n".encode())
        await writer.drain()
        return word != "LOGOUT"

    def _announce(self, writer: asyncio.StreamWriter) -> list[bytes]:
        """The line about new mail, told once per connection."""
        count = len(self.inbox)
        if self._announced.get(writer, count) >= count:
            return []
        self._announced[writer] = count
        return [f"* {count} EXISTS".encode()]

    def _answer_uid(self, words: list[str]) -> list[bytes]:
        name, rest = words[0].upper(), words[1]
        if name == "SEARCH":
            first = int(re.search(r"UID (\d+):", rest)[1])  # type: ignore[index]
            unseen = "UNSEEN" in rest
            found = [
                m.number
                for m in self.inbox
                if m.number >= first and not (unseen and "\\Seen" in m.flags)
            ]
            last = [m.number for m in self.inbox[-1:] if not unseen]  # `n:*` has the last one
            numbers = " ".join(map(str, sorted({*found, *last})))
            return [f"* SEARCH {numbers}".encode()]
        number = int(rest.split()[0])
        mail = next((m for m in self.inbox if m.number == number), None)
        if mail is None:
            return []
        if name == "STORE":
            mail.flags |= set(re.findall(r"\\\w+", rest))
            return []
        data = mail.data
        part = "HEADER" if "HEADER" in rest else ""
        if part:
            data = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
        head = (
            f"* {self.inbox.index(mail) + 1} FETCH (UID {number} FLAGS ({' '.join(mail.flags)}) "
            f"RFC822.SIZE {len(mail.data)} BODY[{part}] {{{len(data)}}}\r\n"
        )
        return [head.encode() + data + b")"]

    async def _wait_idle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(row + b"\r\n" for row in (b"+ idling", *self._announce(writer))))
        done = asyncio.create_task(reader.readline())

        async def report() -> None:
            async with self._changed:
                await self._changed.wait_for(lambda: len(self.inbox) > self._announced[writer])
            writer.write(b"".join(row + b"\r\n" for row in self._announce(writer)))

        reporting = asyncio.create_task(report())
        try:
            await done
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)

    # -- SMTP ------------------------------------------------------------------------------------

    def authenticate(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        return AuthResult(success=data.password == self.password.encode())

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if not session.authenticated:
            return "530 Log in first"
        if fault := self.smtp_fault("RCPT"):
            return fault
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if fault := self.smtp_fault("DATA"):
            return fault
        assert isinstance(envelope.content, bytes)
        async with self._changed:
            self.sent.append(message_from_bytes(envelope.content, policy=policy.default))  # type: ignore[arg-type]
            self._changed.notify_all()
        if self.hang_up_after_data:
            self.hang_up_after_data -= 1
            assert server.transport is not None
            server.transport.abort()
        return "250 OK"


def read_text(mail: EmailMessage) -> str:
    """The plain part as it is shown."""
    body = mail.get_body(("plain",))
    return "" if body is None else str(body.get_content()).replace("\r\n", "\n").strip()


@asynccontextmanager
async def mail_server(*, idle: bool = True) -> AsyncIterator[MailServer]:
    server = MailServer(idle=idle)
    loop = asyncio.get_running_loop()
    imap = await asyncio.start_server(server.serve_imap, "127.0.0.1", 0)

    def make_smtp() -> SMTP:
        return SMTP(
            server,
            authenticator=server.authenticate,
            auth_require_tls=False,
            loop=loop,
        )

    smtp = await loop.create_server(make_smtp, "127.0.0.1", 0)
    server.imap_port = imap.sockets[0].getsockname()[1]
    server.smtp_port = smtp.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        server.drop_connections()
        imap.close()
        smtp.close()
