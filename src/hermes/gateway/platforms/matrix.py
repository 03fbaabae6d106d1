"""Matrix: one account on a homeserver, in encrypted rooms too."""

import asyncio
import logging
import mimetypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hermes.config.platforms import is_safe_address
from hermes.config.private_files import replace_file
from hermes.config.secrets import Secrets
from hermes.gateway.adapter import (
    Attachment,
    Capabilities,
    ConnectionFailure,
    MenuCommand,
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
    make_content,
    make_relation,
)
from hermes.gateway.platforms._matrix_intake import (
    KEY_SECONDS,
    PAGE,
    MatrixState,
    RoomIntake,
)
from hermes.llm.http.lazy_tls import load_aiohttp

log = logging.getLogger(__name__)

SYNC_SECONDS = 30
DEAD_SECONDS = 90.0
"""A sync without an answer for so long is dead."""
TYPING_SECONDS = 25
_FILTER = {
    "presence": {"types": []},
    "account_data": {"types": []},
    "room": {"timeline": {"limit": PAGE}, "ephemeral": {"types": []}},
}
_MXC = re.compile(r"mxc://([A-Za-z0-9.:\[\]-]+)/([A-Za-z0-9_-]+)")


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
        marks_bots=False,
    )

    def __init__(self, settings: MatrixSettings, account: MatrixAccount) -> None:
        self._settings = settings
        self._account = account
        self._client: Any = None
        self._state = MatrixState()
        self._state_file = Path()
        self._is_ready = False

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
        intake = RoomIntake(client, self._settings, state, receiver, self._say)
        # nio skips an answer that it has seen, although we may not have stored its messages.
        client.next_batch = ""
        is_first = True
        while True:
            seconds = KEY_SECONDS if intake.waits_for_keys else SYNC_SECONDS
            async with asyncio.timeout(DEAD_SECONDS):
                response = await call_homeserver(
                    client.sync(
                        timeout=0 if is_first else int(seconds * 1000),
                        since=state.since or None,
                        full_state=is_first,
                        sync_filter=_FILTER,
                    )
                )
            await self._exchange_keys()
            for room_id, info in response.rooms.join.items():
                await intake.receive_timeline(room_id, info.timeline)
            for room_id, info in response.rooms.invite.items():
                await intake.answer_invitation(room_id, info.invite_state)
            await intake.retry_undecrypted()
            state.since = response.next_batch
            self._save_state()
            if is_first:
                is_first, self._is_ready = False, True
                receiver.report_connected()

    async def _say(self, room_id: str, text: str) -> None:
        await self.send_part(Target(room_id), Part(text))

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

    async def send_file(self, target: Target, content: bytes, name: str) -> str:
        client = self._require_client()
        is_encrypted = self._require_room(target.chat).encrypted
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        answer, keys = await upload_file(client, content, kind, name, encrypt=is_encrypted)
        media = kind.partition("/")[0]
        event: dict[str, Any] = {
            "msgtype": f"m.{media}" if media in ("image", "audio", "video") else "m.file",
            "body": name,
            "filename": name,
            "info": {"mimetype": kind, "size": len(content)},
        }
        if keys:
            event["file"] = {**keys, "url": answer.content_uri}
        else:
            event["url"] = answer.content_uri
        return await self._send_content(target, event | make_relation(target))

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

    async def publish_commands(
        self, commands: tuple[MenuCommand, ...], admins: tuple[str, ...]
    ) -> None:
        return None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()


def _open_platform(settings: MatrixSettings, secrets: Secrets) -> MatrixPlatform:
    return MatrixPlatform(settings, read_account(settings, secrets))


PLATFORM = PlatformSpec(
    "matrix",
    TOKEN,
    MatrixSettings,
    _open_platform,
    check_token,
    alternative=PASSWORD,
    more_variables=("MATRIX_HOMESERVER",),
)
