"""The mailbox over IMAP and the way out over SMTP."""

import socket
from contextlib import suppress
from email.message import EmailMessage, Message
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from typing_extensions import override

from hermes.config.api_server import is_loopback
from hermes.config.platforms import PlatformSettings
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import ConnectionFailure, FailureKind, SendFailure

CALL_SECONDS = 30.0
_IMPLICIT_TLS = (993, 465)
_BUSY = (b"[UNAVAILABLE]", b"[LIMIT]", b"[INUSE]", b"[SERVERBUG]")
"""Reasons of a refused login that pass."""
_NEEDED = "run: pip install 'hermes-runtime[email]'"


class EmailSettings(PlatformSettings, frozen=True):
    address: str = ""
    imap_host: str = ""
    imap_port: int = 993
    smtp_host: str = ""
    smtp_port: int = 587
    tls: Literal["auto", "none"] = "auto"
    """`none` only to servers on this machine."""
    authserv_id: str = ""
    """The name of our own mail server in `Authentication-Results`."""
    trust_from: bool = False
    """Believe the From line of every mail."""
    poll_seconds: Annotated[float, Meta(gt=0)] = 60.0
    """How often to look, where the server cannot tell of new mail."""

    @override
    def find_gap(self) -> str:
        if self.authserv_id or self.trust_from:
            return ""
        return "no sender counts before authserv_id is set; see docs/gateway.md"


class MailAccount(Struct, frozen=True):
    address: str
    password: str
    imap: tuple[str, int]
    smtp: tuple[str, int]
    uses_tls: bool

    def __repr__(self) -> str:
        return f"<MailAccount {self.address}>"


def read_account(settings: EmailSettings, secrets: Secrets) -> MailAccount:
    """The account; ConfigError when something is not set."""
    advice = "Run: hermes gateway setup email"

    def find(variable: str, value: str) -> str:
        found = secrets.get(variable) or value
        if not found:
            raise ConfigError(f"{variable} is not set. {advice}")
        return found

    def find_port(variable: str, value: int) -> int:
        given = secrets.get(variable) or str(value)
        if not given.isdecimal():
            raise ConfigError(f"{variable} is no number. Correct it and start again.")
        return int(given)

    return MailAccount(
        find("EMAIL_ADDRESS", settings.address).lower(),
        find(settings.token_env or "EMAIL_PASSWORD", ""),
        (
            find("EMAIL_IMAP_HOST", settings.imap_host),
            find_port("EMAIL_IMAP_PORT", settings.imap_port),
        ),
        (
            find("EMAIL_SMTP_HOST", settings.smtp_host),
            find_port("EMAIL_SMTP_PORT", settings.smtp_port),
        ),
        settings.tls != "none",
    )


def check_encryption(account: MailAccount) -> None:
    """ConnectionFailure when the password would leave this machine unencrypted."""
    for host, _ in (account.imap, account.smtp):
        if not account.uses_tls and not is_loopback(host):
            text = f"tls is none, but {host} is another machine; remove tls from platforms.email"
            raise ConnectionFailure("unconfigured", text, fatal=True)


class MailboxFailure(Exception):
    """The mailbox cannot be used. `refused`: the server does not accept the password."""

    def __init__(self, text: str, *, refused: bool = False) -> None:
        super().__init__(text)
        self.refused = refused


class Mailbox:
    """The inbox. Every method blocks and belongs into a thread; one runs at a time, but
    `wake` may be called from elsewhere."""

    def __init__(self, account: MailAccount) -> None:
        self._account = account
        self._box: Any = None
        self.can_idle = False

    def open(self) -> None:
        import imaplib

        try:
            import imap_tools
        except ImportError:
            raise ConnectionFailure("missing_dependency", _NEEDED, fatal=True) from None
        account = self._account
        host, port = account.imap
        try:
            if not account.uses_tls:
                self._box = imap_tools.MailBoxUnencrypted(host, port, CALL_SECONDS)
            else:
                import ssl

                kind = imap_tools.MailBox if port in _IMPLICIT_TLS else imap_tools.MailBoxStartTls
                context = ssl.create_default_context()
                self._box = kind(host, port, CALL_SECONDS, ssl_context=context)
            self._box.login(account.address, account.password)
            _, rows = self._box.client.capability()
        except imap_tools.MailboxLoginError as error:
            is_busy = any(reason in repr(error.command_result).encode() for reason in _BUSY)
            text = "the mail server refuses the login"
            raise MailboxFailure(text, refused=not is_busy) from None
        except (OSError, imaplib.IMAP4.error, imap_tools.ImapToolsError) as error:
            raise _explain_break(error) from None
        self.can_idle = b"IDLE" in (rows[0] or b"").upper().split()

    def read_status(self) -> tuple[int, int]:
        """The validity of the mailbox's numbers, and the number that the next mail gets."""
        found = self._run(lambda: self._box.folder.status("INBOX", ("UIDVALIDITY", "UIDNEXT")))
        return int(found["UIDVALIDITY"]), int(found["UIDNEXT"])

    def list_numbers(self, after: int, *, unseen: bool = False) -> list[int]:
        criteria = f"{'UNSEEN ' if unseen else ''}UID {after + 1}:*"
        news = self._box.client.untagged_responses
        while True:
            # What the server tells of beside this answer it does not tell again while we wait.
            news.pop("EXISTS", None)
            found = self._run(lambda: self._box.uids(criteria, None))
            if "EXISTS" not in news:
                break
        return sorted(n for n in map(int, found) if n > after)

    def read_headers(self, number: int) -> tuple[Message, int] | None:
        """The headers and the size of a mail; None when it is gone."""
        found = self._fetch(number, headers_only=True)
        return None if found is None else (found.obj, int(found.size_rfc822 or 0))

    def read_mail(self, number: int) -> Any:
        return self._fetch(number, headers_only=False)

    def _fetch(self, number: int, *, headers_only: bool) -> Any:
        options = {"mark_seen": False, "headers_only": headers_only, "uid_list": str(number)}
        return self._run(lambda: next(iter(self._box.fetch(**options)), None))

    def mark_seen(self, number: int) -> None:
        self._run(lambda: self._box.flag(str(number), "\\Seen", True))

    def wait_for_news(self, seconds: float) -> None:
        """Until the server tells of something, or the time is over."""
        self._run(lambda: self._wait_idle(seconds))

    def _wait_idle(self, seconds: float) -> None:
        idle = self._box.idle
        with idle:
            # News that came together with the answer to IDLE are read already, and imap-tools
            # would look for them on the socket.
            if not self._has_unread_line():
                idle.poll(timeout=seconds)

    def _has_unread_line(self) -> bool:
        client = self._box.client
        timeout = client.sock.gettimeout()
        client.sock.settimeout(0)
        try:
            return bool(client.file.peek(1))
        except OSError:  # nothing there, said by TLS
            return False
        finally:
            client.sock.settimeout(timeout)

    def _run(self, act: Any) -> Any:
        import imaplib

        import imap_tools

        try:
            return act()
        except (OSError, imaplib.IMAP4.error, imap_tools.ImapToolsError, ValueError) as error:
            raise _explain_break(error) from None

    def wake(self) -> None:
        """End whatever waits for the server; the mailbox is then useless."""
        if self._box is not None:
            with suppress(OSError):
                self._box.client.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        box, self._box = self._box, None
        if box is not None:
            with suppress(OSError):
                box.client.shutdown()


def _explain_break(error: Exception) -> MailboxFailure:
    return MailboxFailure(f"the IMAP server cannot be reached ({type(error).__name__})")


async def send_mail(account: MailAccount, mail: EmailMessage, to: str) -> None:
    """Hand the mail over; SendFailure. Only what breaks off while the content is sent may have
    arrived."""
    try:
        import aiosmtplib
    except ImportError:
        raise SendFailure("certain", _NEEDED) from None
    smtp = _open_smtp(account)
    began = False
    try:
        await smtp.connect()
        await smtp.login(account.address, account.password)
        await smtp.mail(account.address)
        await smtp.rcpt(to)
        began = True
        await smtp.data(mail.as_bytes(policy=mail.policy.clone(linesep="\r\n")))
    except aiosmtplib.SMTPResponseException as error:
        raise SendFailure(
            _classify_answer(error), f"the SMTP server answered {error.code}"
        ) from None
    except (aiosmtplib.SMTPException, OSError) as error:
        text = f"the SMTP server cannot be reached ({type(error).__name__})"
        raise SendFailure("ambiguous" if began else "certain", text) from None
    finally:
        smtp.close()


def _open_smtp(account: MailAccount) -> Any:
    import aiosmtplib

    host, port = account.smtp
    is_implicit = account.uses_tls and port in _IMPLICIT_TLS
    return aiosmtplib.SMTP(
        hostname=host,
        port=port,
        timeout=CALL_SECONDS,
        use_tls=is_implicit,
        start_tls=account.uses_tls and not is_implicit,
        local_hostname=account.address.rpartition("@")[2],
    )


def _classify_answer(error: Any) -> FailureKind:
    import aiosmtplib

    if isinstance(error, aiosmtplib.SMTPAuthenticationError):
        return "fatal"
    if error.code < 500:
        return "certain"
    if isinstance(error, aiosmtplib.SMTPRecipientRefused):
        return "gone"
    return "rejected"


async def check_smtp(account: MailAccount) -> None:
    """Log in and leave; ConfigError."""
    import aiosmtplib

    smtp = _open_smtp(account)
    try:
        await smtp.connect()
        await smtp.login(account.address, account.password)
    except aiosmtplib.SMTPAuthenticationError:
        raise ConfigError("The SMTP server refuses the login. Nothing was saved.") from None
    except (aiosmtplib.SMTPException, OSError) as error:
        text = f"The SMTP server cannot be reached ({type(error).__name__})"
        raise ConfigError(f"{text}. Nothing was saved. Check smtp_host and smtp_port.") from None
    finally:
        smtp.close()
