"""E-mail: a mailbox whose new mail is answered in its thread."""

import asyncio
import logging
import mimetypes
import secrets as random_source
import time
from collections.abc import Callable
from email.message import EmailMessage, Message
from email.utils import formatdate, parsedate_to_datetime
from html import escape
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder
from hermes.config.private_files import replace_file
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import (
    Attachment,
    Capabilities,
    ConnectionFailure,
    Inbound,
    MenuCommand,
    Part,
    PendingStep,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.web_markup import render_web_html
from hermes.gateway.platforms._email_rules import (
    find_thread,
    is_authenticated,
    is_automatic,
    join_text,
    list_references,
    read_html_text,
    read_message_id,
    read_sender,
    shorten_references,
    strip_quote,
)
from hermes.gateway.platforms._email_servers import (
    EmailSettings,
    MailAccount,
    Mailbox,
    MailboxFailure,
    check_encryption,
    check_smtp,
    read_account,
    send_mail,
)

log = logging.getLogger(__name__)

IDLE_SECONDS = 45.0
"""How long the server may be silent before it is asked something."""
MOST_REPLIES = 10
REPLY_SECONDS = 3600.0
LARGEST_MAIL = 50_000_000
_SUBJECT = "Hermes"
_UNREADABLE = (ValueError, LookupError, TypeError, AssertionError)
"""What reading a mail raises whose parts are not what they say; UnicodeError is a ValueError."""
_UNREAD = "(The mail could not be read: its text is not in the encoding it names.)"


class EmailState(Struct):
    """What a restart must know."""

    validity: int = 0
    last: int = 0
    """The number of the last mail that was looked at."""
    later: list[int] = []
    """Mail of people who have had their replies for this hour."""
    replies: dict[str, list[float]] = {}
    """When whom was answered in the last hour."""


class MailThread(Struct):
    """What a reply needs of its conversation."""

    subject: str = ""
    references: tuple[str, ...] = ()
    """Every mail of it, the newest last."""


class EmailPlatform:
    """One mailbox. A mail is marked as seen after it was stored."""

    capabilities = Capabilities(
        longest_part=200_000, render_markup=render_web_html, pairs=False, typing_seconds=0.0
    )

    def __init__(self, settings: EmailSettings, account: MailAccount) -> None:
        self._settings = settings
        self._account = account
        self._folder: Path | None = None
        self._state = EmailState()

    async def run(self, receiver: Receiver) -> None:
        check_encryption(self._account)
        if gap := self._settings.find_gap():
            log.warning("email: %s", gap)
        if self._folder is None:
            self._load_state(receiver.open_folder())
        box = Mailbox(self._account)
        try:
            await asyncio.to_thread(box.open)
            await self._find_start(box)
            receiver.report_connected()
            while True:
                while await self._receive_new(receiver, box):
                    pass
                if box.can_idle:
                    await asyncio.to_thread(box.wait_for_news, IDLE_SECONDS)
                else:
                    await asyncio.sleep(self._settings.poll_seconds)
        except MailboxFailure as failure:
            if failure.refused:
                text = f"{failure}; check EMAIL_ADDRESS and EMAIL_PASSWORD"
                raise ConnectionFailure("unauthorized", text, fatal=True) from None
            raise ConnectionFailure("unreachable", str(failure)) from None
        finally:
            box.wake()
            box.close()

    def _load_state(self, folder: Path) -> None:
        self._folder = folder
        make_private_folder(folder / "threads")
        try:
            data = (folder / "state.json").read_bytes()
            self._state = msgspec.json.decode(data, type=EmailState)
        except (OSError, msgspec.DecodeError):
            self._state = EmailState()

    def _save_state(self) -> None:
        if self._folder is not None:
            replace_file(self._folder / "state.json", msgspec.json.encode(self._state))

    async def _find_start(self, box: Mailbox) -> None:
        """At the very first start: from now on. When the server numbers its mail anew, everything
        unseen is looked at again; what was stored is known by its Message-ID."""
        validity, following = await asyncio.to_thread(box.read_status)
        state = self._state
        if state.validity == validity:
            return
        is_first = not state.validity
        state.validity, state.last, state.later = validity, following - 1, []
        if not is_first:
            state.later = await asyncio.to_thread(box.list_numbers, 0, unseen=True)
        self._save_state()

    async def _receive_new(self, receiver: Receiver, box: Mailbox) -> bool:
        """Whether there was new mail, and more may have come meanwhile."""
        state = self._state
        new = await asyncio.to_thread(box.list_numbers, state.last)
        for number in [*state.later, *new]:
            is_done = await self._receive_mail(receiver, box, number)
            if number > state.last:
                state.last = number
            if is_done and number in state.later:
                state.later.remove(number)
            elif not is_done and number not in state.later:
                state.later.append(number)
            elif not is_done:
                continue
            self._save_state()
        return bool(new)

    async def _receive_mail(self, receiver: Receiver, box: Mailbox, number: int) -> bool:
        """Whether nothing more is to be done with the mail."""
        found = await asyncio.to_thread(box.read_headers, number)
        if found is None:
            return True
        headers, size = found
        sender, name = read_sender(headers)
        if not self._counts(headers, sender):
            return True
        if self._count_replies(sender) >= MOST_REPLIES:
            return False
        mail = await asyncio.to_thread(box.read_mail, number) if size <= LARGEST_MAIL else None
        message = self._read_mail(headers, mail, number, (sender, name))
        if message.text or message.attachments:
            await receiver.receive_message(message)
        await asyncio.to_thread(box.mark_seen, number)
        return True

    def _counts(self, headers: Message, sender: str) -> bool:
        """Whether the mail is from somebody who may talk, and who really is its sender."""
        settings = self._settings
        if not sender or sender == self._account.address or is_automatic(headers, sender):
            return False
        if not settings.lets_in(self._spell_user(sender)):
            return False
        domain = sender.rpartition("@")[2]
        if settings.trust_from or is_authenticated(headers, domain, settings.authserv_id):
            return True
        log.info("a mail from %s was ignored: no Authentication-Results vouch for it", sender)
        return False

    def _spell_user(self, sender: str) -> str:
        """An address as the settings spell it: capital letters make no other person."""
        known = (*self._settings.allowed_users, *self._settings.admins)
        return next((str(user) for user in known if str(user).lower() == sender), sender)

    def _read_mail(
        self, headers: Message, mail: Any, number: int, sender: tuple[str, str]
    ) -> Inbound:
        id, references = read_message_id(headers), list_references(headers)
        thread = find_thread(id, references)
        subject, text, attachments = read_content(mail, number, is_first=not references)
        known = self._read_thread(thread)
        self._save_thread(
            thread,
            MailThread(known.subject or subject, (*(references or known.references), id)),
        )
        return Inbound(
            chat=sender[0],
            chat_type="dm",
            user=self._spell_user(sender[0]),
            id=id,
            text=text,
            thread=thread,
            user_name=sender[1],
            sent=_read_date(headers),
            attachments=attachments,
        )

    def _read_thread(self, thread: str) -> MailThread:
        if self._folder is None or not thread:
            return MailThread()
        try:
            data = (self._folder / "threads" / f"{thread}.json").read_bytes()
            return msgspec.json.decode(data, type=MailThread)
        except (OSError, msgspec.DecodeError):
            return MailThread()

    def _save_thread(self, thread: str, known: MailThread) -> None:
        if self._folder is None or not thread.isalnum():
            return
        known.references = shorten_references(known.references)
        replace_file(self._folder / "threads" / f"{thread}.json", msgspec.json.encode(known))

    def _count_replies(self, address: str) -> int:
        """The replies of the last hour."""
        since = time.time() - REPLY_SECONDS
        recent = [moment for moment in self._state.replies.get(address, []) if moment > since]
        if recent:
            self._state.replies[address] = recent
        else:
            self._state.replies.pop(address, None)
        return len(recent)

    async def send_part(self, target: Target, part: Part) -> str:
        mail = self._make_mail(target)
        mail.set_content(part.text.replace("\r", "") + "\n")
        html = part.markup or escape(part.text).replace("\n", "<br>")
        mail.add_alternative(f"<html><body>{html}</body></html>\n", subtype="html")
        return await self._send(target, mail)

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        return None  # what was sent stays as it is

    async def delete_part(self, target: Target, id: str) -> None:
        return None

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        kind, _, subkind = (mimetypes.guess_type(name)[0] or "application/octet-stream").partition(
            "/"
        )
        mail = self._make_mail(target)
        mail.set_content(f"{name}\n")
        mail.add_attachment(content, maintype=kind, subtype=subkind, filename=name)
        return await self._send(target, mail)

    def _make_mail(self, target: Target) -> EmailMessage:
        known = self._read_thread(target.thread)
        mail = EmailMessage()
        mail["From"] = self._account.address
        mail["To"] = target.chat
        subject = known.subject or _SUBJECT
        is_reply = bool(known.references)
        has_prefix = subject.lower().startswith("re:")
        mail["Subject"] = f"Re: {subject}" if is_reply and not has_prefix else subject
        mail["Date"] = formatdate()
        domain = self._account.address.rpartition("@")[2]
        marks = target.thread or "0" * 16, random_source.token_hex(12)
        mail["Message-ID"] = f"<hermes.{'.'.join(marks)}@{domain}>"
        if is_reply:
            mail["In-Reply-To"] = known.references[-1]
            mail["References"] = " ".join(known.references)
        mail["Auto-Submitted"] = "auto-replied" if is_reply else "auto-generated"
        mail["X-Auto-Response-Suppress"] = "All"
        return mail

    async def _send(self, target: Target, mail: EmailMessage) -> str:
        if self._count_replies(target.chat) >= MOST_REPLIES:
            oldest = self._state.replies[target.chat][0]
            wait = max(1.0, oldest + REPLY_SECONDS - time.time())
            raise SendFailure("wait", f"{MOST_REPLIES} replies in an hour", wait=wait)
        await send_mail(self._account, mail, target.chat)
        self._state.replies.setdefault(target.chat, []).append(time.time())
        self._save_state()
        return str(mail["Message-ID"])

    async def show_typing(self, target: Target) -> None:
        return None

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        number, _, index = attachment.ref.partition(":")
        write(await asyncio.to_thread(self._read_attachment, int(number), int(index)))

    def _read_attachment(self, number: int, index: int) -> bytes:
        """Over a connection of its own: the other one waits for new mail."""
        box = Mailbox(self._account)
        try:
            box.open()
            if box.read_status()[0] != self._state.validity:
                raise SendFailure("rejected", "the mail is no longer there")
            mail = box.read_mail(number)
            if mail is None or index >= len(mail.attachments):
                raise SendFailure("rejected", "the mail is no longer there")
            try:
                return bytes(mail.attachments[index].payload)
            except _UNREADABLE:
                raise SendFailure("rejected", "it could not be read") from None
        except MailboxFailure as failure:
            raise SendFailure("certain", str(failure)) from None
        finally:
            box.close()

    async def publish_commands(
        self, commands: tuple[MenuCommand, ...], admins: tuple[str, ...]
    ) -> None:
        return None

    async def close(self) -> None:
        return None


def read_content(
    mail: Any, number: int, *, is_first: bool
) -> tuple[str, str, tuple[Attachment, ...]]:
    """The subject, the text and the attachments of a mail; a note where there is none to read."""
    if mail is None:
        return "", "(The mail is too large and was not fetched.)", ()
    subject = " ".join(str(mail.subject).split())
    try:
        plain = mail.text.strip() or read_html_text(mail.html)
        attachments = tuple(
            Attachment(f"{number}:{index}", part.filename, part.content_type, len(part.payload))
            for index, part in enumerate(mail.attachments)
        )
    except _UNREADABLE:
        return subject, join_text(subject, _UNREAD, is_first=is_first), ()
    return subject, join_text(subject, strip_quote(plain), is_first=is_first), attachments


def _read_date(headers: Message) -> float:
    """When the mail says it was sent; 0 when it says nothing that can be."""
    try:
        sent = parsedate_to_datetime(str(headers.get("Date", ""))).timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return sent if 0 < sent <= time.time() else 0.0


def _open_platform(settings: EmailSettings, secrets: Secrets) -> EmailPlatform:
    return EmailPlatform(settings, read_account(settings, secrets))


async def check_account(settings: EmailSettings, secrets: Secrets) -> str:
    """The address; ConfigError when one of the servers does not accept the login, PendingStep when
    the settings let nobody be heard."""
    account = read_account(settings, secrets)
    box = Mailbox(account)
    try:
        check_encryption(account)
        await asyncio.to_thread(box.open)
    except (ConnectionFailure, MailboxFailure) as failure:
        raise ConfigError(f"It does not work: {failure}. Nothing was saved.") from None
    finally:
        box.close()
    await check_smtp(account)
    if gap := settings.find_gap():
        raise PendingStep(f"{account.address}. But {gap}")
    return account.address


PLATFORM = PlatformSpec(
    "email",
    "EMAIL_ADDRESS",
    EmailSettings,
    _open_platform,
    check_account,
    more_variables=("EMAIL_PASSWORD", "EMAIL_IMAP_HOST", "EMAIL_SMTP_HOST"),
)
