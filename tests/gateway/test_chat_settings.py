"""What people set for their chat: voice, a footer, how the agent speaks; voice notes as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.gateway import texts
from tests.gateway.gateways import LiveGateway, live_gateway
from tests.kit import Provider, raw, say, status
from tests.kit.bodies import messages
from tests.kit.telegram import OWNER

pytestmark = pytest.mark.e2e

SOUND = b"ID3\x03\x00 sound"
GROUP = -500


def config_for(job: str, maker: Provider) -> dict[str, Any]:
    model = {"provider": "custom", "model": "maker", "base_url": maker.base_url}
    return {"auxiliary": {job: {**model, "api_key_env": "SPARE_KEY", "api_mode": "chat"}}}


def transcript(text: str) -> Any:
    return raw(json.dumps({"text": text}).encode())


async def record(g: LiveGateway, **more: Any) -> None:
    """A voice note of a person."""
    g.telegram.files["v1"] = b"OggS voice"
    voice = {"file_id": "v1", "mime_type": "audio/ogg", "duration": 2}
    await g.telegram.push({"message": {**g.telegram.make_message("", **more), "voice": voice}})


def last_prompt(g: LiveGateway) -> str:
    return [m.text for m in messages(g.provider.requests[-1]) if m.role == "user"][-1]


async def test_a_voice_note_is_read_as_text(tmp_path: Path) -> None:
    async with (
        Provider([transcript(" turn on the light ")], paths=("/audio/transcriptions",)) as maker,
        live_gateway(tmp_path, [say("It is on.")], **config_for("transcription", maker)) as g,
    ):
        await record(g)
        await g.telegram.until_shown("It is on.")
        (stored,) = (g.home.path / "cache" / "media").iterdir()
        first, second = last_prompt(g).splitlines()
        assert first == "[voice] turn on the light"
        assert second == f"[attachment: {stored} (audio/ogg, 10 bytes), named unnamed]"
        assert b"OggS voice" in maker.requests[0].body
        assert b'filename="voice.ogg"' in maker.requests[0].body


async def test_a_voice_note_without_a_transcriber_is_an_attachment(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("I cannot hear.")]) as g:
        await record(g)
        await g.telegram.until_shown("I cannot hear.")
        assert last_prompt(g).startswith("[attachment: ")


async def test_a_voice_note_that_cannot_be_read_leaves_a_note(tmp_path: Path) -> None:
    async with (
        Provider([status(400)], paths=("/audio/transcriptions",)) as maker,
        live_gateway(tmp_path, [say("Say it again.")], **config_for("transcription", maker)) as g,
    ):
        await record(g)
        await g.telegram.until_shown("Say it again.")
        assert last_prompt(g).startswith("[the voice note was not transcribed: ")


async def test_answers_are_spoken_where_that_was_asked_for(tmp_path: Path) -> None:
    async with (
        Provider([raw(SOUND)], paths=("/audio/speech",)) as maker,
        live_gateway(
            tmp_path, [say("Good day."), say("Good night.")], **config_for("speech", maker)
        ) as g,
    ):
        await g.telegram.say("/voice on")
        await g.telegram.until_shown("Answers by voice: on.")
        await g.telegram.say("hello")
        await g.telegram.until_shown("Good day.")
        await g.telegram.until(lambda: any(s.file == SOUND for s in g.telegram.sent))
        assert json.loads(maker.requests[0].body)["input"] == "Good day."
        await g.telegram.say("/voice off")
        await g.telegram.until_shown("Answers by voice: off.")
        await g.telegram.say("good night")
        await g.telegram.until_shown("Good night.")
    assert len(maker.requests) == 1


async def test_nothing_is_spoken_without_a_model_for_it(tmp_path: Path) -> None:
    async with live_gateway(tmp_path) as g:
        await g.telegram.say("/voice on")
        await g.telegram.until_shown(texts.NO_SPEECH)
        await g.telegram.say("/voice")
        await g.telegram.until_shown("Answers by voice: off.")


async def test_a_footer_stands_below_answers_and_survives_a_restart(tmp_path: Path) -> None:
    async with live_gateway(tmp_path, [say("One."), say("Two."), say("Three.")]) as g:
        await g.telegram.say("a")
        await g.telegram.until_shown("One.")
        await g.telegram.say("/footer on")
        await g.telegram.until_shown("A line about the model below answers: on.")
        await g.telegram.say("b")
        await g.telegram.until(lambda: g.telegram.texts()[-1].startswith("Two.\n\n— "))
        await g.stop()
        again = LiveGateway(g.home, g.provider, g.telegram)
        await again.start()
        await g.telegram.say("c")
        await g.telegram.until(lambda: g.telegram.texts()[-1].startswith("Three.\n\n— "))
        await again.stop()
        said = [m.text for m in messages(g.provider.requests[-1]) if m.role == "assistant"]
        assert said == ["One.", "Two."]


async def test_a_personality_is_told_once_also_over_a_restart(tmp_path: Path) -> None:
    agent = {"personalities": {"pirate": "Talk like a pirate."}}
    steps = [say("Arr."), say("Aye."), say("Yes.")]
    async with live_gateway(tmp_path, steps, agent=agent) as g:
        await g.telegram.say("/personality pirate")
        await g.telegram.until(lambda: len(g.telegram.texts()) == 1)
        await g.telegram.say("ahoy")
        await g.telegram.until_shown("Arr.")
        assert "Talk like a pirate." in last_prompt(g)
        await g.stop()
        again = LiveGateway(g.home, g.provider, g.telegram)
        await again.start()
        await g.telegram.say("more")
        await g.telegram.until_shown("Aye.")
        assert last_prompt(g) == "more"
        await g.telegram.say("/personality none")
        await g.telegram.until(lambda: len(g.telegram.texts()) == 4)
        await g.telegram.say("and now?")
        await g.telegram.until_shown("Yes.")
        assert last_prompt(g).startswith("and now?") and "as usual" in last_prompt(g)
        await again.stop()


async def test_members_of_a_group_have_their_own_settings(tmp_path: Path) -> None:
    platform = {"allowed_users": [OWNER, 2], "allowed_chats": [GROUP], "require_mention": False}
    async with live_gateway(tmp_path, then=say("Yes."), platform=platform) as g:
        await g.telegram.say("/footer on", user=2, chat=GROUP)
        await g.telegram.until_shown("A line about the model below answers: on.")
        await g.telegram.say("hi", user=OWNER, chat=GROUP)
        await g.telegram.until_shown("Yes.")
        await g.telegram.say("hi", user=2, chat=GROUP)
        await g.telegram.until(lambda: g.telegram.texts()[-1].startswith("Yes.\n\n— "))
