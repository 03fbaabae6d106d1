"""Hooks and commands of plugins in a messenger."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.gateway.gateways import live_gateway
from tests.kit import say
from tests.kit.bodies import messages

pytestmark = pytest.mark.e2e

CODE = """
import json
def register(api):
    def dispatch(chat_id, user_id, text, message_id, session_id, platform):
        with (api.data / "seen").open("a") as file:
            file.write(json.dumps([platform, user_id, text]) + chr(10))
        if text == "drop me":
            return {"action": "skip"}
        if text == "change me":
            return {"action": "rewrite", "text": "changed"}
    api.register_hook("pre_gateway_dispatch", dispatch)
    api.register_command("hello", lambda raw: "hello " + raw)
"""


async def test_messages_are_skipped_and_rewritten(tmp_path: Path) -> None:
    settings = {"enabled": ["door"]}
    steps = [say("one"), say("two")]
    async with live_gateway(tmp_path, steps, start=False, plugins=settings) as g:
        (g.home.path / "plugins").mkdir(mode=0o700)
        (g.home.path / "plugins/door.py").write_text(CODE)
        await g.start()
        await g.telegram.say("who is there", user=2002)
        await g.telegram.say("drop me")
        await g.telegram.say("change me")
        await g.telegram.until_shown("one")
        await g.telegram.say("/hello you")
        await g.telegram.until_shown("hello you")
        await g.telegram.say("plain")
        await g.telegram.until_shown("two")
        said = [m.text for m in messages(g.provider.requests[-1]) if m.role == "user"]
        assert said == ["changed", "plain"]
        seen = (g.home.path / "plugins/.data/door/seen").read_text()
        assert "drop me" in seen and "who is there" not in seen, "strangers are not dispatched"


PIGEONS = """
import asyncio
from hermes.config.platforms import PlatformSettings
from hermes.gateway.adapter import Capabilities, Inbound, PlainPlatform, PlatformSpec

class Pigeons(PlainPlatform):
    capabilities = Capabilities()
    def __init__(self, folder):
        self.folder = folder
    async def run(self, receiver):
        receiver.report_connected()
        await receiver.receive_message(Inbound("loft", "dm", "42", "1", "coo"))
        await asyncio.Event().wait()
    async def send_part(self, target, part):
        with (self.folder / "sent").open("a") as file:
            file.write(target.chat + ": " + part.text + chr(10))
        return "1"

def register(api):
    opened = lambda settings, secrets: Pigeons(api.data)
    api.register_platform(PlatformSpec("pigeons", "PIGEON_TOKEN", PlatformSettings, opened))
"""


async def test_a_messenger_of_a_plugin_is_served(tmp_path: Path) -> None:
    async with live_gateway(
        tmp_path, [say("coo too")], start=False, plugins={"enabled": ["birds"]}
    ) as g:
        g.home.configure(platforms={"pigeons": {"enabled": True, "allowed_users": [42]}})
        (g.home.path / "plugins").mkdir(mode=0o700)
        (g.home.path / "plugins/birds.py").write_text(PIGEONS)
        await g.start()
        sent = g.home.path / "plugins/.data/birds/sent"
        async with asyncio.timeout(90):
            while not sent.exists() or "loft: coo too\n" not in sent.read_text():
                await asyncio.sleep(0.01)
