"""Discord: a bot in direct messages, channels and threads."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from msgspec import structs

from hermes.config.env import find_proxy
from hermes.config.platforms import PlatformSettings, is_safe_address
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import (
    Attachment,
    Capabilities,
    ConnectionFailure,
    FailureKind,
    Inbound,
    MenuCommand,
    Part,
    PendingStep,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.discord_markup import escape_discord, render_discord
from hermes.gateway.people.access import is_addressed
from hermes.gateway.platforms._discord_servers import DiscordServers
from hermes.llm.http.lazy_tls import load_aiohttp

if TYPE_CHECKING:
    import discord

    from hermes.gateway.platforms._discord_client import DiscordClient

log = logging.getLogger(__name__)
T = TypeVar("T")

_API = "https://discord.com/api/v10"
_VARIABLE = "DISCORD_BOT_TOKEN"
LONGEST_PART = 2000
CALL_SECONDS = 30.0
_FILE_HOSTS = ("cdn.discordapp.com", "media.discordapp.net")
_UNKNOWN_CHANNEL = 10003
_FAILURES: dict[int, FailureKind] = {
    10008: "edit_lost",  # the message was deleted
    30046: "edit_lost",  # edited too often for its age
    50005: "edit_lost",  # somebody else's message
    50083: "target",  # the thread is archived
    160002: "target",  # not allowed to read what it would reply to
    160005: "target",  # the thread is locked
    50001: "gone",  # no access to the channel
    50007: "gone",  # the person takes no messages
    50013: "gone",  # not allowed to write
    50278: "gone",  # no server in common with the person
}
_LONGEST_TITLE = 80
_MOST_TITLES = 500


class DiscordSettings(PlatformSettings, frozen=True):
    auto_thread: bool = False
    """Whether a question in a channel is answered in a thread of its own."""


class DiscordPlatform:
    """One bot. A thread that answers a message has the id of that message, so it can be opened
    when the answer is sent, also after a restart."""

    capabilities = Capabilities(
        longest_part=LONGEST_PART,
        measure=len,
        render_markup=render_discord,
        edits=True,
        pace=1.2,
        group_pace=1.2,
        typing_seconds=8.0,
        buttons=True,
    )

    def __init__(self, settings: DiscordSettings, token: str) -> None:
        self._settings = settings
        self._token = token
        self._base_url = (settings.base_url or _API).rstrip("/")
        self._client: DiscordClient | None = None
        self._commands: list[dict[str, Any]] = []
        self._titles: dict[str, str] = {}
        """What threads that were not opened yet will be called."""

    @property
    def servers(self) -> DiscordServers:
        return DiscordServers(self._try_call)

    async def run(self, receiver: Receiver) -> None:
        if not is_safe_address(self._base_url):
            text = "base_url is plain http to another machine; use https"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        if self._client is None:
            self._client = self._open_client()
        await self._client.receive_events(receiver, self._token)

    def _open_client(self) -> DiscordClient:
        client = _load_client(self._base_url, self._settings.proxy)
        client.adapt = self._adapt_message
        client.prepare = self._publish_commands
        client.chats = tuple(map(str, self._settings.allowed_chats))
        client.people = tuple(map(str, (*self._settings.allowed_users, *self._settings.admins)))
        return client

    def _adapt_message(self, message: Inbound) -> Inbound:
        opens_thread = (
            self._settings.auto_thread
            and message.chat_type == "group"
            and not message.thread
            and not message.text.startswith("/")
            and is_addressed(self._settings, message)
        )
        if not opens_thread:
            return message
        while len(self._titles) >= _MOST_TITLES:
            del self._titles[next(iter(self._titles))]
        title = " ".join(message.text.split())[:_LONGEST_TITLE]
        self._titles[message.id] = title
        return structs.replace(message, thread=message.id)

    async def send_part(self, target: Target, part: Part) -> str:
        self._require_client()
        import discord

        options: dict[str, Any] = {"view": _make_view(part)} if part.buttons else {}
        if target.reply_to and target.reply_to != target.thread:
            options["reference"] = discord.MessageReference(
                message_id=int(target.reply_to),
                channel_id=int(target.thread or target.chat),
                fail_if_not_exists=False,
            )

        async def send(channel: discord.PartialMessageable) -> discord.Message:
            content = _choose_content(part)
            return await channel.send(content, suppress_embeds=True, **options)

        return str((await self._send(target, send)).id)

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        async def edit(channel: discord.PartialMessageable) -> discord.Message:
            view = _make_view(part) if part.buttons else None
            content = _choose_content(part)
            return await channel.get_partial_message(int(id)).edit(content=content, view=view)

        await self._send(target, edit)

    async def delete_part(self, target: Target, id: str) -> None:
        async def delete(channel: discord.PartialMessageable) -> None:
            await channel.get_partial_message(int(id)).delete()

        try:
            await self._send(target, delete)
        except SendFailure as failure:
            if failure.kind not in ("rejected", "edit_lost"):
                raise

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        self._require_client()
        import discord

        async def send(channel: discord.PartialMessageable) -> discord.Message:
            return await channel.send(file=discord.File(io.BytesIO(content), filename=name))

        return str((await self._send(target, send)).id)

    async def show_typing(self, target: Target) -> None:
        async def show(channel: discord.PartialMessageable) -> None:
            await channel.typing()

        await self._send(target, show)

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        host = urlsplit(attachment.ref).hostname
        is_discord = host in (*_FILE_HOSTS, urlsplit(self._base_url).hostname)
        if not is_discord or not is_safe_address(attachment.ref):
            raise SendFailure("rejected", "it is not stored at Discord")
        aiohttp = load_aiohttp()
        timeout = aiohttp.ClientTimeout(total=300, sock_read=30)
        proxy = self._settings.proxy or find_proxy(attachment.ref) or None
        try:
            async with (
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.get(
                    attachment.ref, timeout=timeout, proxy=proxy, allow_redirects=False
                ) as response,
            ):
                if response.status != 200:
                    raise SendFailure("rejected", f"Discord answered {response.status}")
                async for piece in response.content.iter_any():
                    write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            text = f"the connection to Discord broke ({type(error).__name__})"
            raise SendFailure("certain", text) from None

    async def publish_commands(
        self, commands: tuple[MenuCommand, ...], admins: tuple[str, ...]
    ) -> None:
        argument = {"type": 3, "name": "text", "description": "What follows the command"}
        rows: list[dict[str, Any]] = [
            {"type": 1, "name": c.name[:32], "description": c.help[:100], "options": [argument]}
            for c in commands[:100]
        ]
        self._commands = rows
        await self._publish_commands()

    async def _publish_commands(self) -> None:
        rows = self._commands
        if rows:
            await self._try_call(
                lambda client: client.http.bulk_upsert_global_commands(
                    client.application_id or 0, payload=rows
                )
            )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _send(
        self, target: Target, send: Callable[[discord.PartialMessageable], Awaitable[T]]
    ) -> T:
        """Send to a chat or thread; a thread that does not exist yet is opened."""
        place = int(target.thread or target.chat)
        try:
            return await self._try_call(lambda c: send(c.get_partial_messageable(place)))
        except SendFailure as failure:
            if failure.kind != "target" or not target.thread:
                kind = "gone" if failure.kind == "target" else failure.kind
                raise SendFailure(kind, str(failure), wait=failure.wait) from None
            if not self._settings.auto_thread:
                raise
        await self._open_thread(target)
        return await self._try_call(lambda c: send(c.get_partial_messageable(place)))

    async def _open_thread(self, target: Target) -> None:
        title = self._titles.pop(target.thread, "") or "Conversation"
        try:
            await self._try_call(
                lambda client: client.http.start_thread_with_message(
                    int(target.chat),
                    int(target.thread),
                    name=title,
                    auto_archive_duration=1440,
                )
            )
        except SendFailure as failure:
            if failure.kind in ("rejected", "edit_lost", "gone"):
                raise SendFailure("target", str(failure)) from None
            raise

    def _require_client(self) -> DiscordClient:
        if self._client is None or not self._client.is_logged_in:
            raise SendFailure("certain", "Discord is not connected")
        return self._client

    async def _try_call(self, call: Callable[[DiscordClient], Awaitable[T]]) -> T:
        client = self._require_client()
        import discord

        aiohttp = load_aiohttp()
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await call(client)
        except aiohttp.ClientConnectorError:
            raise SendFailure("certain", "Discord cannot be reached") from None
        except discord.RateLimited as error:
            raise SendFailure("wait", "Discord asks to wait", wait=error.retry_after) from None
        except discord.HTTPException as error:
            raise _explain_failure(error) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"the connection to Discord broke ({type(error).__name__})"
            raise SendFailure("ambiguous", text) from None


def _choose_content(part: Part) -> str:
    """Escapes may make a text too long; Discord reads the Markdown of the model as well."""
    content = part.markup or escape_discord(part.text)
    return content if len(content) <= LONGEST_PART else part.text


def _make_view(part: Part) -> discord.ui.View:
    import discord

    view = discord.ui.View(timeout=None)
    for button in part.buttons:
        view.add_item(discord.ui.Button(label=button.label[:80], custom_id=button.data))
    view.stop()  # the library need not wait for presses: they come as interactions
    return view


def _explain_failure(error: discord.HTTPException) -> SendFailure:
    text = f"Discord answered {error.status}: {error.text[:200]}"
    if error.code == _UNKNOWN_CHANNEL:
        return SendFailure("target", text)
    if error.code in _FAILURES:
        return SendFailure(_FAILURES[error.code], text)
    match error.status:
        case 429:
            return SendFailure("wait", text, wait=5.0)
        case 401:
            return SendFailure("fatal", text)
        case 403:
            return SendFailure("gone", text)
        case 504:
            return SendFailure("ambiguous", text)
        case status if status >= 500:
            return SendFailure("certain", text)
    if "or fewer in length" in error.text:
        return SendFailure("too_long", text)
    if "message_reference" in error.text:
        return SendFailure("target", text)
    return SendFailure("rejected", text)


def _load_client(base_url: str, proxy: str) -> DiscordClient:
    load_aiohttp()
    try:
        from hermes.gateway.platforms._discord_client import DiscordClient
    except ModuleNotFoundError as error:
        text = f"the module {error.name} is missing: pip install 'hermes-runtime[discord]'"
        raise ConnectionFailure("missing_dependency", text, fatal=True) from None
    return DiscordClient(base_url, proxy or find_proxy(base_url) or "")


def _require_token(settings: DiscordSettings, secrets: Secrets) -> str:
    variable = settings.token_env or _VARIABLE
    token = secrets.get(variable)
    if token is None:
        raise ConfigError(f"{variable} is not set. Run: hermes gateway setup discord")
    return token


def _open_platform(settings: DiscordSettings, secrets: Secrets) -> DiscordPlatform:
    return DiscordPlatform(settings, _require_token(settings, secrets))


async def check_token(settings: DiscordSettings, secrets: Secrets) -> str:
    """The name of the bot; ConfigError when the token does not work, PendingStep when the bot may
    not read messages."""
    token = _require_token(settings, secrets)
    base_url = (settings.base_url or _API).rstrip("/")
    try:
        client = _load_client(base_url, settings.proxy)
    except ConnectionFailure as failure:
        raise ConfigError(f"{failure}. Nothing was saved.") from None
    from hermes.gateway.platforms._discord_client import explain_refusal

    aiohttp = load_aiohttp()
    import discord

    try:
        await client.log_in(token)
    except (discord.DiscordException, aiohttp.ClientError, OSError) as error:
        raise ConfigError(f"{explain_refusal(error)}. Nothing was saved.") from None
    try:
        name = f"@{client.user.name}" if client.user is not None else ""
        flags = client.application_flags
        if flags.gateway_message_content or flags.gateway_message_content_limited:
            return name
        raise PendingStep(f"{name}. Switch on its Message Content Intent in the developer portal")
    finally:
        await client.close()


PLATFORM = PlatformSpec("discord", _VARIABLE, DiscordSettings, _open_platform, check_token)
