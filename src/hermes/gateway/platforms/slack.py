"""Slack: an app in direct messages, channels and threads, connected by Socket Mode."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from hermes.config.platforms import PlatformSettings, is_safe_address
from hermes.config.secrets import Secrets
from hermes.core.errors import ConfigError
from hermes.gateway import texts
from hermes.gateway.adapter import (
    Attachment,
    ButtonPress,
    Capabilities,
    ChatType,
    ConnectionFailure,
    Inbound,
    MenuCommand,
    Part,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.render import split_text
from hermes.gateway.content.slack_markup import count_slack, escape_slack, render_slack
from hermes.gateway.platforms._slack_api import (
    SlackApi,
    SlackError,
    SlackUnanswered,
    explain_failure,
    explain_refusal,
)
from hermes.gateway.transport.payload import MALFORMED, decode_object, read_number
from hermes.llm.http.lazy_tls import load_aiohttp

log = logging.getLogger(__name__)

_API = "https://slack.com/api"
_VARIABLE = "SLACK_BOT_TOKEN"
_APP_VARIABLE = "SLACK_APP_TOKEN"
_LONGEST_SECTION = 2500
"""Slack takes 3,000 characters of markup."""
_REST_SECONDS = 0.2
"""How long a socket that is replaced is still listened to."""
_MOST_NAMES = 1000
_SUBTYPES = frozenset({None, "file_share", "me_message", "thread_broadcast"})
_UNREAD = re.compile(r"```.*?```|`[^`\n]*`|^&gt; ?.*?$", re.DOTALL | re.MULTILINE)
"""A mention inside code or a quotation does not address anybody."""
_ENTITY = re.compile(r"<([^<>|]*)(?:\|([^<>]*))?>")


class SlackSettings(PlatformSettings, frozen=True):
    pass


class SlackPlatform:
    """One app in one workspace. An envelope is acknowledged when its message is stored, and Slack
    sends it again when it is not."""

    capabilities = Capabilities(
        longest_part=4000,
        measure=count_slack,
        render_markup=render_slack,
        edits=True,
        pace=1.2,
        group_pace=1.2,
        typing_seconds=20.0,
        buttons=True,
        bang_commands=True,
    )

    def __init__(self, settings: SlackSettings, api: SlackApi, token: str, app_token: str) -> None:
        self._settings = settings
        self._api = api
        self._token = token
        self._app_token = app_token
        self._me = ""
        self._names: dict[str, str] = {}

    async def run(self, receiver: Receiver) -> None:
        if not is_safe_address(self._api.base_url):
            text = "base_url is plain http to another machine; use https"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        await self._connect()
        socket = await self._api.open_socket(self._app_token)
        try:
            receiver.report_connected()
            while True:
                frame = await self._read_frame(socket)
                if frame.get("type") == "disconnect":
                    socket = await self._replace_socket(receiver, socket)
                    receiver.report_connected()
                else:
                    await self._receive_frame(receiver, socket, frame)
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(2):
                    await asyncio.shield(socket.close())

    async def _connect(self) -> None:
        try:
            found = await self._api.call("auth.test", self._token, {}, form=True)
        except SlackError as error:
            raise explain_refusal(error, _VARIABLE) from None
        except SlackUnanswered as error:
            raise ConnectionFailure("unreachable", str(error)) from None
        self._me = str(found.get("user_id", ""))

    async def _replace_socket(self, receiver: Receiver, old: Any) -> Any:
        """The new socket opens before the old one closes, so nothing falls between them."""
        new = await self._api.open_socket(self._app_token)
        with suppress(ConnectionFailure, TimeoutError):
            while True:
                async with asyncio.timeout(_REST_SECONDS):
                    frame = await self._read_frame(old)
                await self._receive_frame(receiver, old, frame)
        await old.close()
        return new

    async def _read_frame(self, socket: Any) -> dict[str, Any]:
        aiohttp = load_aiohttp()
        message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise ConnectionFailure("unreachable", "Slack ended the connection")
        try:
            return decode_object(message.data.encode(errors="replace"))
        except ValueError:
            raise ConnectionFailure("unreachable", "Slack's socket sent no JSON") from None

    async def _receive_frame(
        self, receiver: Receiver, socket: Any, frame: Mapping[str, Any]
    ) -> None:
        """Store what the frame brings, then acknowledge it."""
        envelope = frame.get("envelope_id")
        if not envelope:
            return
        answer: dict[str, Any] = {"envelope_id": envelope}
        try:
            text = await self._receive_payload(receiver, frame["type"], frame.get("payload") or {})
            if text and frame.get("accepts_response_payload"):
                answer["payload"] = {"text": text}
        except MALFORMED:  # not what Slack describes
            log.exception("an event of Slack was left out")
        with suppress(ConnectionError):
            await socket.send_str(msgspec.json.encode(answer).decode())

    async def _receive_payload(
        self, receiver: Receiver, kind: str, payload: Mapping[str, Any]
    ) -> str:
        """Returns what is shown to the person alone."""
        match kind:
            case "events_api":
                message = await self._read_event(payload["event"])
                if message is not None:
                    await receiver.receive_message(message)
            case "slash_commands":
                message = read_command(payload)
                is_new = await receiver.receive_message(message)
                return message.text if is_new else texts.NOT_HERE
            case "interactive" if payload.get("type") == "block_actions":
                await self._receive_press(receiver, payload)
        return ""

    async def _receive_press(self, receiver: Receiver, payload: Mapping[str, Any]) -> None:
        press = read_press(payload)
        text = await receiver.receive_press(press)
        if text:
            try:
                await self._call(
                    "chat.postEphemeral",
                    channel=press.chat,
                    user=press.user,
                    text=escape_slack(text),
                )
            except SendFailure as failure:
                log.info("a button press was not answered: %s", failure)

    async def _read_event(self, event: Mapping[str, Any]) -> Inbound | None:
        message = read_message(event, self._me)
        if message is None or message.is_bot or not self._may_be_known(message):
            return message
        name = await self._find_name(message.user)
        return msgspec.structs.replace(message, user_name=name)

    def _may_be_known(self, message: Inbound) -> bool:
        return self._settings.lets_in(message.user) or self._settings.group_members

    async def _find_name(self, user: str) -> str:
        if user not in self._names:
            while len(self._names) >= _MOST_NAMES:
                del self._names[next(iter(self._names))]
            self._names[user] = user
            with suppress(SlackError, SlackUnanswered):
                found = await self._api.call("users.info", self._token, {"user": user}, form=True)
                profile = found["user"].get("profile") or {}
                name = profile.get("display_name") or profile.get("real_name")
                self._names[user] = str(name or found["user"].get("name") or user)
        return self._names[user]

    async def send_part(self, target: Target, part: Part) -> str:
        answer = await self._call(
            "chat.postMessage",
            channel=target.chat,
            thread_ts=target.thread or None,
            unfurl_links=False,
            unfurl_media=False,
            link_names=False,
            **_text_fields(part),
        )
        return str(answer["ts"])

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        fields = {"blocks": [], "link_names": False, **_text_fields(part)}
        await self._call("chat.update", channel=target.chat, ts=id, **fields)

    async def delete_part(self, target: Target, id: str) -> None:
        try:
            await self._call("chat.delete", channel=target.chat, ts=id)
        except SendFailure as failure:
            if failure.kind not in ("rejected", "edit_lost"):
                raise

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        size = str(len(content))
        place = await self._call(
            "files.getUploadURLExternal", form=True, filename=name, length=size
        )
        try:
            await self._api.upload(str(place["upload_url"]), content)
        except (SlackError, SlackUnanswered) as error:
            raise SendFailure("certain", str(error)) from None  # nothing is shown yet
        await self._call(
            "files.completeUploadExternal",
            files=[{"id": place["file_id"], "title": name}],
            channel_id=target.chat,
            thread_ts=target.thread or None,
        )
        return str(place["file_id"])

    async def show_typing(self, target: Target) -> None:
        if target.thread:  # the status line belongs to a thread
            await self._call(
                "assistant.threads.setStatus",
                channel_id=target.chat,
                thread_ts=target.thread,
                status="is thinking…",
            )

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        await self._api.download(attachment.ref, self._token, write)

    async def publish_commands(
        self, commands: tuple[MenuCommand, ...], admins: tuple[str, ...]
    ) -> None:
        return None  # Slack has one command, which the app's manifest declares

    async def close(self) -> None:
        await self._api.close()

    async def _call(self, method: str, *, form: bool = False, **fields: Any) -> dict[str, Any]:
        try:
            return await self._api.call(method, self._token, fields, form=form)
        except (SlackError, SlackUnanswered) as error:
            raise explain_failure(error) from None


def _text_fields(part: Part) -> dict[str, Any]:
    text = part.markup or escape_slack(part.text)
    if not part.buttons:
        return {"text": text}
    write = render_slack if part.markup else escape_slack
    sections = [
        {"type": "section", "text": {"type": "mrkdwn", "text": write(piece)}}
        for piece in split_text(part.text, _LONGEST_SECTION, count_slack)
    ]
    buttons = [
        {
            "type": "button",
            "text": {"type": "plain_text", "text": button.label[:75]},
            "value": button.data,
            "action_id": f"choice{index}",
        }
        for index, button in enumerate(part.buttons)
    ]
    return {"text": text, "blocks": [*sections, {"type": "actions", "elements": buttons}]}


def _find_type(chat: str) -> ChatType:
    return "dm" if chat.startswith("D") else "group"


def read_message(event: Mapping[str, Any], me: str) -> Inbound | None:
    """An event in the gateway's words; None when it is no message of anybody."""
    if event.get("type") not in ("message", "app_mention"):
        return None
    chat = str(event["channel"])
    is_edited = event.get("subtype") == "message_changed"
    message: Mapping[str, Any] = event["message"] if is_edited else event
    if message.get("subtype") not in _SUBTYPES:
        return None
    if is_edited and (event.get("previous_message") or {}).get("text") == message.get("text"):
        return None  # a link preview was added
    text, is_mentioned = _read_text(str(message.get("text") or ""), me)
    attachments = _read_files(message.get("files") or ())
    if not text and not attachments and not is_mentioned:
        return None
    ts = str(message["ts"])
    is_direct = event.get("channel_type") == "im" or _find_type(chat) == "dm"
    # In a channel the answer opens a thread below the message, and the conversation is there.
    thread = str(message.get("thread_ts") or ("" if is_direct else ts))
    return Inbound(
        chat=chat,
        chat_type="dm" if is_direct else "group",
        user=str(message.get("user") or message.get("bot_id") or ""),
        id=ts,
        text=text,
        thread=thread,
        user_name=str(message.get("user") or ""),
        is_bot="bot_id" in message or message.get("user") in (None, me, "USLACKBOT"),
        addressed=is_mentioned or message.get("parent_user_id") == me,
        sent=read_number(ts),
        attachments=attachments,
        edited=is_edited,
    )


def _read_files(files: Any) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            str(file.get("url_private_download") or file.get("url_private") or ""),
            str(file.get("name") or ""),
            str(file.get("mimetype") or ""),
            int(read_number(file.get("size"))),
            file.get("subtype") == "slack_audio",
        )
        for file in files
    )


def _read_text(text: str, me: str) -> tuple[str, bool]:
    """The text as its author saw it, without mentions of the app, and whether there was one."""
    unread = [found.span() for found in _UNREAD.finditer(text)]
    is_mentioned = False

    def read_entity(found: re.Match[str]) -> str:
        nonlocal is_mentioned
        target, label = found[1], found[2]
        if target != f"@{me}":
            return _name_entity(target, label or "")
        if any(first <= found.start() < last for first, last in unread):
            return target
        is_mentioned = True
        return ""

    plain = _ENTITY.sub(read_entity, text).strip()
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"), is_mentioned


def _name_entity(target: str, label: str) -> str:
    """What a person, a channel or a link is called in a text."""
    match target[:1]:
        case "@" | "#" as mark:
            return mark + (label or target[1:])
        case "!":
            return label or f"@{target[1:]}"
    return f"{label} ({target})" if label and label not in target else target


def read_command(payload: Mapping[str, Any]) -> Inbound:
    """`/hermes status` as the message `/status`."""
    words = str(payload.get("text") or "").strip().removeprefix("/") or "help"
    chat = str(payload["channel_id"])
    return Inbound(
        chat=chat,
        chat_type=_find_type(chat),
        user=str(payload["user_id"]),
        id=str(payload["trigger_id"]),
        text=f"/{words}",
        user_name=str(payload.get("user_name") or ""),
        addressed=True,
    )


def read_press(payload: Mapping[str, Any]) -> ButtonPress:
    action, user = payload["actions"][0], payload["user"]
    chat = str((payload.get("channel") or payload["container"]).get("id") or "")
    chat = chat or str(payload["container"]["channel_id"])
    name = str(user.get("name") or user.get("username") or "")
    data = str(action.get("value", ""))
    id = str(payload.get("trigger_id") or action.get("action_ts") or "")
    return ButtonPress(id, chat, _find_type(chat), str(user["id"]), name, data)


def _require_tokens(settings: SlackSettings, secrets: Secrets) -> tuple[str, str]:
    variables = (settings.token_env or _VARIABLE, _APP_VARIABLE)
    token, app_token = (secrets.get(variable) for variable in variables)
    if token is None or app_token is None:
        missing = variables[0] if token is None else variables[1]
        raise ConfigError(f"{missing} is not set. Run: hermes gateway setup slack")
    return token, app_token


def _make_api(settings: SlackSettings) -> SlackApi:
    return SlackApi((settings.base_url or _API).rstrip("/"), settings.proxy)


def _open_platform(settings: SlackSettings, secrets: Secrets) -> SlackPlatform:
    return SlackPlatform(settings, _make_api(settings), *_require_tokens(settings, secrets))


async def check_tokens(settings: SlackSettings, secrets: Secrets) -> str:
    """The name of the app; ConfigError when a token does not work."""
    token, app_token = _require_tokens(settings, secrets)
    api = _make_api(settings)
    variable = _VARIABLE
    try:
        found = await api.call("auth.test", token, {}, form=True)
        variable = _APP_VARIABLE
        await api.call("apps.connections.open", app_token, {}, form=True)
    except SlackError as error:
        raise ConfigError(f"{explain_refusal(error, variable)}. Nothing was saved.") from None
    except SlackUnanswered as error:
        raise ConfigError(f"{error}. Nothing was saved. Check the network and try again.") from None
    finally:
        await api.close()
    return f"@{found.get('user', '')} in {found.get('team', '')}"


PLATFORM = PlatformSpec(
    "slack", _VARIABLE, SlackSettings, _open_platform, check_tokens, (_APP_VARIABLE,)
)
