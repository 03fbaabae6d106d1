"""Who may do what, seen from a chat: every command of the registry, by everybody, everywhere."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hermes.app.commands import load_commands
from hermes.gateway import texts
from hermes.gateway.people.pairing_desk import PairingDesk
from tests.gateway.gateways import LiveGateway, live_gateway
from tests.kit import say
from tests.unit.gateway.test_rules import RIGHTS, find_code

pytestmark = pytest.mark.e2e

ADMIN, USER, PAIRED, NOBODY = 1001, 2002, 3003, 9009
LISTED, OTHER = -500, -600
PLACES: dict[str, dict[str, Any]] = {
    "dm": {},
    "listed group": {"chat": LISTED},
    "other group": {"chat": OTHER},
    "topic": {"chat": LISTED, "message_thread_id": 7, "is_topic_message": True},
}
PEOPLE = {
    "stranger": (NOBODY, "", ()),
    "guest": (NOBODY, "guest", ("listed group", "topic")),
    "paired": (PAIRED, "user", ("dm", "listed group", "topic")),
    "user": (USER, "user", ("dm", "listed group", "topic")),
    "admin": (ADMIN, "admin", ("dm", "listed group", "topic")),
}
"""The id of each, their role, and where they have it; elsewhere nobody hears them."""
ENDS_PROCESS = frozenset({"restart"})
"""What would end the test for those who may."""


async def until_quiet(g: LiveGateway) -> None:
    """Until everything that was written is dealt with, and every answer is delivered."""
    mailbox = g.service.hub.mailbox
    await g.telegram.until(lambda: not g.telegram.updates)
    async with asyncio.timeout(90):
        while await mailbox.list_open_messages() or await mailbox.list_open_replies():
            await asyncio.sleep(0.005)


async def ask(g: LiveGateway, user: int, place: str, command: str) -> list[str]:
    """What a command is answered with."""
    before = len(g.telegram.sent)
    await g.telegram.say(f"/{command}", user=user, **PLACES[place])
    await until_quiet(g)
    return [sent.text for sent in g.telegram.sent[before:]]


@pytest.mark.parametrize("person", PEOPLE)
async def test_g6_every_command_by_everybody_everywhere(tmp_path: Path, person: str) -> None:
    names = [command.name for command in load_commands()]
    assert set(names) == set(RIGHTS), "a command without a row: who may run it?"
    user, role, places = PEOPLE[person]
    platform = {
        "allowed_users": [ADMIN, USER],
        "admins": [ADMIN],
        "allowed_chats": [LISTED],
        "pairing": False,
        "group_members": person == "guest",
    }
    async with live_gateway(tmp_path, then=say("ok"), platform=platform) as g:
        desk = PairingDesk(g.service._store.pairings)
        code = find_code(await desk.greet_stranger("telegram", str(PAIRED), "P", str(PAIRED)))
        await desk.approve_code("telegram", code)
        for place in PLACES:
            for name in names:
                may = role in RIGHTS[name]
                if place in places and may and name in ENDS_PROCESS:
                    continue
                said = await ask(g, user, place, name)
                refusal = texts.ADMINS_ONLY.format(name=name)
                if place not in places:
                    assert not said, f"/{name} was heard in the {place}"
                elif may:
                    assert refusal not in said, f"/{name} was refused in the {place}"
                else:
                    assert said == [refusal], f"/{name} in the {place}"
        if person == "stranger":
            assert not g.provider.requests
