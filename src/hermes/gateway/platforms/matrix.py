"""Matrix: one account on a homeserver, in encrypted rooms too."""

import asyncio
import logging
import mimetypes
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.platforms import is_safe_address
from hermes.config.private_files import replace_file
from hermes.config.secrets import Secrets
from hermes.gateway import texts
from hermes.gateway.adapter import (
    Attachment,
    Capabilities,
    ConnectionFailure,
    Part,
    PlatformSpec,
    Receiver,
    SendFailure,
    Target,
)
from hermes.gateway.content.render import count_bytes
from hermes.gateway.content.web_markup import render_web_html
from hermes.gateway.platforms._matrix_client import (
    PASSWORD,
    TOKEN,
    MatrixAccount,
    MatrixRefusal,
    MatrixSettings,
    call_homeserver,
    check_token,
    deliver_call,
    open_client,
    read_account,
    upload_file,
)
from hermes.gateway.platforms._matrix_events import (
    MediaRef,
    RoomView,
    make_content,
    make_relation,
    read_event,
    read_relation,
)
from hermes.llm.http.lazy_tls import load_aiohttp

log = logging.getLogger(__name__)

SYNC_SECONDS = 30
DEAD_SECONDS = 90.0
"""A sync without an answer for so long is dead."""
TYPING_SECONDS = 25
KEY_SECONDS = 5.0
"""How long the key of a message may come later than the message."""
FORGET_SECONDS = 600.0
FIRST_SECONDS = 86400.0
_PAGE = 100
_MOST_PAGES = 50
_FILTER = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {"timeline": {"limit": _PAGE}, "ephemeral": {"types": []}},
}
_MXC = re.compile(r"mxc://([A-Za-z0-9.:\[\]-]+)/([A-Za-z0-9_-]+)")


class MatrixState(Struct):
    """What a restart must know."""

    since: str = ""
    """Up to here every message was stored."""
    device: str = ""
    told_rooms: list[str] = []
    """Rooms that know that something could not be decrypted."""


class MatrixPlatform:
    """One device of an account. The sync token is stored after the messages before it."""

    capabilities = Capabilities(
        longest_part=20_000,
        measure=count_bytes,
        render_markup=render_web_html,
        edits=True,
        pace=1.5,
        group_pace=1.5,
        typing_seconds=20.0,
        bang_commands=True,
    )

    def __init__(self, settings: MatrixSettings, account: MatrixAccount) -> None:
        self._settings = settings
        self._account = account
        self._client: Any = None
        self._state = MatrixState()
        self._state_file = Path()
        self._is_ready = False
        self._undecrypted: dict[str, tuple[Any, float]] = {}

    async def run(self, receiver: Receiver) -> None:
        if not is_safe_address(self._account.homeserver):
            text = "the homeserver is plain http on another machine; use https"
            raise ConnectionFailure("unconfigured", text, fatal=True)
        aiohttp = load_aiohttp()
        try:
            if self._client is None:
                self._load_state(receiver.open_folder())
                self._client = open_client(
                    self._account, self._settings, self._state_file.parent, self._state.device
                )
            await self._log_in()
            await self._follow_rooms(receiver)
        except MatrixRefusal as refusal:
            raise self._explain_refusal(refusal) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            text = f"the homeserver cannot be reached ({type(error).__name__})"
            raise ConnectionFailure("unreachable", text) from None
        finally:
            if self._client is not None:
                await self._client.close()

    def _load_state(self, folder: Path) -> None:
        self._state_file = folder / "state.json"
        try:
            self._state = msgspec.json.decode(self._state_file.read_bytes(), type=MatrixState)
        except (OSError, msgspec.DecodeError):
            self._state = MatrixState()

    def _save_state(self) -> None:
        replace_file(self._state_file, msgspec.json.encode(self._state))

    async def _log_in(self) -> None:
        client, account = self._client, self._account
        if account.token:
            client.access_token = account.token
            found = await call_homeserver(client.whoami())
            device = account.device or found.device_id
            if not device:
                text = "the access token belongs to no device; log in with MATRIX_PASSWORD"
                raise ConnectionFailure("unconfigured", text, fatal=True)
            client.restore_login(found.user_id, device, account.token)
        elif not client.access_token:
            client.device_id = account.device or self._state.device or None
            await call_homeserver(client.login(account.password, device_name="Hermes"))
        if self._state.device != client.device_id:
            self._state.device = client.device_id
            self._state.since = ""  # another device: nothing was confirmed for it
            self._save_state()

    async def _follow_rooms(self, receiver: Receiver) -> None:
        client, state = self._client, self._state
        # nio skips an answer that it has seen, although we may not have stored its messages.
        client.next_batch = ""
        is_first = True
        while True:
            is_waiting = any(self._is_untold(event) for event, _ in self._undecrypted.values())
            seconds = 0 if is_first else KEY_SECONDS if is_waiting else SYNC_SECONDS
            async with asyncio.timeout(DEAD_SECONDS):
                response = await call_homeserver(
                    client.sync(
                        timeout=int(seconds * 1000),
                        since=state.since or None,
                        full_state=is_first,
                        sync_filter=_FILTER,
                    )
                )
            await self._exchange_keys()
            for room_id, info in response.rooms.join.items():
                await self._receive_timeline(receiver, room_id, info.timeline)
            for room_id, info in response.rooms.invite.items():
                await self._answer_invitation(room_id, info.invite_state)
            await self._retry_undecrypted(receiver)
            state.since = response.next_batch
            self._save_state()
            if is_first:
                is_first, self._is_ready = False, True
                receiver.report_connected()

    async def _exchange_keys(self) -> None:
        client = self._client
        if client.olm is None:
            return
        await client.send_to_device_messages()
        if client.should_upload_keys:
            await call_homeserver(client.keys_upload())
        if client.should_query_keys:
            await call_homeserver(client.keys_query())
        if client.should_claim_keys:
            await call_homeserver(client.keys_claim(client.get_users_for_key_claiming()))

    async def _receive_timeline(self, receiver: Receiver, room_id: str, timeline: Any) -> None:
        events = list(timeline.events)
        entered = _find_entry(events, self._client.user_id)
        if entered is not None:
            events = events[entered:]  # what was said before the invitation was not said to us
        elif timeline.limited and self._state.since:
            events = await self._fetch_gap(room_id, timeline.prev_batch) + events
        if not self._state.since:
            events = _list_unanswered(events, self._client.user_id)
        for event in events:
            await self._receive_event(receiver, room_id, event)

    async def _fetch_gap(self, room_id: str, start: str) -> list[Any]:
        """What came since the last stored message and did not fit into the answer."""
        found: list[Any] = []
        for _ in range(_MOST_PAGES):
            page = await call_homeserver(
                self._client.room_messages(room_id, start, end=self._state.since, limit=_PAGE)
            )
            found += page.chunk
            if not page.chunk or not page.end:
                break
            start = page.end
        return found[::-1]

    async def _receive_event(self, receiver: Receiver, room_id: str, event: Any) -> None:
        from nio import MegolmEvent

        if isinstance(event, MegolmEvent):
            if event.sender != self._client.user_id:
                self._undecrypted[event.event_id] = (event, time.monotonic())
            return
        source = getattr(event, "source", None)
        if not isinstance(source, dict) or source.get("type") != "m.room.message":
            return
        room = self._client.rooms.get(room_id)
        if room is None or source.get("sender") == self._client.user_id:
            return
        try:
            view = self._view_room(room, str(source["sender"]))
            answered = await self._find_answered(room_id, source)
            message = read_event(source, room_id, view, answered)
        except (KeyError, TypeError, AttributeError, ValueError):  # not what Matrix describes
            log.exception("an event of Matrix was left out")
            return
        if message is not None:
            await receiver.receive_message(message)

    def _view_room(self, room: Any, sender: str) -> RoomView:
        """A room with one other person is a direct chat, unless it is listed as a group."""
        is_listed = room.room_id in self._settings.allowed_chats
        chat_type = "dm" if room.member_count <= 2 and not is_listed else "group"
        me = self._client.user_id
        names = room.user_name(me) or "", room.user_name(sender) or ""
        return RoomView(me, names[0], "dm" if chat_type == "dm" else "group", names[1])

    async def _find_answered(self, room_id: str, source: dict[str, Any]) -> tuple[str, str]:
        """The sender and the text of the message that this one replies to."""
        id = read_relation(source["content"]).replies_to
        if not id or not self._may_know(str(source["sender"]), room_id):
            return "", ""
        from nio import ErrorResponse, MegolmEvent
        from nio.exceptions import EncryptionError

        response = await self._client.room_get_event(room_id, id)
        if isinstance(response, ErrorResponse):
            return "", ""
        event = response.event
        if isinstance(event, MegolmEvent):
            event.room_id = room_id
            try:
                event = self._client.decrypt_event(event)
            except EncryptionError:
                return event.sender, ""
        return event.sender, str(event.source.get("content", {}).get("body") or "")

    def _may_know(self, user: str, room_id: str) -> bool:
        """Whether something may be fetched or said because of this person."""
        settings = self._settings
        if user in settings.allowed_users or settings.allow_all_users or settings.pairs_people:
            return True
        return settings.group_members and room_id in settings.allowed_chats

    async def _answer_invitation(self, room_id: str, events: list[Any]) -> None:
        """Join when an allowed person invites. While codes are given out, everybody may open a
        direct chat, since that is where a code is said."""
        found = next(
            (e for e in events if getattr(e, "state_key", None) == self._client.user_id), None
        )
        if found is None or getattr(found, "membership", "") != "invite":
            return
        settings = self._settings
        is_direct = bool(found.content.get("is_direct"))
        is_allowed = found.sender in settings.allowed_users or settings.allow_all_users
        if not is_allowed and not (settings.pairs_people and is_direct):
            log.info("an invitation of %s was ignored", found.sender)
            return
        try:
            await call_homeserver(self._client.join(room_id))
        except MatrixRefusal as refusal:
            if refusal.status == 429 or refusal.status >= 500:
                raise  # the token is not stored, so the invitation comes again
            log.info("the room %s cannot be joined: %s", room_id, refusal)

    async def _retry_undecrypted(self, receiver: Receiver) -> None:
        from nio.exceptions import EncryptionError

        now = time.monotonic()
        for id, (event, began) in list(self._undecrypted.items()):
            try:
                if self._client.olm is None:
                    raise EncryptionError("encryption is off")
                readable = self._client.decrypt_event(event)
            except EncryptionError:
                if now - began >= KEY_SECONDS and self._is_untold(event):
                    await self._tell_undecrypted(event)
                if now - began >= FORGET_SECONDS:
                    del self._undecrypted[id]
                continue
            del self._undecrypted[id]
            await self._receive_event(receiver, event.room_id, readable)

    def _is_untold(self, event: Any) -> bool:
        return event.room_id not in self._state.told_rooms

    async def _tell_undecrypted(self, event: Any) -> None:
        self._state.told_rooms.append(event.room_id)
        log.warning("a message in the Matrix room %s could not be decrypted", event.room_id)
        if self._client.olm is None or not self._may_know(event.sender, event.room_id):
            return
        try:
            await self.send_part(Target(event.room_id), Part(texts.UNDECRYPTED))
        except SendFailure as failure:
            log.info("the notice was not delivered: %s", failure)

    def _explain_refusal(self, refusal: MatrixRefusal) -> ConnectionFailure:
        is_login = refusal.status == 403 and not self._client.access_token
        if refusal.status == 401 and not self._account.token:
            self._client.access_token = ""  # the session ended; the password opens another
            return ConnectionFailure("unreachable", str(refusal))
        if refusal.status == 401 or is_login:
            what = TOKEN if self._account.token else PASSWORD
            text = f"the homeserver refused {what}; run: hermes gateway setup matrix"
            return ConnectionFailure("unauthorized", text, fatal=True)
        return ConnectionFailure("unreachable", str(refusal), wait=refusal.wait or None)

    async def send_part(self, target: Target, part: Part) -> str:
        return await self._send_content(target, make_content(part, target))

    async def edit_part(self, target: Target, id: str, part: Part) -> None:
        await self._send_content(Target(target.chat), make_content(part, edited=id))

    async def delete_part(self, target: Target, id: str) -> None:
        await deliver_call(target, self._require_client().room_redact(target.chat, id))

    async def send_file(self, target: Target, path: str, name: str) -> str:
        client = self._require_client()
        is_encrypted = self._require_room(target.chat).encrypted
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        try:
            data = await asyncio.to_thread(Path(path).read_bytes)
        except OSError as error:
            raise SendFailure("rejected", f"{name}: {error.strerror}") from None
        answer, keys = await upload_file(client, data, kind, name, encrypt=is_encrypted)
        media = kind.partition("/")[0]
        content: dict[str, Any] = {
            "msgtype": f"m.{media}" if media in ("image", "audio", "video") else "m.file",
            "body": name,
            "filename": name,
            "info": {"mimetype": kind, "size": len(data)},
        }
        if keys:
            content["file"] = {**keys, "url": answer.content_uri}
        else:
            content["url"] = answer.content_uri
        return await self._send_content(target, content | make_relation(target))

    async def _send_content(self, target: Target, content: dict[str, Any]) -> str:
        client = self._require_client()
        self._require_room(target.chat)
        sending = client.room_send(
            target.chat, "m.room.message", content, ignore_unverified_devices=True
        )
        return str((await deliver_call(target, sending)).event_id)

    def _require_client(self) -> Any:
        if not self._is_ready:
            raise SendFailure("certain", "the homeserver is not connected yet")
        return self._client

    def _require_room(self, chat: str) -> Any:
        """The room; SendFailure when we are not in it, or could not encrypt for it."""
        room = self._client.rooms.get(chat)
        if room is None:
            raise SendFailure("gone", "the account is not in this room")
        if room.encrypted and self._client.olm is None:
            text = "the room is encrypted and platforms.matrix.encryption is false"
            raise SendFailure("rejected", text)
        return room

    async def show_typing(self, target: Target) -> None:
        typing = self._require_client().room_typing(target.chat, timeout=TYPING_SECONDS * 1000)
        await deliver_call(target, typing)

    async def fetch_attachment(
        self, attachment: Attachment, write: Callable[[bytes], None], limit: int
    ) -> None:
        ref = msgspec.json.decode(attachment.ref, type=MediaRef)
        found = _MXC.fullmatch(ref.mxc)
        if found is None:
            raise SendFailure("rejected", "its address is not valid")
        if not ref.key:
            await self._download(found[1], found[2], write)
            return
        from nio.crypto.attachments import decrypt_attachment
        from nio.exceptions import EncryptionError

        pieces = bytearray()

        def collect(piece: bytes) -> None:
            pieces.extend(piece)
            if len(pieces) > limit:
                raise SendFailure("rejected", f"it is larger than {limit:,} bytes")

        await self._download(found[1], found[2], collect)
        try:
            write(decrypt_attachment(bytes(pieces), ref.key, ref.hash, ref.iv))
        except (EncryptionError, ValueError):
            raise SendFailure("rejected", "it could not be decrypted") from None

    async def _download(self, server: str, media: str, write: Callable[[bytes], None]) -> None:
        aiohttp = load_aiohttp()
        client = self._client
        path = f"/_matrix/client/v1/media/download/{server}/{media}"
        headers = {"Authorization": f"Bearer {client.access_token}"}
        try:
            response = await client.send("GET", path, headers=headers, timeout=300)
            async with response:
                if response.status != 200:
                    text = f"the homeserver answered {response.status}"
                    raise SendFailure("rejected", text)
                async for piece in response.content.iter_any():
                    write(piece)
        except (aiohttp.ClientError, TimeoutError) as error:
            text = f"the connection to the homeserver broke ({type(error).__name__})"
            raise SendFailure("certain", text) from None

    async def publish_commands(self, commands: tuple[tuple[str, str], ...]) -> None:
        return None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def _find_entry(events: list[Any], me: str) -> int | None:
    """Where our own invitation or entry is, if the account came into the room just now."""
    own = [
        (index, getattr(event, "membership", ""))
        for index, event in enumerate(events)
        if getattr(event, "state_key", None) == me
        and getattr(event, "membership", "") in ("invite", "join")
        and getattr(event, "prev_membership", "") != "join"
    ]
    return own[0][0] if own else None


def _list_unanswered(events: list[Any], me: str) -> list[Any]:
    """At the very first start: what was said in the last day, after our last word, and not to
    another device of ours."""
    from nio import MegolmEvent

    oldest = (time.time() - FIRST_SECONDS) * 1000
    found: list[Any] = []
    for event in events:
        if getattr(event, "sender", "") == me and not hasattr(event, "membership"):
            found = []
        elif not isinstance(event, MegolmEvent) and event.server_timestamp >= oldest:
            found.append(event)
    return found


def _open_platform(settings: MatrixSettings, secrets: Secrets) -> MatrixPlatform:
    return MatrixPlatform(settings, read_account(settings, secrets))


PLATFORM = PlatformSpec(
    "matrix",
    TOKEN,
    MatrixSettings,
    _open_platform,
    check_token,
    more_variables=("MATRIX_HOMESERVER",),
)
