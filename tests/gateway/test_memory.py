"""Whose notes a chat reads and writes: nothing crosses between people, chats and groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.gateways import LiveGateway, live_gateway
from tests.gateway.platform_gateways import free_port
from tests.gateway.test_webhook import configure, post, sign
from tests.kit import Received, Reply, call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.telegram import OWNER

pytestmark = pytest.mark.e2e

ANN, BEN, GROUP = 3003, 4004, -500
TOPIC = {"message_thread_id": 77, "is_topic_message": True}
PLACES: dict[str, dict[str, Any]] = {
    "owner": {"user": OWNER},
    "owner-group": {"user": OWNER, "chat": GROUP},
    "ann": {"user": ANN},
    "ann-group": {"user": ANN, "chat": GROUP},
    "ben": {"user": BEN},
    "ben-group": {"user": BEN, "chat": GROUP},
    "topic": {"user": ANN, "chat": GROUP, **TOPIC},
}


def answer(request: Received) -> Reply:
    """Notes what it is told to, for both targets; what it knows is in its prompt."""
    seen = messages(request)
    word = seen[-1].text.split()[-1] if not seen[-1].results else ""
    if not seen[-1].results and "note" in seen[-1].text.split():
        return call(
            (f"m{word}", "memory", {"action": "add", "content": f"canary-{word}-memory"}),
            (
                f"u{word}",
                "memory",
                {"action": "add", "target": "user", "content": f"canary-{word}-user"},
            ),
        )
    return say("done")


async def ask(g: LiveGateway, place: str, text: str) -> None:
    shown = len(g.telegram.texts())
    await g.telegram.say(text, **PLACES[place])
    await g.telegram.until(lambda: len(g.telegram.texts()) > shown)


def find_canaries(g: LiveGateway) -> set[str]:
    """The notes in the last request."""
    body = g.provider.requests[-1].body.decode()
    words = body.replace('"', " ").replace("\\", " ").split()
    return {word for word in words if word.startswith("canary-")}


async def test_no_note_crosses_between_people_chats_and_groups(tmp_path: Path) -> None:
    platform = {
        "allowed_users": [OWNER, ANN, BEN],
        "allowed_chats": [GROUP],
        "require_mention": False,
    }
    memory = {"owners": [f"telegram:{OWNER}"], "review": False}
    async with live_gateway(tmp_path, then=answer, platform=platform, memory=memory) as g:
        for place in PLACES:
            await ask(g, place, f"note {place}")
        for place in PLACES:
            await ask(g, place, "/new")
        found = {}
        for place in PLACES:
            await ask(g, place, "what do you know?")
            found[place] = find_canaries(g)
        expected = {place: {f"canary-{place}-memory", f"canary-{place}-user"} for place in PLACES}
        expected["topic"] = {"canary-topic-memory"}
        assert found == expected
        local = await run_hermes(["memory", "list"], g.home)
        assert "canary-owner-user" in local.stdout and "canary-ann" not in local.stdout


async def test_no_note_crosses_between_chats_and_webhooks(tmp_path: Path) -> None:
    port = free_port()
    async with live_gateway(tmp_path, then=answer, start=False, memory={"review": False}) as g:
        configure(g, port, hook={"prompt": "{text}", "deliver": f"telegram:{OWNER}"})
        await g.start()

        async def deliver(text: str) -> set[str]:
            shown, body = len(g.telegram.texts()), json.dumps({"text": text}).encode()
            assert (await post(port, "hook", body, sign(body)))[0] == 202
            await g.telegram.until(lambda: len(g.telegram.texts()) > shown)
            return find_canaries(g)

        await ask(g, "owner", "note owner")
        await deliver("note hook")
        assert not {word for word in await deliver("what?") if "owner" in word}
        await ask(g, "owner", "/new")
        await ask(g, "owner", "what do you know?")
        assert find_canaries(g) == {"canary-owner-memory", "canary-owner-user"}
