"""The connection to Discord: its socket, and what its events say in the gateway's words."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Literal, TypeAlias

import aiohttp
import discord
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from discord.http import Route
from msgspec import structs
from yarl import URL

from hermes.config.platforms import is_safe_address
from hermes.core.errors import StoreError
from hermes.gateway import texts
from hermes.gateway.adapter import Attachment, ButtonPress, ConnectionFailure, Inbound, Receiver
from hermes.gateway.platforms._discord_history import MissedMessages
from hermes.gateway.transport.payload import MALFORMED

log = logging.getLogger(__name__)

CONNECT_SECONDS = 30.0
SILENT_SECONDS = 90.0
"""Two heartbeats: a socket without a word for so long is dead."""
ANSWER_SECONDS = 2.0
"""Discord waits three seconds for the answer to an interaction."""
IDENTIFY_SECONDS = 5.0
SETTLED_SECONDS = 5.0
CURSOR_SECONDS = 15.0
LONGEST_WAIT = 2.0
"""Longer waits that Discord imposes are kept by the outbox."""
_UNREAD = re.compile(r"```.*?```|`[^`\n]*`|^>>> .*\Z|^> .*?$", re.DOTALL | re.MULTILINE)
"""A mention inside code or a quotation does not address anybody."""
_MENTION = re.compile(r"<@!?(\d+)>")
_SPOKEN = frozenset({discord.MessageType.default, discord.MessageType.reply})
_Channel: TypeAlias = Any
"""The library has a dozen classes of channels."""


class DiscordClient(discord.Client):
    """Messages are stored one after another; interactions do not wait for them."""

    def __init__(self, base_url: str, proxy: str) -> None:
        Route.BASE = base_url
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        super().__init__(
            intents=discord.Intents(
                guilds=True, guild_messages=True, dm_messages=True, message_content=True
            ),
            allowed_mentions=discord.AllowedMentions.none(),
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            max_messages=None,
            guild_ready_timeout=0.5,
            heartbeat_timeout=SILENT_SECONDS,
            proxy=proxy or None,
        )
        self.http.max_ratelimit_timeout = LONGEST_WAIT
        self.is_logged_in = False
        self.adapt: Callable[[Inbound], Inbound] = lambda message: message
        """What the settings change about a message."""
        self.prepare: Callable[[], Awaitable[None]] | None = None
        """What is done when a session has begun."""
        self.chats: tuple[str, ...] = ()
        """Chats that are read after a restart, besides those with conversations."""
        self.people: tuple[str, ...] = ()
        """People whose direct chats are read, too."""
        self._receiver: Receiver | None = None
        self._missed: MissedMessages
        self._order = asyncio.Lock()
        self._servers_known = asyncio.Event()
        """Set when Discord has told the channels and threads of a new session."""
        self._socket: DiscordWebSocket | None = None
        self._session: tuple[str, int | None, URL] | None = None
        """What is needed to resume: the id, the last number and the address."""
        self._last_identify = -IDENTIFY_SECONDS
        self._is_ready = False
        self._connected_at = 0.0
        self._cursor_saved = 0.0
        self._failure: ConnectionFailure | None = None

    async def log_in(self, token: str) -> None:
        """Raises ConnectionFailure when the token is refused."""
        if self.is_logged_in:
            return
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self.login(token)
            self.is_logged_in = True
        finally:
            if not self.is_logged_in:
                await self.http.close()
                self.http.connector = discord.utils.MISSING

    async def receive_events(self, receiver: Receiver, token: str) -> None:
        """Receive until the connection ends; raises ConnectionFailure. The next call resumes the
        session if Discord lets it."""
        self._receiver, self._is_ready, self._failure = receiver, False, None
        self._missed = MissedMessages(self, receiver, self.chats, self.people)
        try:
            await self.log_in(token)
            socket = self._socket = await self._open_socket()
            while True:
                await socket.poll_event()
                await self._save_cursor()
        except ReconnectWebSocket as request:
            self._keep_session(resumes=request.resume)
            # A connection that held for a while is opened again at once.
            age = time.monotonic() - self._connected_at
            wait = 0.0 if self._is_ready and age > SETTLED_SECONDS else None
            text = "Discord ended the connection"
            raise self._explain_end(ConnectionFailure("unreachable", text, wait=wait)) from None
        except discord.ConnectionClosed as closed:
            self._session = None
            raise self._explain_end(_explain_close(closed.code)) from None
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            self._keep_session(resumes=True)
            raise self._explain_end(explain_refusal(error)) from None
        finally:
            await self._close_socket()

    async def _open_socket(self) -> DiscordWebSocket:
        async with asyncio.timeout(CONNECT_SECONDS):
            if self._session is None:
                _, address, _ = await self.http.get_bot_gateway()
                check_socket_address(address)
                return await DiscordWebSocket.from_client(self, gateway=URL(address))
            id, sequence, url = self._session
            return await DiscordWebSocket.from_client(
                self, gateway=url, session=id, sequence=sequence, resume=True
            )

    def _explain_end(self, failure: ConnectionFailure) -> ConnectionFailure:
        return self._failure or failure

    def _keep_session(self, *, resumes: bool) -> None:
        socket = self._socket
        if not resumes or self._failure is not None:
            self._session = None
        elif socket is not None and socket.session_id is not None:
            self._session = (socket.session_id, socket.sequence, socket.gateway)

    async def _close_socket(self) -> None:
        if self._socket is not None and self._socket.open:
            async with asyncio.timeout(2):
                # A code other than 1000 and 1001 keeps the session.
                await asyncio.shield(self._socket.close(4000))

    async def _give_up(self, why: str) -> None:
        """Connect anew and read what was missed: something could not be stored or read."""
        self._failure = ConnectionFailure("error", why)
        await self._close_socket()

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        """One new session in five seconds is allowed."""
        await asyncio.sleep(self._last_identify + IDENTIFY_SECONDS - time.monotonic())
        self._last_identify = time.monotonic()

    # -- events of the socket --------------------------------------------------------------------

    async def on_connect(self) -> None:
        """A new session: what came since the last one has to be read."""
        self._servers_known.clear()
        async with self._order:
            try:
                await self._missed.load_cursor()
                self._report_connected()
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._servers_known.wait()
                await self._missed.read_messages(self._store_message)
            except (discord.DiscordException, aiohttp.ClientError, OSError, StoreError) as error:
                log.warning("missed messages could not be read: %s", type(error).__name__)
                await self._give_up("missed messages could not be read")
        if self.prepare is not None:
            await self.prepare()

    async def on_ready(self) -> None:
        self._servers_known.set()

    async def on_resumed(self) -> None:
        self._report_connected()

    async def on_message(self, message: discord.Message) -> None:
        await self._receive(message, is_edited=False)

    async def on_raw_message_edit(self, event: discord.RawMessageUpdateEvent) -> None:
        if event.message.edited_at is not None:
            await self._receive(event.message, is_edited=True)

    async def _receive(self, message: discord.Message, *, is_edited: bool) -> None:
        async with self._order:
            if self._failure is not None:
                return  # read after the next connection, in order
            try:
                await self._store_message(message, is_edited=is_edited)
            except StoreError:
                log.exception("a message of Discord could not be stored")
                await self._give_up("a message could not be stored")

    async def on_interaction(self, interaction: discord.Interaction) -> None:
        assert self._receiver is not None
        if interaction.type is discord.InteractionType.application_command:
            message = self.adapt(read_command(interaction))
            await _answer_in_time(interaction, self._receive_command(message))
        elif interaction.type is discord.InteractionType.component:
            press = read_press(interaction)
            await _answer_in_time(interaction, self._receiver.receive_press(press))

    async def on_error(self, event_method: str, /, *args: Any, **kwargs: Any) -> None:
        log.exception("an event of Discord was left out (%s)", event_method)

    async def search_members(self, server: int, name: str, limit: int) -> list[dict[str, Any]]:
        """The members of a server whose names begin like this, as Discord describes them."""
        route = Route("GET", "/guilds/{guild_id}/members/search", guild_id=server)
        params = {"query": name, "limit": limit}
        found: list[dict[str, Any]] = await self.http.request(route, params=params)
        return found

    def _report_connected(self) -> None:
        self._is_ready, self._connected_at = True, time.monotonic()
        assert self._receiver is not None
        self._receiver.report_connected()

    async def _receive_command(self, message: Inbound) -> str:
        assert self._receiver is not None
        is_new = await self._receiver.receive_message(message)
        return message.text if is_new else texts.NOT_HERE

    async def _store_message(self, message: discord.Message, *, is_edited: bool = False) -> None:
        assert self._receiver is not None and self.user is not None
        channel: _Channel = message.channel
        if isinstance(channel, discord.PartialMessageable):
            channel = self.get_channel(channel.id) or await self.fetch_channel(channel.id)
        try:
            found = read_message(message, channel, self.user.id)
        except MALFORMED:  # not what Discord describes
            log.exception("a message of Discord was left out")
            return
        if found is not None:
            await self._receiver.receive_message(
                self.adapt(structs.replace(found, edited=is_edited))
            )

    async def _save_cursor(self) -> None:
        is_idle = self._is_ready and self._failure is None and not self._order.locked()
        if is_idle and time.monotonic() - self._cursor_saved > CURSOR_SECONDS:
            self._cursor_saved = time.monotonic()
            await self._missed.save_cursor(time.time())


async def _answer_in_time(interaction: discord.Interaction, work: Coroutine[Any, Any, str]) -> None:
    """Show what the work returns to the person alone. Work that takes long goes on after a sign
    that it was received."""
    is_press = interaction.type is discord.InteractionType.component
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        try:
            is_late = not task.done()
            if is_late:
                await interaction.response.defer(ephemeral=True, thinking=not is_press)
            text = await task
            if text and is_late:
                await interaction.followup.send(text, ephemeral=True)
            elif text:
                await interaction.response.send_message(text, ephemeral=True)
            elif not is_late:
                await interaction.response.defer()
        except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
            log.info("an interaction was not answered: %s", type(error).__name__)


def check_socket_address(address: str) -> None:
    if not is_safe_address(address.replace("ws", "http", 1)):
        text = "the address of Discord's socket is not encrypted"
        raise ConnectionFailure("error", text, fatal=True)


def _explain_close(code: int) -> ConnectionFailure:
    if code == 4004:
        return _refuse_token()
    if code == 4014:
        text = (
            "the bot may not read messages; switch on Message Content Intent on its page of the "
            "developer portal (Bot, Privileged Gateway Intents)"
        )
        return ConnectionFailure("intents", text, fatal=True)
    return ConnectionFailure("unreachable", f"Discord closed the connection ({code})")


def _refuse_token() -> ConnectionFailure:
    text = "Discord refused the token; get a new one from the developer portal (Bot, Reset Token)"
    return ConnectionFailure("unauthorized", text, fatal=True)


def explain_refusal(error: Exception) -> ConnectionFailure:
    """Why it cannot be connected."""
    if isinstance(error, discord.LoginFailure):
        return _refuse_token()
    if isinstance(error, discord.RateLimited):
        return ConnectionFailure("unreachable", "Discord asks to wait", wait=error.retry_after)
    if isinstance(error, discord.HTTPException):
        if error.status == 401:
            return _refuse_token()
        return ConnectionFailure("unreachable", f"Discord answered {error.status}")
    return ConnectionFailure("unreachable", f"Discord cannot be reached ({type(error).__name__})")


# -- events in the gateway's words ---------------------------------------------------------------


def _locate(channel: _Channel, guild_id: int | None) -> tuple[str, str, Literal["dm", "group"]]:
    """The chat, the thread in it, and its type."""
    if isinstance(channel, discord.Thread):
        return str(channel.parent_id), str(channel.id), "group"
    return str(channel.id), "", "group" if guild_id else "dm"


def read_message(message: discord.Message, channel: _Channel, me: int) -> Inbound | None:
    """A message in the gateway's words; None when it says nothing to anybody."""
    if message.type not in _SPOKEN:
        return None
    text, is_mentioned = _read_mentions(message.content, me)
    names = {str(person.id): f"@{person.display_name}" for person in message.mentions}
    text = _MENTION.sub(lambda found: names.get(found[1], found[0]), text)
    snapshots = message.message_snapshots
    attachments = [*message.attachments, *(a for s in snapshots for a in s.attachments)]
    if snapshots:
        text = "\n".join(filter(None, (text, *(s.content for s in snapshots))))
    if not text and not attachments and not is_mentioned:
        return None
    answered = message.reference.resolved if message.reference else None
    if not isinstance(answered, discord.Message):
        answered = None
    chat, thread, kind = _locate(channel, message.guild.id if message.guild else None)
    return Inbound(
        chat=chat,
        chat_type=kind,
        user=str(message.author.id),
        id=str(message.id),
        text=text,
        thread=thread,
        user_name=message.author.display_name,
        is_bot=message.author.bot or message.webhook_id is not None,
        addressed=is_mentioned or (answered is not None and answered.author.id == me),
        sent=message.created_at.timestamp(),
        quote=answered.content if answered is not None else "",
        attachments=tuple(
            Attachment(a.url, a.filename, a.content_type or "", a.size, a.waveform is not None)
            for a in attachments
        ),
    )


def _read_mentions(text: str, me: int) -> tuple[str, bool]:
    """The text without mentions of the bot, and whether it was mentioned."""
    unread = [found.span() for found in _UNREAD.finditer(text)]
    kept, end, is_mentioned = "", 0, False
    for found in re.finditer(rf"<@!?{me}>", text):
        if not any(first <= found.start() < last for first, last in unread):
            kept, end, is_mentioned = kept + text[end : found.start()], found.end(), True
    return (kept + text[end:]).strip(), is_mentioned


def read_command(interaction: discord.Interaction) -> Inbound:
    """A command of the slash menu as the message it stands for."""
    data: Any = interaction.data
    words = [str(option.get("value", "")) for option in data.get("options", ())]
    chat, thread, kind = _locate(interaction.channel, interaction.guild_id)
    return Inbound(
        chat=chat,
        chat_type=kind,
        user=str(interaction.user.id),
        id=str(interaction.id),
        text=" ".join((f"/{data['name']}", *words)).strip(),
        thread=thread,
        user_name=interaction.user.display_name,
        is_bot=interaction.user.bot,
        addressed=True,
        sent=interaction.created_at.timestamp(),
    )


def read_press(interaction: discord.Interaction) -> ButtonPress:
    data: Any = interaction.data
    chat, _, kind = _locate(interaction.channel, interaction.guild_id)
    return ButtonPress(
        str(interaction.id),
        chat,
        kind,
        str(interaction.user.id),
        interaction.user.display_name,
        str(data["custom_id"]),
        interaction.user.bot,
    )
