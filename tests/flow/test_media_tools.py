"""Pictures and speech: made by the job's own model, written to a new file, metered."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Provider, Reply, call, raw, say, status
from tests.kit.home import SPARE_KEY
from tests.kit.rig import Rig, rig

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
SOUND = b"ID3\x03\x00 sound"


PATHS = ("/images/generations", "/audio/speech", "/pictures/1.png")


def media_server(steps: Iterable[Reply] = ()) -> Provider:
    return Provider(steps, paths=PATHS)


def config_for(job: str, provider: Provider, **more: Any) -> dict[str, Any]:
    model = {"provider": "custom", "model": "maker", "base_url": provider.base_url}
    return {"auxiliary": {job: {**model, "api_key_env": "SPARE_KEY", "api_mode": "chat", **more}}}


def draw(**args: str) -> Reply:
    return call(("c1", "image_generate", {"prompt": "a cat", "path": "cat.png", **args}))


def speak(**args: str) -> Reply:
    return call(("c1", "text_to_speech", {"text": "Good day", "path": "day.mp3", **args}))


def picture(**row: Any) -> Reply:
    return raw(json.dumps({"created": 1, "data": [row]}).encode())


async def run_turn(r: Rig) -> str:
    """Run a turn; what the model was told about its call."""
    await r.turn("make it")
    return str(r.provider.last.json["messages"][-1]["content"])


async def test_a_picture_is_written_to_a_new_file(tmp_path: Path) -> None:
    step = picture(b64_json=base64.b64encode(PNG).decode())
    async with (
        media_server([step]) as maker,
        rig(tmp_path, [draw(size="64x64"), say("done")], config=config_for("image", maker)) as r,
    ):
        told = await run_turn(r)
        assert "cat.png (image/png" in told
        assert (r.home.work / "cat.png").read_bytes() == PNG
        assert maker.last.path.endswith("/images/generations")
        wish = {"model": "maker", "prompt": "a cat", "n": 1, "size": "64x64"}
        assert maker.last.json == wish
        assert maker.last.headers["authorization"] == f"Bearer {SPARE_KEY}"


async def test_a_picture_at_the_servers_own_address_is_fetched(tmp_path: Path) -> None:
    async with media_server() as maker:
        url = maker.origin + "/pictures/1.png"
        maker.add(picture(url=url), raw(PNG, content_type="image/png"))
        async with rig(tmp_path, [draw(), say("done")], config=config_for("image", maker)) as r:
            await run_turn(r)
            assert (r.home.work / "cat.png").read_bytes() == PNG


async def test_a_picture_elsewhere_passes_the_guard_of_the_web(tmp_path: Path) -> None:
    async with (
        media_server([picture(url="http://169.254.169.254/latest/meta-data")]) as maker,
        rig(tmp_path, [draw(), say("done")], config=config_for("image", maker)) as r,
    ):
        await run_turn(r)
        assert not (r.home.work / "cat.png").exists()


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (status(401, "bad key"), "SPARE_KEY"),
        (raw(b"{}"), "without a picture"),
        (raw(b"<html>"), "without JSON"),
        (picture(b64_json="?"), "without a picture"),
        (picture(b64_json=base64.b64encode(b"text").decode()), "no picture"),
    ],
)
async def test_without_a_picture_no_file_is_written(
    tmp_path: Path, reply: Reply, expected: str
) -> None:
    async with (
        media_server([reply]) as maker,
        rig(tmp_path, [draw(), say("done")], config=config_for("image", maker)) as r,
    ):
        assert expected in await run_turn(r)
        assert not (r.home.work / "cat.png").exists()


async def test_an_existing_file_is_not_replaced_and_costs_nothing(tmp_path: Path) -> None:
    async with (
        media_server() as maker,
        rig(tmp_path, [draw(), say("done")], config=config_for("image", maker)) as r,
    ):
        (r.home.work / "cat.png").write_bytes(b"mine")
        assert "exists already" in await run_turn(r)
        assert (r.home.work / "cat.png").read_bytes() == b"mine"
        assert not maker.requests


async def test_speech_is_written_with_the_configured_voice(tmp_path: Path) -> None:
    settings = {"voice": "nova"}
    async with (
        media_server([raw(SOUND, content_type="audio/mpeg")]) as maker,
        rig(tmp_path, [speak(), say("done")], config=config_for("speech", maker, **settings)) as r,
    ):
        await run_turn(r)
        assert (r.home.work / "day.mp3").read_bytes() == SOUND
        wish = {"model": "maker", "input": "Good day", "voice": "nova", "response_format": "mp3"}
        assert maker.last.json == wish


async def test_an_unknown_kind_of_sound_is_refused(tmp_path: Path) -> None:
    async with (
        media_server() as maker,
        rig(tmp_path, [speak(path="a.txt"), say("ok")], config=config_for("speech", maker)) as r,
    ):
        assert "must end in one of" in await run_turn(r)
        assert not maker.requests


async def test_without_a_model_the_setting_is_named(tmp_path: Path) -> None:
    async with rig(tmp_path, [speak(), say("done")]) as r:
        assert "auxiliary.speech" in await run_turn(r)


async def test_the_requests_are_in_the_ledger(tmp_path: Path) -> None:
    async with (
        media_server([raw(SOUND, content_type="audio/mpeg")]) as maker,
        rig(tmp_path, [speak(), say("done")], config=config_for("speech", maker)) as r,
    ):
        await run_turn(r)
        rows = await r.runtime.store.ledger.sum_calls("purpose", 0.0)
        assert "auxiliary/speech" in {row.key for row in rows}
