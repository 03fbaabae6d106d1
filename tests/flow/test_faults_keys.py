"""Refused keys, limits of the rate, policies and wrong paths."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.app.agents import Options
from hermes.core.message import Media, user_message
from hermes.llm.endpoints.endpoint import ModelChoice
from tests.flow.status_parts import PIXEL
from tests.kit import WIRES, Provider, Received, Reply, call, html, nothing, raw, say, status
from tests.kit.bodies import messages
from tests.kit.home import KEY, SPARE_KEY
from tests.kit.rig import rig

# -- F28-F32 -------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_F28_a_rejected_key_is_reported_by_the_name_of_its_variable(
    tmp_path: Path, wire: str
) -> None:
    refusal = status(401, f"Incorrect API key provided: {KEY}", error="invalid_api_key")
    if wire != "chat":
        refusal = status(401, f"Incorrect API key provided: {KEY}")
    async with rig(tmp_path, [refusal], wire=wire) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "auth"
        assert "KIT_KEY" in result.error and KEY not in result.error
        assert len(r.requests) == 1


POOL = {"api_key_envs": ["KIT_KEY", "SPARE_KEY"]}


def keys_used(provider: Provider) -> list[str]:
    return [q.headers["authorization"].removeprefix("Bearer ") for q in provider.requests]


async def test_F28_the_next_credential_of_the_pool_is_tried(tmp_path: Path) -> None:
    def picky(request: Received) -> Reply:
        good = SPARE_KEY in request.headers["authorization"]
        return say("ok") if good else status(401, "bad key", error="invalid_api_key")

    config = {"model": {"api_key_env": ""}, "providers": {"custom": POOL}}
    async with rig(tmp_path, [], then=picky, config=config) as r:
        assert (await r.turn()).text == "ok"
        assert keys_used(r.provider) == [KEY, SPARE_KEY]
        assert (await r.turn("again")).text == "ok"
        assert keys_used(r.provider)[2:] == [SPARE_KEY], "the rejected key rests"


async def test_F28_a_rejected_key_falls_back_and_comes_back(tmp_path: Path) -> None:
    refusal = status(401, "bad key", error="invalid_api_key")
    async with (
        Provider([say("spare")], wire="gemini") as spare,
        rig(tmp_path, [refusal], spare=spare) as r,
    ):
        result = await r.turn()
        assert result.status == "completed" and result.text == "spare"
        assert KEY.encode() not in repr(spare.requests[0]).encode()


@pytest.mark.parametrize(
    "refusal",
    [
        status(402, "Insufficient credits. Add more at https://example.com/credits"),
        status(402, "Insufficient Balance"),
        status(400, "Your credit balance is too low to access the API."),
    ],
)
async def test_F29_no_credit_is_reported_with_a_hint_or_falls_back(
    tmp_path: Path, refusal: Reply
) -> None:
    async with rig(tmp_path, [refusal]) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "billing"
        assert "credit" in result.error.lower() or "balance" in result.error.lower()
        assert len(r.requests) == 1 and not r.waits
    (tmp_path / "two").mkdir()
    async with (
        Provider([say("spare")]) as spare,
        rig(tmp_path / "two", [refusal], spare=spare) as r,
    ):
        assert (await r.turn()).text == "spare" and len(r.requests) == 1


async def test_F29_the_next_credential_pays(tmp_path: Path) -> None:
    steps = [status(402, "Insufficient credits"), say("ok")]
    config = {"model": {"api_key_env": ""}, "providers": {"custom": POOL}}
    async with rig(tmp_path, steps, config=config) as r:
        assert (await r.turn()).text == "ok"
        assert keys_used(r.provider) == [KEY, SPARE_KEY]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "message",
    [
        "Your organization must be verified to use this model.",
        "Country, region, or territory not supported",
        "You do not have access to the model with the specified model ID.",
    ],
)
async def test_F30_forbidden_is_reported(tmp_path: Path, wire: str, message: str) -> None:
    async with rig(tmp_path, [status(403, message)], wire=wire) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code in ("auth", "model_not_found")
        assert message[:30] in result.error and len(r.requests) == 1


POLICY = status(
    400,
    "The response was filtered due to the prompt triggering the content management policy.",
    error="content_filter",
)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("form", ["status", "finish"])
async def test_F31_content_policy_is_not_asked_again(tmp_path: Path, wire: str, form: str) -> None:
    refusal = POLICY if form == "status" else nothing().stop("filtered")
    async with rig(tmp_path, [refusal], wire=wire) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "content_policy"
        assert len(r.requests) == 1 and not r.waits


@pytest.mark.parametrize("wire", WIRES)
async def test_F31_what_was_refused_does_not_hold_up_the_session(tmp_path: Path, wire: str) -> None:
    """Neither a prompt nor what a tool brought is sent there again: it would be refused again."""
    looks = call(("c1", "read_file", {"path": "POISON.txt"}))
    steps = [POLICY, say("fine"), looks, POLICY, say("still fine")]
    async with rig(tmp_path, steps, wire=wire) as r:
        assert (await r.turn("POISON")).error_code == "content_policy"
        assert (await r.turn("hello")).text == "fine"
        assert b"POISON" not in r.requests[1].body and b"hello" in r.requests[1].body
        assert (await r.turn("look")).error_code == "content_policy"
        assert b"does not exist" in r.requests[3].body
        assert (await r.turn("and now")).text == "still fine"
        assert b"does not exist" not in r.requests[4].body


@pytest.mark.parametrize("wire", WIRES)
async def test_F25_a_bad_image_blinds_nobody(tmp_path: Path, wire: str) -> None:
    """It is left out with those before it; later ones and other sessions are seen."""

    broken = PIXEL + b"bad"

    def picky(request: Received) -> Reply:
        bad = any(broken in m.images for m in messages(request))
        return status(400, "Could not process image") if bad else say("seen")

    async with rig(tmp_path, [], then=picky, wire=wire) as r:
        assert (await r.turn("this", Media("image/png", broken))).text == "seen"
        assert [n for m in messages(r.requests[1]) for n in m.images] == []
        assert (await r.turn("that", Media("image/png", PIXEL))).text == "seen"
        assert [n for m in messages(r.requests[2]) for n in m.images] == [PIXEL]
        other = await r.runtime.open_session(cwd=r.home.work)
        assert (await other.submit(user_message("and", Media("image/png", PIXEL)))).text == "seen"
        assert [n for m in messages(r.requests[3]) for n in m.images] == [PIXEL]
        assert len(r.requests) == 4


async def test_F31_another_model_reads_what_one_refused(tmp_path: Path) -> None:
    # Two sessions have the conversation open: what each sends does not follow from what is stored.
    async with rig(tmp_path, [POLICY, say("fine")], replay=False) as r:
        await r.turn("POISON")
        other = Options(ModelChoice(model="bolder"))
        session = await r.runtime.open_session(resume=r.session.id, cwd=r.home.work, options=other)
        assert (await session.submit(user_message("go on"))).text == "fine"
        assert b"POISON" in r.requests[1].body


async def test_F31_content_policy_falls_back_once(tmp_path: Path) -> None:
    async with (
        Provider([say("spare")]) as spare,
        rig(tmp_path, [POLICY], spare=spare) as r,
    ):
        assert (await r.turn()).text == "spare"
        assert len(r.requests) == 1 and len(spare.requests) == 1


async def test_F31_text_cut_by_the_policy_is_kept_and_marked(tmp_path: Path) -> None:
    async with rig(tmp_path, [say("It begins ").stop("filtered")]) as r:
        result = await r.turn()
        assert result.status != "completed" and result.error_code == "content_policy"
        assert result.text == "It begins " and len(r.requests) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_F32_an_unknown_model_is_reported(tmp_path: Path, wire: str) -> None:
    words = {
        "chat": (404, "The model `kit-model` does not exist or you do not have access to it."),
        "responses": (400, "The requested model 'kit-model' does not exist."),
        "anthropic": (404, "model: kit-model"),
        "gemini": (404, "models/kit-model is not found for API version v1beta"),
        "bedrock": (400, "The provided model identifier is invalid."),
    }
    code, message = words[wire]
    error = "model_not_found" if wire in ("chat", "responses") else ""
    async with rig(tmp_path, [status(code, message, error=error)], wire=wire) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "model_not_found"
        assert "kit-model" in result.error and len(r.requests) == 1


async def test_F32_near_names_are_offered(tmp_path: Path) -> None:
    refusal = status(404, "The model `kit-model` does not exist", error="model_not_found")
    provider = Provider([refusal], models=["kit-model", "kit-model-2", "other", "kit-modal"])
    async with rig(tmp_path, provider) as r:
        result = await r.turn()
        assert result.error_code == "model_not_found"
        assert "mean kit-model-2 or kit-modal?" in result.error


async def test_F32_an_unknown_model_falls_back(tmp_path: Path) -> None:
    refusal = status(404, "The model `kit-model` does not exist", error="model_not_found")
    async with (
        Provider([say("spare")], wire="bedrock") as spare,
        rig(tmp_path, [refusal], spare=spare) as r,
    ):
        assert (await r.turn()).text == "spare"


async def test_F32_a_wrong_path_gets_the_hint_to_add_v1(tmp_path: Path) -> None:
    provider = Provider()
    config = {"model": {"base_url": provider.origin}}
    page = raw(b"404 page not found", code=404, content_type="text/plain")
    provider.then = page
    async with rig(tmp_path, provider, config=config) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "model_not_found"
        assert "/v1" in result.error


# -- F33-F36 -------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_F33_request_timeout_is_retried(tmp_path: Path, wire: str) -> None:
    async with rig(tmp_path, [status(408, "Request timed out"), say("ok")], wire=wire) as r:
        assert (await r.turn()).text == "ok" and len(r.requests) == 2


async def test_F34_conflict_is_retried_once(tmp_path: Path) -> None:
    conflict = status(409, "The request conflicts with another one")
    async with rig(tmp_path, [conflict, say("ok")]) as r:
        assert (await r.turn()).text == "ok" and len(r.requests) == 2
        r.provider.then = conflict
        result = await r.turn("again")
        assert result.status == "failed" and result.error_code == "server_error"
        assert len(r.requests) == 4


@pytest.mark.parametrize("wire", WIRES)
async def test_F35_a_payload_too_large_is_reported(tmp_path: Path, wire: str) -> None:
    refusal = status(413, "Request exceeds the maximum size")
    async with rig(tmp_path, [], wire=wire, then=refusal) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "payload_too_large"
        assert len(r.requests) <= 3


async def test_F35_a_payload_too_large_from_a_proxy_is_no_api_error_page(tmp_path: Path) -> None:
    page = "<html><head><title>413 Request Entity Too Large</title></head></html>"
    refusal = raw(page.encode(), code=413, content_type="text/html")
    async with rig(tmp_path, [], then=refusal) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "payload_too_large"


async def test_F35_images_are_left_out_when_they_are_too_much(tmp_path: Path) -> None:
    def small(request: Received) -> Reply:
        if any(m.images for m in messages(request)):
            return status(413, "Request exceeds the maximum size")
        return say("without it")

    async with rig(tmp_path, [], then=small) as r:
        result = await r.turn("look", Media("image/png", PIXEL))
        assert result.status == "completed" and result.text == "without it" and len(r.requests) <= 3


@pytest.mark.parametrize("code", [403, 502])
async def test_F39_an_error_page_of_a_proxy_is_classified_by_its_status(
    tmp_path: Path, code: int
) -> None:
    page = html().body
    assert isinstance(page, bytes)
    refusal = raw(page, code=code, content_type="text/html")
    async with rig(tmp_path, [refusal, say("ok")] if code == 502 else [refusal]) as r:
        result = await r.turn()
        if code == 502:
            assert result.text == "ok"
        else:
            assert result.status == "failed" and "<html" not in result.error.lower()
