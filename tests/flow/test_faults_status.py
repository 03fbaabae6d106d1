"""F22-F36: the provider refuses a request; each refusal has its answer."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.app.agents import Options
from hermes.core.message import Media, Text, user_message
from hermes.core.tool import Tool, ToolResult
from hermes.llm.endpoints.endpoint import ModelChoice
from tests.kit import WIRES, Provider, Received, Reply, call, html, nothing, raw, say, status, think
from tests.kit.bodies import check_legal, max_tokens, messages
from tests.kit.home import KEY, SPARE_KEY
from tests.kit.overflows import OVERFLOWS
from tests.kit.rig import rig

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def reading(root: Path, text: str = "alpha") -> tuple[str, str, dict[str, str]]:
    """A call of read_file on a file that is there."""
    (root / "work").mkdir(exist_ok=True)
    (root / "work" / "a.txt").write_text(text)
    return ("c1", "read_file", {"path": "a.txt"})


# -- F22, F23 ------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("code", [400, 422])
async def test_F22_F36_a_bad_request_is_reported_once_with_the_providers_words(
    tmp_path: Path, wire: str, code: int
) -> None:
    refusal = status(code, f"The flux capacitor field is wrong (key {KEY})")
    async with rig(tmp_path, [refusal], wire=wire) as r:
        result = await r.turn()
        assert result.status == "failed" and result.error_code == "bad_request"
        assert "flux capacitor" in result.error and KEY not in result.error
        assert len(r.requests) == 1 and not r.waits


async def test_F22_a_very_long_error_is_cut_to_300_characters(tmp_path: Path) -> None:
    async with rig(tmp_path, [status(400, "no " * 5000)]) as r:
        result = await r.turn()
        assert result.error_code == "bad_request" and len(result.error) <= 300


def test_F23_there_are_forty_wordings() -> None:
    assert len({m for _, _, m in OVERFLOWS}) >= 40


async def test_F23_forty_wordings_of_overflow_never_loop(tmp_path: Path) -> None:
    missed = []
    async with rig(tmp_path, []) as r:
        for code, error, message in OVERFLOWS:
            r.provider.then = status(code, message, error=error)
            before = len(r.requests)
            result = await r.turn(f"does this fit? {message[:20]}")
            assert result.status == "failed" and len(result.error) <= 300
            assert len(r.requests) - before <= 4, message
            if result.error_code != "context_overflow":
                missed.append((result.error_code, code, error, message))
    assert not missed, "\n".join(map(str, missed))


@pytest.mark.parametrize("wire", [w for w in WIRES if w != "chat"])
async def test_F23_overflow_on_the_other_wires(tmp_path: Path, wire: str) -> None:
    own = {
        "responses": (400, "Your input exceeds the context window of this model."),
        "anthropic": (400, "prompt is too long: 208310 tokens > 200000 maximum"),
        "gemini": (400, "The input token count (1196265) exceeds the maximum number of tokens"),
        "bedrock": (400, "Input is too long for requested model."),
    }
    code, message = own[wire]
    async with rig(tmp_path, [], wire=wire, then=status(code, message)) as r:
        result = await r.turn()
        assert result.error_code == "context_overflow" and len(r.requests) <= 4


# -- F24, F25 ------------------------------------------------------------------------------

TOO_LARGE = {
    "chat": "max_tokens is too large: 100000. This model supports at most 8192 completion tokens, "
    "whereas you provided 100000.",
    "responses": "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= "
    "8192, but got 100000 instead.",
    "anthropic": "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens "
    "for claude-kit",
    "gemini": "Unable to submit request because it has a maxOutputTokens value of 100000 but the "
    "supported range is from 1 (inclusive) to 8193 (exclusive). Update the value and try again.",
    "bedrock": "The maximum tokens you requested exceeds the model limit of 8192. Try again with a "
    "maximum tokens value that is lower than 8192.",
}


@pytest.mark.parametrize("wire", WIRES)
async def test_F24_output_limit_too_large_is_lowered_and_remembered(
    tmp_path: Path, wire: str
) -> None:
    def picky(request: Received) -> Reply:
        asked = max_tokens(request) or 0
        return say("ok") if asked <= 8192 else status(400, TOO_LARGE[wire])

    config = {"model": {"max_tokens": 100000}}
    async with rig(tmp_path, [], wire=wire, then=picky, config=config) as r:
        assert (await r.turn()).text == "ok"
        assert max_tokens(r.requests[0]) == 100000 and len(r.requests) == 2
        assert 256 <= (max_tokens(r.requests[1]) or 0) <= 8192
        assert (await r.turn("again")).text == "ok" and len(r.requests) == 3


def picky_about(field: str, message: str, error: str) -> Callable[[Received], Reply]:
    def step(request: Received) -> Reply:
        if field in request.json:
            return status(400, message, error=error, param=field)
        return say("ok")

    return step


PARAMETERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "stream_options": ("Unrecognized request argument supplied: stream_options", "", {}),
    "max_tokens": (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
        "'max_completion_tokens' instead.",
        "unsupported_parameter",
        {"model": {"max_tokens": 999}},
    ),
    "tools": ("tools is not supported in this model. Please drop tools.", "", {}),
}


@pytest.mark.parametrize("field", list(PARAMETERS))
async def test_F25_a_rejected_parameter_is_dropped_or_renamed_and_remembered(
    tmp_path: Path, field: str
) -> None:
    message, error, config = PARAMETERS[field]
    async with rig(tmp_path, [], then=picky_about(field, message, error), config=config) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok"
        assert field in r.requests[0].json and field not in r.requests[1].json
        assert len(r.requests) == 2
        if field == "max_tokens":
            assert r.requests[1].json["max_completion_tokens"] == 999
        assert (await r.turn("again")).status == "completed" and len(r.requests) == 3


async def test_F25_what_one_session_learned_the_next_one_knows(tmp_path: Path) -> None:
    step = picky_about("stream_options", "Unknown parameter: 'stream_options'.", "")
    async with rig(tmp_path, [], then=step) as r:
        await r.turn()
        other = await r.runtime.session(cwd=r.home.work)
        assert (await other.submit(user_message("hello"))).status == "completed"
        assert len(r.requests) == 3 and "stream_options" not in r.provider.last.json
        await other.close()


@pytest.mark.parametrize(
    ("wire", "field", "message"),
    [
        ("responses", "reasoning", "Unsupported parameter: 'reasoning.effort' is not supported"),
        ("chat", "reasoning_effort", "Unrecognized request argument supplied: reasoning_effort"),
    ],
)
async def test_F25_reasoning_is_dropped_where_it_is_not_supported(
    tmp_path: Path, wire: str, field: str, message: str
) -> None:
    provider = Provider(wire=wire, then=picky_about(field, message, "unsupported_parameter"))
    config = {
        "agent": {"reasoning_effort": "high"},
        "model": {"provider": "openai", "default": "gpt-5.2"},
        "providers": {"openai": {"base_url": provider.base_url, "api_key_env": "KIT_KEY"}},
    }
    async with rig(tmp_path, provider, config=config) as r:
        result = await r.turn()
        assert result.status == "completed" and field in r.requests[0].json
        assert field not in r.provider.last.json and len(r.requests) == 2


async def test_F25_cache_markers_are_left_out_where_they_are_refused(tmp_path: Path) -> None:
    message = "messages.0.content.0.cache_control: Extra inputs are not permitted"

    def picky(request: Received) -> Reply:
        return status(400, message) if b"cache_control" in request.body else say("ok")

    config = {"model": {"default": "claude-kit"}}
    async with rig(tmp_path, [], wire="anthropic", then=picky, config=config) as r:
        assert (await r.turn()).status == "completed" and len(r.requests) == 2
        assert (await r.turn("again")).status == "completed" and len(r.requests) == 3


@pytest.mark.parametrize("wire", WIRES)
async def test_F25_rejected_images_become_a_note(tmp_path: Path, wire: str) -> None:
    def blind(request: Received) -> Reply:
        if any(m.images for m in messages(request)):
            return status(400, "This model does not support image input.")
        return say("I cannot see it")

    async with rig(tmp_path, [], wire=wire, then=blind) as r:
        result = await r.turn("what is this?", Media("image/png", PIXEL))
        assert result.status == "completed" and result.text == "I cannot see it"
        assert messages(r.requests[0])[0].images == [PIXEL] and len(r.requests) == 2
        assert "image" in messages(r.requests[1])[0].text.lower()


class Nothing(Struct):
    pass


def camera() -> Tool[Any]:
    async def shoot(p: Nothing, ctx: Any) -> ToolResult:
        return ToolResult((Text("a photo:"), Media("image/png", PIXEL)))

    return Tool("shoot", "Takes a photo.", Nothing, shoot)


@pytest.mark.parametrize("wire", ["chat", "responses", "anthropic", "bedrock"])
async def test_F25_an_image_rejected_in_a_tool_result_is_moved_or_noted(
    tmp_path: Path, wire: str
) -> None:
    """Still readable for the model, remembered, and the history stays legal."""
    complaints = 0

    def picky(request: Received) -> Reply:
        nonlocal complaints
        if _image_in_result(request):
            complaints += 1
            return status(400, "Image content is not supported in tool messages.")
        return say("I see")

    steps = [call(("c1", "shoot", {}))]
    async with rig(tmp_path, steps, wire=wire, then=picky, tools=[camera()]) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "I see" and complaints <= 1
        assert (await r.turn("again")).status == "completed" and complaints <= 1
        last = messages(r.requests[-1])
        assert any(PIXEL in m.images for m in last), "the image went to the user's part"


def _image_in_result(request: Received) -> bool:
    def holds(node: Any) -> bool:
        if isinstance(node, dict):
            inner = node.get("type") in ("image_url", "input_image", "image") or "image" in node
            return inner or any(holds(v) for v in node.values())
        return isinstance(node, list) and any(map(holds, node))

    body = request.json
    match request.wire:
        case "chat":
            return any(m["role"] == "tool" and holds(m["content"]) for m in body["messages"])
        case "responses":
            items = [i for i in body["input"] if i.get("type") == "function_call_output"]
            return any(holds(i["output"]) for i in items)
        case _:
            blocks = [b for m in body["messages"] for b in m["content"] if isinstance(b, dict)]
            results = [b for b in blocks if b.get("type") == "tool_result" or "toolResult" in b]
            return any(holds(b.get("toolResult", b.get("content"))) for b in results)


@pytest.mark.parametrize("wire", WIRES)
async def test_F25_streaming_not_supported_switches_it_off_for_the_session(
    tmp_path: Path, wire: str
) -> None:
    def plain(request: Received) -> Reply:
        return (
            say("plain")
            if not request.streams
            else status(400, "Streaming is not supported by this model", param="stream")
        )

    async with rig(tmp_path, [], wire=wire, then=plain) as r:
        assert (await r.turn()).text == "plain" and r.shown == "plain"
        assert [q.streams for q in r.requests] == [True, False]
        assert (await r.turn("again")).text == "plain"
        assert [q.streams for q in r.requests] == [True, False, False]


# -- F26, F27 ------------------------------------------------------------------------------

ORDER = {
    "chat": "An assistant message with 'tool_calls' must be followed by tool messages responding "
    "to each 'tool_call_id'. The following tool_call_ids did not have response messages: c1",
    "responses": "No tool output found for function call c1.",
    "anthropic": "messages.2: `tool_use` ids were found without `tool_result` blocks immediately "
    "after: c1. Each `tool_use` block must have a corresponding `tool_result` block in the next "
    "message.",
    "gemini": "Please ensure that function call turn comes immediately after a user turn or after "
    "a function response turn.",
    "bedrock": "Expected toolResult blocks at messages.2.content for the following Ids: c1",
}


@pytest.mark.parametrize("wire", WIRES)
async def test_F26_a_complaint_about_pairing_repairs_the_view_once(
    tmp_path: Path, wire: str
) -> None:
    steps = [call(reading(tmp_path)), status(400, ORDER[wire]), say("ok")]
    async with rig(tmp_path, steps, wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok" and len(r.requests) == 3
        check_legal(r.requests[2])
        assert [c.name for c in r.started] == ["read_file"]


async def test_F26_a_complaint_that_stays_is_reported(tmp_path: Path) -> None:
    async with rig(tmp_path, [call(reading(tmp_path))], then=status(400, ORDER["chat"])) as r:
        result = await r.turn()
        assert result.status != "completed" and result.error_code == "bad_request"
        assert len(r.requests) == 3


SIGNATURES = {
    "anthropic": "messages.1.content.0: Invalid `signature` in `thinking` block",
    "responses": "The encrypted content gAAAA could not be verified. Reason: Encrypted content "
    "could not be decrypted or parsed.",
    "gemini": "Thought signature is not valid.",
    "bedrock": "The model returned the following errors: messages.1.content.0: Invalid `signature` "
    "in `thinking` block",
}


@pytest.mark.parametrize("wire", list(SIGNATURES))
async def test_F27_a_rejected_signature_is_stripped_and_the_call_repeated(
    tmp_path: Path, wire: str
) -> None:
    sign = {"thoughtSignature": "c2lnbmF0dXJl"} if wire == "gemini" else {}
    first = think("let me see", signature="c2lnbmF0dXJl") + call(reading(tmp_path), **sign)
    steps = [first, status(400, SIGNATURES[wire]), say("ok")]
    async with rig(tmp_path, steps, wire=wire) as r:
        result = await r.turn()
        assert result.status == "completed" and result.text == "ok" and len(r.requests) == 3
        assert b"c2lnbmF0dXJl" in r.requests[1].body, "it was sent back first"
        assert b"c2lnbmF0dXJl" not in r.requests[2].body
        check_legal(r.requests[2])


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
        other = await r.runtime.session(cwd=r.home.work)
        assert (await other.submit(user_message("and", Media("image/png", PIXEL)))).text == "seen"
        assert [n for m in messages(r.requests[3]) for n in m.images] == [PIXEL]
        assert len(r.requests) == 4


async def test_F31_another_model_reads_what_one_refused(tmp_path: Path) -> None:
    async with rig(tmp_path, [POLICY, say("fine")]) as r:
        await r.turn("POISON")
        other = Options(ModelChoice(model="bolder"))
        session = await r.runtime.session(resume=r.session.id, cwd=r.home.work, options=other)
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
    provider = Provider([refusal], models=["kit-model-2", "something-else", "kit-modal"])
    async with rig(tmp_path, provider) as r:
        result = await r.turn()
        assert result.error_code == "model_not_found" and "kit-model-2" in result.error


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
