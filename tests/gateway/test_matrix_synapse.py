"""Matrix on a real homeserver, with a second client in encrypted and open rooms."""

from __future__ import annotations

import asyncio
import io
import json
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nio
import pytest
from nio.store import SqliteMemoryStore

from hermes.gateway import texts
from tests.gateway.gateways import GatewayProcess
from tests.gateway.platform_runs import list_prompts, platform_gateway
from tests.kit import say
from tests.kit.synapse import Synapse, synapse

pytestmark = pytest.mark.e2e

BOT = "@bot:localhost"
ALICE = "@alice:localhost"
PASSWORD = "kit-password-of-the-bot-7f3a"
ENCRYPTION = {
    "type": "m.room.encryption",
    "state_key": "",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


def in_thread(root: str) -> dict[str, Any]:
    return {"m.relates_to": {"rel_type": "m.thread", "event_id": root}}


class Person:
    """A client of somebody: what it is shown in a room, with edits applied."""

    def __init__(self, url: str, user: str) -> None:
        config = nio.AsyncClientConfig(store=SqliteMemoryStore, store_sync_tokens=False)
        self.client = nio.AsyncClient(url, user, store_path="", config=config)
        self.events: list[dict[str, Any]] = []
        self.changed = asyncio.Condition()

    async def log_in(self) -> None:
        answer = await self.client.login("pw-of-a-person")
        assert isinstance(answer, nio.LoginResponse), answer
        self.client.load_store()
        self.client.add_event_callback(self._note, nio.Event)

    async def _note(self, room: nio.MatrixRoom, event: nio.Event) -> None:
        encrypted = bool(event.decrypted) or isinstance(event, nio.MegolmEvent)
        row = {**event.source, "room": room.room_id, "encrypted": encrypted}
        async with self.changed:
            self.events.append(row)
            self.changed.notify_all()

    async def open_room(self, *invited: str, encrypted: bool, direct: bool = False) -> str:
        answer = await self.client.room_create(
            is_direct=direct, invite=invited, initial_state=(ENCRYPTION,) if encrypted else ()
        )
        assert isinstance(answer, nio.RoomCreateResponse), answer
        return answer.room_id

    async def say(self, room: str, text: str, **content: Any) -> str:
        body = {"msgtype": "m.text", "body": text, **content}
        return await self.send(room, body)

    async def send(self, room: str, content: dict[str, Any]) -> str:
        await self.until(lambda: room in self.client.rooms)
        answer = await self.client.room_send(
            room, "m.room.message", content, ignore_unverified_devices=True
        )
        assert isinstance(answer, nio.RoomSendResponse), answer
        return answer.event_id

    async def send_undecryptable(self, room: str, n: int) -> None:
        """An encrypted message whose key nobody has."""
        content = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "ciphertext": "AwgAEnACgAkLmt6qF84IK++J7UDH2Za1YVchHyprqTqsg",
            "device_id": self.client.device_id,
            "sender_key": "IlRMeOPX2e0MurIyfWEucYBRVOEEUMrOHqn/8mLqMjA",
            "session_id": "X3lUlvLELLYxeTx4yOVu6UDpasGEVO0Jbu+QFnm0cKQ",
        }
        path = f"/_matrix/client/v3/rooms/{room}/send/m.room.encrypted/kit-{n}"
        headers = {"Authorization": f"Bearer {self.client.access_token}"}
        answer = await self.client.send("PUT", path, json.dumps(content), headers)
        assert answer.status == 200, await answer.text()

    def shown(self, room: str) -> list[str]:
        """What the bot says in the room now."""
        found: dict[str, str] = {}
        for event in self.events:
            content = event.get("content", {})
            if event["room"] != room or event["sender"] != BOT or "body" not in content:
                continue
            relation = content.get("m.relates_to", {})
            new = relation.get("rel_type") == "m.replace"
            id = relation["event_id"] if new else event["event_id"]
            found[id] = (content["m.new_content"] if new else content)["body"]
        return list(found.values())

    async def until(self, test: Callable[[], Any], timeout: float = 120) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not test():
                    async with self.changed:
                        try:
                            async with asyncio.timeout(1):
                                await self.changed.wait()
                        except TimeoutError:
                            continue
        except TimeoutError:
            raise AssertionError(f"it did not happen; events: {self.events[-8:]}") from None

    async def until_shown(self, room: str, text: str) -> None:
        await self.until(lambda: text in self.shown(room))

    async def until_joined(self, room: str, user: str = BOT) -> None:
        def joined() -> bool:
            found = self.client.rooms.get(room)
            return found is not None and user in found.users and user not in found.invited_users

        await self.until(joined)


@asynccontextmanager
async def person(server: Synapse, name: str) -> AsyncIterator[Person]:
    await server.register(name, "pw-of-a-person")
    made = Person(server.url, f"@{name}:localhost")
    await made.log_in()
    syncing = asyncio.create_task(made.client.sync_forever(2000, full_state=True))
    try:
        yield made
    finally:
        syncing.cancel()
        await asyncio.gather(syncing, return_exceptions=True)
        await made.client.close()


@asynccontextmanager
async def matrix_gateway(
    root: Path, server: Synapse, *steps: Any, **settings: Any
) -> AsyncIterator[GatewayProcess]:
    env = {"MATRIX_PASSWORD": PASSWORD, "MATRIX_HOMESERVER": server.url, "MATRIX_USER_ID": BOT}
    given = {"enabled": True, "allowed_users": [ALICE], **settings}
    async with platform_gateway(root, "matrix", given, env, steps) as g:
        yield g


async def test_an_encrypted_room_from_the_invitation_to_a_restart(tmp_path: Path) -> None:
    async with synapse(tmp_path / "synapse") as server:
        await server.register("bot", PASSWORD)
        async with person(server, "alice") as alice, person(server, "mallory") as mallory:
            long = "word " * 300
            steps = (
                say("Hello **you**."),
                say(*[f"{long} {n} " for n in range(6)]).bytes_each(2000).slow(0.05),
                say("Done.\nMEDIA:out.txt"),
                say("Seen."),
                say("After the restart."),
                say("To the root."),
                say("In the thread."),
                say("Still here."),
            )
            async with matrix_gateway(tmp_path, server, *steps) as g:
                g.home.file("out.txt", "sent along")
                foreign = await mallory.open_room(BOT, encrypted=False, direct=True)
                room = await alice.open_room(BOT, encrypted=True, direct=True)
                await alice.until_joined(room)
                await alice.say(room, "hi")
                await alice.until_shown(room, "Hello **you**.")
                html = [
                    e["content"].get("formatted_body") for e in alice.events if e["sender"] == BOT
                ]
                assert "Hello <b>you</b>." in html

                await alice.say(room, "tell me more")
                await alice.until(
                    lambda: len(alice.shown(room)) > 1 and alice.shown(room)[1].endswith(" 5")
                )
                edits = [e for e in alice.events if "m.new_content" in e.get("content", {})]
                assert edits, "the answer was shown while it was written"

                await alice.say(room, "a file please")
                await alice.until_shown(room, "out.txt")
                (file,) = [
                    e for e in alice.events if e.get("content", {}).get("msgtype") == "m.file"
                ]
                assert "url" not in file["content"] and file["encrypted"]
                sent = await alice.client.download(file["content"]["file"]["url"])
                assert b"sent along" not in sent.body

                answer, keys = await alice.client.upload(
                    io.BytesIO(b"secret notes"),
                    "text/plain",
                    "notes.txt",
                    encrypt=True,
                    filesize=12,
                )
                assert keys is not None
                note = {
                    "msgtype": "m.file",
                    "body": "notes.txt",
                    "info": {"mimetype": "text/plain"},
                }
                await alice.send(room, {**note, "file": {**keys, "url": answer.content_uri}})
                await alice.until_shown(room, "Seen.")
                assert "(text/plain, 12 bytes), named notes.txt]" in list_prompts(g)[-1]

                own = [
                    e for e in alice.events if e["sender"] == BOT and e["type"] == "m.room.message"
                ]
                assert own and all(e["encrypted"] for e in own)
                keys_file = g.home.path / "platforms" / "matrix" / "keys.db"
                assert stat.S_IMODE(keys_file.stat().st_mode) == 0o600

                await g.kill()
                await alice.say(room, "while you were away")
                await g.start()
                await alice.until_shown(room, "After the restart.")
                root = await alice.say(room, "the root of a thread")
                await alice.until_shown(room, "To the root.")
                await alice.say(room, "inside", **in_thread(root))
                await alice.until_shown(room, "In the thread.")
                reply = next(
                    e for e in alice.events if e["content"].get("body") == "In the thread."
                )
                assert reply["content"]["m.relates_to"]["event_id"] == root
                for n in range(2):
                    await alice.send_undecryptable(room, n)
                await alice.until_shown(room, texts.UNDECRYPTED)
                await alice.say(room, "still there?")
                await alice.until_shown(room, "Still here.")
                assert alice.shown(room).count(texts.UNDECRYPTED) == 1
                devices = list(alice.client.device_store.active_user_devices(BOT))
                assert len(devices) == 1, "the device and its keys persist"
                assert not mallory.shown(foreign)
                found = mallory.client.rooms[foreign]
                assert BOT in found.invited_users, "an invitation of a stranger is not accepted"
                assert await g.stop() == 0


async def test_a_group_with_more_missed_messages_than_fit_into_an_answer(tmp_path: Path) -> None:
    async with synapse(tmp_path / "synapse") as server:
        await server.register("bot", PASSWORD)
        async with person(server, "alice") as alice, person(server, "mallory") as mallory:
            room = await alice.open_room(BOT, mallory.client.user_id, encrypted=False)
            await mallory.client.join(room)
            steps = (say("Mentioned."), say("Answered."), say("After the gap."))
            async with matrix_gateway(tmp_path, server, *steps, allowed_chats=[room]) as g:
                await alice.until_joined(room)
                await alice.say(room, "not for you")
                me = {"m.mentions": {"user_ids": [BOT]}}
                await mallory.say(room, "bot: a stranger speaks", **me)
                await alice.say(room, "bot: hello", **me)
                await alice.until_shown(room, "Mentioned.")
                assert list_prompts(g) == ["hello"]
                mine = next(
                    e for e in alice.events if e["sender"] == BOT and "body" in e["content"]
                )
                assert mine["content"]["m.mentions"] == {}
                reply = {"m.relates_to": {"m.in_reply_to": {"event_id": mine["event_id"]}}}
                await alice.say(room, "and this", **reply)
                await alice.until_shown(room, "Answered.")
                assert await g.stop() == 0
                await alice.say(room, "bot: missed", **me)
                for n in range(130):
                    await mallory.say(room, f"chatter {n}")
                await g.start()
                await alice.until_shown(room, "After the gap.")
                assert list_prompts(g)[-1].endswith("missed") and len(g.provider.requests) == 3
