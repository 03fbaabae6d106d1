"""F22-F36: the provider refuses a request; each refusal has its answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.core.message import Media, Text, user_message
from hermes.core.tool import Tool, ToolResult
from tests.flow.status_parts import PIXEL, reading
from tests.kit import WIRES, Provider, Received, Reply, call, say, status, think
from tests.kit.bodies import check_legal, max_tokens, messages
from tests.kit.home import KEY
from tests.kit.overflows import OVERFLOWS
from tests.kit.rig import rig

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
        other = await r.runtime.open_session(cwd=r.home.work)
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
