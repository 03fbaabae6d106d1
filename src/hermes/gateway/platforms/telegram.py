"""Telegram: the Bot API, received by long polling or by a webhook."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from hermes.config.platforms import PlatformSettings, is_safe_address
from hermes.config.schema import Address
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway.adapter import (
    Attachment,
    ButtonPress,
    Capabilities,
    ChatType,
    ConnectionFailure,
    FailureKind,
    Inbound,
    MenuCommand,
    Part,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.markup import render_html
from hermes.gateway.transport.api_client import CALL_SECONDS, ApiClient, Unanswered
from hermes.gateway.transport.listener import open_listener
from hermes.gateway.transport.payload import (
    MALFORMED,
    decode_object,
    is_same_secret,
    read_number,
)
from hermes.llm.http.lazy_tls import load_aiohttp

log = logging.getLogger(__name__)

_API = "https://api.telegram.org"
_VARIABLE = "TELEGRAM_BOT_TOKEN"
_WEBHOOK_VARIABLE = "TELEGRAM_WEBHOOK_SECRET"
_WEBHOOK_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")
_WEBHOOK_HEADER = "X-Telegram-Bot-Api-Secret-Token"
WEBHOOK_CHECK_SECONDS = 60.0
"""How often Telegram is asked whether it still posts to us."""
POLL_SECONDS = 50
DEAD_SECONDS = 90.0
"""A poll without an answer for so long is dead."""
_FIRST_CONFLICT_WAIT = 5.0
_LONGEST_CONFLICT_WAIT = 60.0
_UPDATES = ("message", "edited_message", "channel_post", "callback_query")
_GENERAL_TOPIC = 1
"""Messages are sent there without a thread; with this one they are refused."""
_FILES = ("document", "audio", "voice", "video", "video_note", "animation", "sticker")
_UNREAD_ENTITIES = frozenset({"pre", "code", "blockquote", "expandable_blockquote"})
"""A mention inside these does not address anybody."""
_FAILURES: tuple[tuple[str, FailureKind], ...] = (
    ("can't parse entities", "markup"),
    ("message is too long", "too_long"),
    ("message_too_long", "too_long"),
    ("replied message not found", "target"),
    ("message to be replied not found", "target"),
    ("thread not found", "target"),
    ("topic_closed", "target"),
    ("topic_deleted", "target"),
    ("message to edit not found", "edit_lost"),
    ("message can't be edited", "edit_lost"),
    ("chat not found", "gone"),
    ("user is deactivated", "gone"),
    ("bot was kicked", "gone"),
)


class TelegramSettings(PlatformSettings, frozen=True):
    webhook_url: Address = ""
    """Where Telegram posts updates, through a TLS proxy of ours; empty: they are polled."""
    webhook_host: str = "127.0.0.1"
    webhook_port: int = 8443


class WebhookAddress(Struct, frozen=True):
    """Where Telegram posts updates, where they arrive, and the secret that proves their origin."""

    url: str
    host: str
    port: int
    secret: str

    def find_problem(self) -> str:
        """Why Telegram would not accept it; empty: it would."""
        if not is_safe_address(self.url):
            return "webhook_url is plain http to another machine; use https"
        if not self.secret:
            return f"{_WEBHOOK_VARIABLE} is not set; webhook_url needs it"
        if not _WEBHOOK_SECRET.fullmatch(self.secret):
            return f"{_WEBHOOK_VARIABLE} may have 1 to 256 of A-Z, a-z, 0-9, _ and -"
        return ""


class TelegramError(Exception):
    """An answer of the Bot API that is no success."""

    def __init__(self, status: int, answer: Mapping[str, Any]) -> None:
        self.status = status
        self.description = str(answer.get("description", ""))[:200]
        parameters = answer.get("parameters")
        parameters = parameters if isinstance(parameters, dict) else {}
        wait = parameters.get("retry_after")
        self.retry_after = max(0.0, float(wait)) if isinstance(wait, (int, float)) else 0.0
        self.new_chat = str(parameters.get("migrate_to_chat_id") or "")
        super().__init__(f"Telegram answered {status}: {self.description}")


class BotApi:
    """Calls the Bot API. The token is part of every address, so no address is ever shown."""

    def __init__(self, token: str, base_url: str, proxy: str) -> None:
        self._root = f"{base_url}/bot{token}"
        self._files = f"{base_url}/file/bot{token}"
        self._client = ApiClient("Telegram", base_url, proxy)

    async def call(self, method: str, *, seconds: float = CALL_SECONDS, **fields: Any) -> Any:
        """The result of a method; fields that are None are left out."""
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._post(method, seconds, json=body)

    async def upload(self, method: str, field: str, file: tuple[str, bytes], **fields: Any) -> Any:
        aiohttp = load_aiohttp()
        form = aiohttp.FormData()
        for name, value in fields.items():
            if value is not None:
                form.add_field(
                    name, value if isinstance(value, str) else msgspec.json.encode(value)
                )
        name, content = file
        form.add_field(field, content, filename=name)
        return await self._post(method, 2 * CALL_SECONDS, data=form)

    async def _post(self, method: str, seconds: float, **options: Any) -> Any:
        url = f"{self._root}/{method}"
        status, body = await self._client.request("POST", url, seconds=seconds, **options)
        try:
            answer = decode_object(body)
        except ValueError:
            if status >= 500:
                raise TelegramError(status, {"description": "server error"}) from None
            text = f"Telegram answered {status} without JSON"
            raise Unanswered(text, sent=True) from None
        if not answer.get("ok"):
            code = answer.get("error_code")
            raise TelegramError(code if isinstance(code, int) else max(status, 500), answer)
        return answer.get("result")

    async def download(self, path: str, write: Callable[[bytes], None]) -> None:
        await self._client.download(f"{self._files}/{path}", write)

    async def close(self) -> None:
        await self._client.close()


class TelegramPlatform:
    """One bot. Updates are confirmed after they were stored: by the offset of the next poll, or by
    the answer to the delivery."""

    capabilities = Capabilities(
        longest_part=4096,
        render_markup=render_html,
        edits=True,
        pace=1.0,
        group_pace=3.0,
        typing_seconds=4.0,
        buttons=True,
    )

    def __init__(self, api: BotApi, base_url: str, webhook: WebhookAddress | None) -> None:
        self._api = api
        self._base_url = base_url
        self._webhook = webhook
        self._me: dict[str, Any] = {}
        self._conflict_wait = 0.0

    async def run(self, receiver: Receiver) -> None:
        if not is_safe_address(self._base_url):
            text = "base_url is plain http to another machine; use https"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        if self._webhook is not None and (problem := self._webhook.find_problem()):
            raise ConnectionFailure("unconfigured", problem, fatal=True)
        try:
            self._me = await self._api.call("getMe")
            if self._webhook is None:
                await self._poll_updates(receiver)
            else:
                await self._serve_webhook(receiver, self._webhook)
        except TelegramError as error:
            await self._api.close()
            raise self._explain_refusal(error) from None
        except Unanswered as error:
            await self._api.close()
            raise ConnectionFailure("unreachable", str(error)) from None

    async def _poll_updates(self, receiver: Receiver) -> None:
        await self._api.call("deleteWebhook", drop_pending_updates=False)
        offset: int | None = None
        updates = await self._poll(offset, 0)  # at once: is anybody else polling?
        receiver.report_connected()
        while True:
            for update in updates:
                await self._receive_update(receiver, update)
                offset = update["update_id"] + 1
            updates = await self._poll(offset, POLL_SECONDS)

    async def _poll(self, offset: int | None, seconds: int) -> list[dict[str, Any]]:
        updates: list[dict[str, Any]] = await self._api.call(
            "getUpdates",
            seconds=DEAD_SECONDS,
            offset=offset,
            timeout=seconds,
            allowed_updates=_UPDATES,
        )
        self._conflict_wait = 0.0
        return updates

    async def _serve_webhook(self, receiver: Receiver, webhook: WebhookAddress) -> None:
        from aiohttp import web

        async def handle_delivery(request: web.Request) -> web.Response:
            if not is_same_secret(request.headers.get(_WEBHOOK_HEADER, ""), webhook.secret):
                return web.Response(status=401)
            try:
                update = decode_object(await request.read())
            except ValueError:
                return web.Response(status=400)
            await self._receive_update(receiver, update)
            return web.Response()

        routes = {("POST", urlsplit(webhook.url).path or "/"): handle_delivery}
        async with open_listener(webhook.host, webhook.port, routes):
            await self._api.call(
                "setWebhook",
                url=webhook.url,
                secret_token=webhook.secret,
                allowed_updates=_UPDATES,
                max_connections=1,  # one after the other, so that messages keep their order
                drop_pending_updates=False,
            )
            receiver.report_connected()
            while True:
                await asyncio.sleep(WEBHOOK_CHECK_SECONDS)
                found = await self._api.call("getWebhookInfo")
                if found.get("url") != webhook.url:
                    raise self._explain_conflict("another program receives with this token")
                self._conflict_wait = 0.0

    def _explain_refusal(self, error: TelegramError) -> ConnectionFailure:
        if error.status in (401, 404):
            text = "Telegram refused the token; get a new one from @BotFather"
            return ConnectionFailure("unauthorized", text, fatal=True)
        if error.status == 409:
            return self._explain_conflict("another program polls with this token")
        return ConnectionFailure("unreachable", str(error), wait=error.retry_after or None)

    def _explain_conflict(self, text: str) -> ConnectionFailure:
        longer = max(_FIRST_CONFLICT_WAIT, self._conflict_wait * 2)
        self._conflict_wait = min(_LONGEST_CONFLICT_WAIT, longer)
        text = f"{text}; stop it or use another bot"
        return ConnectionFailure("conflict", text, wait=self._conflict_wait)

    async def _receive_update(self, receiver: Receiver, update: Mapping[str, Any]) -> None:
        try:
            if (query := update.get("callback_query")) is not None:
                await self._receive_press(receiver, query)
                return
            edited = update.get("edited_message")
            message = edited or update.get("message") or update.get("channel_post")
            if message is None:
                return
            if new := message.get("migrate_to_chat_id"):
                await receiver.move_chat(str(message["chat"]["id"]), str(new))
                return
            found = read_message(message, self._me, edited=edited is not None)
            if found is not None:
                await receiver.receive_message(found)
        except MALFORMED:  # not what the Bot API describes
            log.exception("an update of Telegram was left out")

    async def _receive_press(self, receiver: Receiver, query: Mapping[str, Any]) -> None:
        message = query.get("message")
        text = ""
        if message is not None:
            text = await receiver.receive_press(
                ButtonPress(
                    str(query["id"]),
                    str(message["chat"]["id"]),
                    _CHAT_TYPES.get(message["chat"]["type"], "group"),
                    str(query["from"]["id"]),
                    _full_name(query["from"]),
                    str(query.get("data", "")),
                    bool(query["from"].get("is_bot")),
                )
            )
        try:
            await self._api.call(
                "answerCallbackQuery", callback_query_id=query["id"], text=text[:200] or None
            )
        except (TelegramError, Unanswered) as error:
            log.info("a button press was not confirmed: %s", error)

    async def send_part(self, target: Target, part: Part) -> str:
        reply = {"message_id": int(target.reply_to)} if target.reply_to else None
        result = await self._send(
            "sendMessage",
            chat_id=target.chat,
            message_thread_id=int(target.thread) if target.thread else None,
            reply_parameters=reply,
            **_text_fields(part),
        )
        return str(result["message_id"])

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        fields = _text_fields(part)
        await self._send("editMessageText", chat_id=target.chat, message_id=int(id), **fields)

    async def delete_part(self, target: Target, id: str) -> None:
        try:
            await self._send("deleteMessage", chat_id=target.chat, message_id=int(id))
        except SendFailure as failure:
            if failure.kind not in ("rejected", "edit_lost"):
                raise

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        try:
            result = await self._api.upload(
                "sendDocument",
                "document",
                (name, content),
                chat_id=target.chat,
                message_thread_id=target.thread or None,
            )
        except (TelegramError, Unanswered) as error:
            raise _explain_failure(error) from None
        return str(result["message_id"])

    async def show_typing(self, target: Target) -> None:
        thread = int(target.thread) if target.thread else None
        await self._send(
            "sendChatAction", chat_id=target.chat, message_thread_id=thread, action="typing"
        )

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        found = await self._send("getFile", file_id=attachment.ref)
        if read_number(found.get("file_size")) > limit:
            raise SendFailure("rejected", f"it is larger than {limit:,} bytes")
        await self._api.download(str(found["file_path"]), write)

    async def publish_commands(
        self, commands: tuple[MenuCommand, ...], admins: tuple[str, ...]
    ) -> None:
        def list_rows(*, for_admins: bool) -> list[dict[str, str]]:
            return [
                {"command": c.name.replace("-", "_")[:32], "description": c.help[:256]}
                for c in commands
                if for_admins or not c.admin_only
            ][:100]

        await self._send("setMyCommands", commands=list_rows(for_admins=False))
        for admin in admins:
            with suppress(SendFailure):  # they have not written to the bot yet
                scope = {"type": "chat", "chat_id": admin}
                await self._send("setMyCommands", commands=list_rows(for_admins=True), scope=scope)

    async def close(self) -> None:
        await self._api.close()

    async def _send(self, method: str, **fields: Any) -> Any:
        try:
            return await self._api.call(method, **fields)
        except TelegramError as error:
            if "message is not modified" in error.description.lower():
                return {}
            raise _explain_failure(error) from None
        except Unanswered as error:
            raise _explain_failure(error) from None


def _explain_failure(error: TelegramError | Unanswered) -> SendFailure:
    if isinstance(error, Unanswered):
        return error.failure
    description = error.description.lower()
    if error.new_chat:
        return SendFailure("moved", str(error), chat=error.new_chat)
    if error.status == 429:
        return SendFailure("wait", str(error), wait=error.retry_after or 1.0)
    for words, kind in _FAILURES:
        if words in description:
            return SendFailure(kind, str(error))
    if error.status == 403:
        return SendFailure("gone", str(error))
    if error.status in (401, 404):
        return SendFailure("fatal", str(error))
    if error.status == 504:
        return SendFailure("ambiguous", str(error))
    return SendFailure("certain" if error.status >= 500 else "rejected", str(error))


def _text_fields(part: Part) -> dict[str, Any]:
    rows = [[{"text": b.label, "callback_data": b.data}] for b in part.buttons]
    return {
        "text": part.markup or part.text,
        "parse_mode": "HTML" if part.markup else None,
        "link_preview_options": {"is_disabled": True},
        "reply_markup": {"inline_keyboard": rows} if rows else None,
    }


_CHAT_TYPES: dict[str, ChatType] = {
    "private": "dm",
    "group": "group",
    "supergroup": "group",
    "channel": "channel",
}


def read_message(
    message: Mapping[str, Any], me: Mapping[str, Any], *, edited: bool
) -> Inbound | None:
    """A message in the gateway's words; None when it says nothing to anybody."""
    chat = message["chat"]
    sender = message.get("from") or {"id": chat["id"], "is_bot": False}
    text = str(message.get("text") or message.get("caption") or "")
    entities = message.get("entities") or message.get("caption_entities") or ()
    attachments = _read_attachments(message)
    if not text and not attachments:
        return None
    text, is_mentioned, is_foreign = _read_mentions(text, entities, me)
    answered = message.get("reply_to_message") or {}
    # Where nobody is answered, a message in a topic answers the note that opened the topic.
    is_own = (answered.get("from") or {}).get("id") == me.get("id")
    is_answer = is_own and "forum_topic_created" not in answered
    is_forward = "forward_origin" in message or "forward_date" in message
    quote = (message.get("quote") or {}).get("text") or answered.get("text")
    thread = message.get("message_thread_id") if message.get("is_topic_message") else None
    if thread == _GENERAL_TOPIC:
        thread = None
    if is_foreign and chat.get("type") != "private":
        return None
    return Inbound(
        chat=str(chat["id"]),
        chat_type=_CHAT_TYPES.get(str(chat.get("type")), "group"),
        user=str(sender["id"]),
        id=str(message["message_id"]),
        text=text,
        thread=str(thread or ""),
        user_name=_full_name(sender),
        is_bot=bool(sender.get("is_bot")),
        addressed=(is_mentioned and not is_forward) or is_answer,
        sent=read_number(message.get("date")),
        quote=str(quote or answered.get("caption") or ""),
        attachments=attachments,
        album=str(message.get("media_group_id") or ""),
        edited=edited,
    )


def _full_name(user: Mapping[str, Any]) -> str:
    return " ".join(str(user[key]) for key in ("first_name", "last_name") if user.get(key))


def _read_attachments(message: Mapping[str, Any]) -> tuple[Attachment, ...]:
    found = [
        {**message[name], "is_voice": name == "voice"}
        for name in _FILES
        if name in message and name != "animation"
    ]
    if photos := message.get("photo"):
        largest = max(photos, key=lambda photo: read_number(photo.get("file_size")))
        found.append({**largest, "mime_type": "image/jpeg", "file_name": "photo.jpg"})
    return tuple(
        Attachment(
            str(file["file_id"]),
            str(file.get("file_name") or ""),
            str(file.get("mime_type") or ""),
            int(read_number(file.get("file_size"))),
            bool(file.get("is_voice")),
        )
        for file in found
    )


def _read_mentions(text: str, entities: Any, me: Mapping[str, Any]) -> tuple[str, bool, bool]:
    """The text without mentions of the bot, whether it was mentioned, and whether the text is a
    command for another bot. Offsets count UTF-16 units."""
    units = text.encode("utf-16-le")
    own = f"@{me.get('username', '')}".lower()
    ranges = [(e["offset"], e["offset"] + e["length"], e) for e in entities]
    unread = [(start, end) for start, end, e in ranges if e["type"] in _UNREAD_ENTITIES]
    cuts: list[tuple[int, int]] = []
    is_foreign = False
    for start, end, entity in ranges:
        word = units[2 * start : 2 * end].decode("utf-16-le", "replace")
        if any(first <= start < last for first, last in unread):
            continue
        if entity["type"] == "bot_command":
            name, at, bot = word.partition("@")
            if at and f"@{bot}".lower() == own:
                cuts.append((start + len(name), end))
            elif at and start == 0:
                is_foreign = True
        elif (entity["type"] == "mention" and word.lower() == own) or (
            entity["type"] == "text_mention" and entity.get("user", {}).get("id") == me.get("id")
        ):
            cuts.append((start, end))
    for start, end in sorted(cuts, reverse=True):
        units = units[: 2 * start] + units[2 * end :]
    return units.decode("utf-16-le", "replace").strip(), bool(cuts), is_foreign


def _make_api(settings: TelegramSettings, secrets: Secrets) -> tuple[BotApi, str]:
    variable = settings.token_env or _VARIABLE
    token = secrets.get(variable)
    if token is None:
        raise ConfigError(f"{variable} is not set. Run: hermes gateway setup telegram")
    base_url = (settings.base_url or _API).rstrip("/")
    return BotApi(token, base_url, settings.proxy), base_url


def _open_platform(settings: TelegramSettings, secrets: Secrets) -> TelegramPlatform:
    webhook = None
    if settings.webhook_url:
        secret = secrets.get(_WEBHOOK_VARIABLE) or ""
        host, port = settings.webhook_host, settings.webhook_port
        webhook = WebhookAddress(settings.webhook_url, host, port, secret)
    return TelegramPlatform(*_make_api(settings, secrets), webhook)


async def check_token(settings: TelegramSettings, secrets: Secrets) -> str:
    """The name of the bot; ConfigError when the token does not work."""
    api, _ = _make_api(settings, secrets)
    try:
        me = await api.call("getMe")
    except TelegramError as error:
        raise ConfigError(f"{error}. Nothing was saved. Copy the token from @BotFather.") from None
    except Unanswered as error:
        raise ConfigError(f"{error}. Nothing was saved. Check the network and try again.") from None
    finally:
        await api.close()
    return f"@{me.get('username', '')}"


PLATFORM = PlatformSpec("telegram", _VARIABLE, TelegramSettings, _open_platform, check_token)
