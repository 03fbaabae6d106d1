"""IRC: channels and direct messages of people whom the server's services know."""

import hashlib
import logging
import secrets as random_words
import time
from typing import TypeVar

from hermes.config.api_server import is_loopback
from hermes.config.platforms import PlatformSettings
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import (
    Capabilities,
    ConnectionFailure,
    Inbound,
    Part,
    PlainPlatform,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.render import count_bytes
from hermes.gateway.platforms._irc_connection import NOT_CONNECTED, IrcAccess, IrcConnection
from hermes.gateway.platforms._irc_protocol import (
    LONGEST_TEXT,
    IrcLine,
    fold_name,
    format_line,
    is_bare_mask,
    is_mask,
    matches_mask,
    read_message,
    read_time,
)

log = logging.getLogger(__name__)
T = TypeVar("T")

_VARIABLE = "IRC_SERVER"
_SERVER_PASSWORD = "IRC_SERVER_PASSWORD"
_SASL_PASSWORD = "IRC_SASL_PASSWORD"
SIGHT_SECONDS = 60.0
"""For so long somebody who wrote is taken to have the same nickname still."""
STRANGER_SECONDS = 30.0
_MAX_REMEMBERED = 1000


class IrcSettings(PlatformSettings, frozen=True):
    server: str = ""
    port: int = 6697
    tls: bool = True
    nickname: str = "hermes"
    channels: tuple[str, ...] = ()


class IrcPlatform(PlainPlatform):
    """People are their services accounts, or the listed masks that fit them; a nickname is only
    where they can be reached now."""

    capabilities = Capabilities(
        longest_part=LONGEST_TEXT,
        measure=count_bytes,
        pairs=False,
        bang_commands=True,
        marks_bots=False,
    )

    def __init__(self, access: IrcAccess, settings: IrcSettings) -> None:
        self.access = access
        self._settings = settings
        self._people = tuple(map(str, (*settings.allowed_users, *settings.admins)))
        self._chats = tuple(map(str, (*settings.allowed_chats, *settings.free_response_chats)))
        self._connection: IrcConnection | None = None
        self._sights: dict[str, tuple[str, float]] = {}
        """The nickname of each person who wrote, and when."""
        self._strangers: dict[str, float] = {}
        """Until when the server is not asked again about those who have no listed account."""

    async def run(self, receiver: Receiver) -> None:
        self._check_settings()
        await self.close()
        self._sights.clear()
        self._connection = connection = IrcConnection(self.access)
        connection.on_departure = self._forget_nick
        try:
            await connection.open()
            await connection.wait_until_registered()
            connection.join_channels()
            receiver.report_connected()
            while True:
                await self._receive_line(receiver, connection, await connection.next_message())
        except ConnectionFailure:  # cancelled, it stays for the last replies, until `close`
            await self.close()
            raise

    def _check_settings(self) -> None:
        access = self.access
        is_open = not access.tls and not is_loopback(access.server)
        if is_open and (access.server_password or access.sasl_password):
            text = "a password would go to another machine in plain text; set tls: true"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        if self._settings.proxy:
            text = "IRC cannot use a proxy; remove proxy and IRC_PROXY"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        try:
            format_line("NICK", access.nickname)
            for channel in access.channels:
                format_line("JOIN", *channel.split(" ", 1))
        except ValueError as error:
            raise ConnectionFailure("unconfigured", f"irc: {error}", fatal=True) from None
        for entry in self._people:
            if is_mask(entry) and is_bare_mask(entry):
                log.warning("irc: %s names only a nickname, which anybody can take", entry)

    def _forget_nick(self, nick: str) -> None:
        gone = [person for person, (name, _) in self._sights.items() if name == nick]
        for person in gone:
            del self._sights[person]

    async def _receive_line(
        self, receiver: Receiver, connection: IrcConnection, line: IrcLine
    ) -> None:
        target, mapping = line.get_param(0), connection.mapping
        in_channel = target[:1] in connection.channel_types
        is_own = fold_name(target, mapping) == fold_name(connection.nick, mapping)
        chat = _find_spelling(target, self._chats, mapping) if in_channel else ""
        if not is_own and chat not in self._settings.allowed_chats:
            return  # nobody is looked up for what will not be answered
        found = read_message(line.text, connection.nick, mapping)
        if found is None or "!" not in line.source:
            return
        text, is_mentioned = found
        try:
            account = await self._find_account(connection, line)
        except SendFailure as failure:
            log.warning("irc: a message of %s was left out: %s", line.nick, failure)
            return
        person = self._name_person(line.source, account, mapping)
        if not in_channel:
            chat = _find_spelling(account, self._people, mapping) if account else line.source
            _remember(self._sights, chat, (line.nick, time.monotonic()))
        await receiver.receive_message(
            Inbound(
                chat=chat,
                chat_type="group" if in_channel else "dm",
                user=person,
                id=_find_id(line),
                text=text,
                user_name=line.nick,
                is_bot="bot" in line.tags,
                addressed=is_mentioned,
                sent=read_time(line.tags),
            )
        )

    async def _find_account(self, connection: IrcConnection, line: IrcLine) -> str:
        """The services account of who wrote a line; empty: none."""
        if "account-tag" in connection.capabilities:
            return line.tags.get("account", "")
        now = time.monotonic()
        if all(map(is_mask, self._people)) or self._strangers.get(line.source, 0.0) > now:
            return ""
        found = await connection.find_person(line.nick)
        account = found.account if found.source == line.source else ""
        is_listed = _find_spelling(account, self._people, connection.mapping) in self._people
        if not is_listed and not self._settings.allow_all_users:
            _remember(self._strangers, line.source, now + STRANGER_SECONDS)
        return account

    def _name_person(self, source: str, account: str, mapping: str) -> str:
        """The listed account or mask that stands for somebody, else the account or the mask."""
        spelling = _find_spelling(account, self._people, mapping)
        if account and spelling in self._people:
            return spelling
        masks = (entry for entry in self._people if is_mask(entry))
        fitting = next((mask for mask in masks if matches_mask(mask, source, mapping)), "")
        return fitting or account or source

    async def send_part(self, target: Target, part: Part) -> str:
        connection = self._connection
        if connection is None:
            raise SendFailure("certain", NOT_CONNECTED)
        lines = [line for line in part.text.splitlines() if line.strip()]
        name = target.chat
        if name[:1] not in connection.channel_types:
            name = await self._find_nick(connection, target.chat)
        await connection.send_lines(name, lines)
        return random_words.token_hex(8)

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        return await self.send_part(target, Part(f"(not sent: {name}: IRC carries no files)"))

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _find_nick(self, connection: IrcConnection, person: str) -> str:
        """The nickname a person has now; the server confirms it unless they have just written."""
        nick, seen = self._sights.get(person, (person.partition("!")[0], 0.0))
        if seen and time.monotonic() - seen < SIGHT_SECONDS:
            return nick
        found = await connection.find_person(nick)
        mapping = connection.mapping
        is_same = fold_name(person, mapping) in (
            fold_name(found.account, mapping),
            fold_name(found.source, mapping),
        )
        if not is_same:
            raise SendFailure("certain", f"{person} is not on IRC now")
        _remember(self._sights, person, (nick, time.monotonic()))
        return nick


def _remember(known: dict[str, T], key: str, value: T) -> None:
    if len(known) >= _MAX_REMEMBERED:
        known.clear()
    known[key] = value


def _find_spelling(name: str, listed: tuple[str, ...], mapping: str) -> str:
    """A name as the settings spell it; else in lower case."""
    folded = fold_name(name, mapping)
    return next((entry for entry in listed if fold_name(entry, mapping) == folded), folded)


def _find_id(line: IrcLine) -> str:
    """The id of a message: its own, else what a repetition of it would have too."""
    if own := line.tags.get("msgid"):
        return own
    if sent := line.tags.get("time"):
        words = "\n".join((sent, line.source, line.text))
        return hashlib.sha256(words.encode(errors="replace")).hexdigest()[:32]
    return random_words.token_hex(16)


def _open_platform(settings: IrcSettings, secrets: Secrets) -> IrcPlatform:
    server = secrets.get(settings.token_env or _VARIABLE) or settings.server
    if not server:
        raise ConfigError(f"{_VARIABLE} is not set. Run: hermes gateway setup irc")
    access = IrcAccess(
        server,
        settings.port,
        settings.tls,
        settings.nickname,
        settings.channels,
        secrets.get(_SERVER_PASSWORD) or "",
        secrets.get(_SASL_PASSWORD) or "",
    )
    return IrcPlatform(access, settings)


async def check_server(settings: IrcSettings, secrets: Secrets) -> str:
    """Our nickname on the server; ConfigError when it does not let us in."""
    access = _open_platform(settings, secrets).access
    connection = IrcConnection(access)
    try:
        await connection.open()
        await connection.wait_until_registered()
    except ConnectionFailure as failure:
        raise ConfigError(f"IRC: {failure}. Nothing was saved.") from None
    finally:
        await connection.close()
    return f"{connection.nick} on {access.server}"


PLATFORM = PlatformSpec(
    "irc",
    _VARIABLE,
    IrcSettings,
    _open_platform,
    check_server,
    (_SASL_PASSWORD, _SERVER_PASSWORD),
)
