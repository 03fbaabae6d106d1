"""Prompt caching: who gets which markers, prefixes that stay the same, and the guard over them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct, structs

from hermes.app.commands import CommandContext
from hermes.app.commands.effort import set_effort as reasoning_command
from hermes.app.commands.model import switch_model as model_command
from hermes.core.message import Text, user_message
from hermes.core.tool import Tool, ToolResult
from tests.kit import WIRES, Gate, Provider, Received, call, say, status, think
from tests.kit.bodies import check_legal, messages
from tests.kit.rig import Rig, rig

SIGNED = "c2lnbmF0dXJl"
MARKER = {"type": "ephemeral"}


class Word(Struct):
    word: str = ""


def echo() -> Tool[Any]:
    async def run(p: Word, ctx: Any) -> ToolResult:
        return ToolResult((Text(f"heard {p.word}"),))

    return Tool("echo", "Says it again.", Word, run)


def row(name: str, model: str, provider: Provider, **more: Any) -> dict[str, Any]:
    """The built-in row of this name, at the scripted provider's address."""
    config: dict[str, Any] = {
        "model": {"provider": name, "default": model, "base_url": "", "api_key_env": ""},
        "providers": {name: {"base_url": provider.base_url, "api_key_env": "KIT_KEY"}},
    }
    if name != "custom":
        config["model"]["api_mode"] = None
    if provider.wire == "responses":
        config["providers"][name]["api_mode"] = "responses"
    return {**config, **more}


# -- markers as they were sent -------------------------------------------------------------------


def marked(request: Received) -> list[str]:
    """Where the markers are: `system`, `tools`, or the place of a message and what carries it."""
    found: list[str] = []

    def walk(node: Any, place: str) -> None:
        if isinstance(node, dict):
            if "cache_control" in node:
                assert node["cache_control"] == MARKER
                found.append(place)
            for key, value in node.items():
                walk(value, f"{place}.{key}")
        elif isinstance(node, list):
            for i, value in enumerate(node):
                walk(value, f"{place}[{i}]")

    walk(request.json, "")
    return found


def plain(request: Received) -> dict[str, Any]:
    """The request without markers: contents that became lists to carry one are texts again."""

    def strip(node: Any) -> Any:
        if isinstance(node, list):
            return [strip(v) for v in node]
        if not isinstance(node, dict):
            return node
        was = node.get("content") or node.get("system")
        out = {k: strip(v) for k, v in node.items() if k != "cache_control"}
        if isinstance(was, list) and len(was) == 1 and "cache_control" in was[0]:
            name = "content" if "content" in node else "system"
            if request.wire == "chat" or name == "system":
                out[name] = was[0]["text"]
        return out

    return strip(request.json)  # type: ignore[no-any-return]


POLICY: list[tuple[str, str, str, str]] = [
    # provider, model, wire, layout
    ("anthropic", "claude-sonnet-4-5", "anthropic", "native"),
    ("anthropic", "claude-opus-5", "anthropic", "native"),
    ("custom", "claude-sonnet-4-5", "anthropic", "native"),
    ("minimax", "MiniMax-M2", "anthropic", "none"),
    ("custom", "glm-4.7", "anthropic", "none"),
    ("openrouter", "anthropic/claude-sonnet-4.5", "chat", "envelope"),
    ("openrouter", "openai/gpt-5", "chat", "none"),
    ("openrouter", "qwen/qwen3-max", "chat", "none"),
    ("alibaba", "qwen3-max", "chat", "no results"),
    ("opencode-zen", "qwen3-coder", "chat", "no results"),
    ("opencode-go", "Qwen3-Coder-Plus", "chat", "no results"),
    ("alibaba", "deepseek-v3", "chat", "none"),
    ("opencode-zen", "kimi-k2", "chat", "none"),
    ("zai", "glm-4.7", "chat", "none"),
    ("kimi", "kimi-k2", "chat", "none"),
    ("deepseek", "deepseek-chat", "chat", "none"),
    ("openai", "gpt-5", "responses", "none"),
    ("gemini", "gemini-2.5-pro", "gemini", "none"),
    ("bedrock", "anthropic.claude-sonnet-4-5", "bedrock", "none"),
    ("custom", "kit-model", "chat", "none"),
]


@pytest.mark.parametrize(("name", "model", "wire", "layout"), POLICY)
async def test_the_policy_table(
    tmp_path: Path, name: str, model: str, wire: str, layout: str
) -> None:
    steps = [say("hello"), call(("c1", "echo", {"word": "a"})), say("done")]
    provider = Provider(steps, wire=wire)
    config = row(name, model, provider)
    async with rig(tmp_path, provider, config=config, tools=[echo()]) as r:
        await r.turn("first")
        await r.turn("second")
        assert len(r.requests) == 3 and all(len(marked(q)) <= 4 for q in r.requests)
        check_layout(r.requests[0], layout)
        check_layout(r.requests[2], layout)


def check_layout(request: Received, layout: str) -> None:
    body, places = request.json, marked(request)
    if layout == "none":
        assert places == []
        return
    first, *rest = places
    if layout == "native":
        assert first == ".system[0]" and body["system"][0]["type"] == "text"
        said = body["messages"]
        last = range(max(0, len(said) - 3), len(said))
        assert rest == [f".messages[{i}].content[{len(said[i]['content']) - 1}]" for i in last]
        return
    said = body["messages"]
    assert said[0]["role"] == "system" and first == ".messages[0].content[0]"
    able = [
        i
        for i, m in enumerate(said)
        if i and m["content"] and (layout == "envelope" or m["role"] != "tool")
    ]
    assert rest == [f".messages[{i}].content[{len(said[i]['content']) - 1}]" for i in able[-3:]]
    assert not any("cache_control" in m for m in said), "on inner parts only"


# -- the same bytes, step after step -------------------------------------------------------------

STEPS = 50


def check_prefix(requests: list[Received]) -> None:
    """Each request begins with the one before it: byte for byte where there are no markers."""
    for one, two in pairwise(requests):
        if not marked(one):
            old = one.body.rstrip().removesuffix(b"]}")
            at = next(
                (i for i, (a, b) in enumerate(zip(old, two.body, strict=False)) if a != b), -1
            )
            assert two.body.startswith(old), f"byte {at}: {old[at - 80 : at + 20]!r}"
            continue
        old, new = plain(one), plain(two)
        said = old.pop("messages")
        assert new.pop("messages")[: len(said)] == said and old == new


@pytest.mark.parametrize(
    ("name", "model", "wire"),
    [
        *(("custom", "kit-model", wire) for wire in WIRES),
        ("anthropic", "claude-sonnet-4-5", "anthropic"),
        ("openrouter", "anthropic/claude-sonnet-4.5", "chat"),
        ("alibaba", "qwen3-max", "chat"),
    ],
)
async def test_fifty_steps_share_one_prefix(
    tmp_path: Path, name: str, model: str, wire: str
) -> None:
    sign = {"thoughtSignature": SIGNED} if wire == "gemini" else {}

    def step(n: int) -> Any:
        if n % 10 == 7:
            return call((f"c{n}", "tool_search", {"query": f"page number {n}"}))
        said = say(f"Step {n}. ") if n % 3 == 0 else think(f"step {n}", signature=SIGNED)
        return said + call((f"c{n}", "echo", {"word": "x" * (n * 7)}), **sign)

    provider = Provider([*map(step, range(STEPS)), say("done")], wire=wire)
    config = row(name, model, provider, agent={"max_turns": 90})
    async with rig(tmp_path, provider, config=config, tools=[echo()]) as r:
        assert (await r.turn("go")).status == "completed"
        provider.add(say("more"))
        await r.turn("again")
        assert len(r.requests) == STEPS + 2
        check_prefix(r.requests)
        if wire != "chat":
            assert SIGNED.encode() in r.requests[-1].body, "reasoning goes back"


@pytest.mark.parametrize("wire", WIRES)
async def test_guidance_keeps_the_prefix(tmp_path: Path, wire: str) -> None:
    """It stands behind the last result, where the next request has it too."""
    gate = Gate()
    steps = [
        call(("c1", "echo", {"word": "a"})),
        call(("c2", "echo", {"word": "b"})).hold(gate, n=0),
        call(("c3", "echo", {"word": "c"})),
        say("done"),
    ]
    async with rig(tmp_path, steps, wire=wire, tools=[echo()]) as r:
        turn = r.begin()
        await gate.reached()
        r.session.submit(user_message("use blue"), busy="steer")
        gate.open()
        assert (await turn).status == "completed"
        check_prefix(r.requests)
        first = next(i for i, q in enumerate(r.requests) if b"use blue" in q.body)
        last = check_legal(r.requests[first])[-1]
        results = dict(last.results)
        assert results["c2"].endswith("User guidance: use blue") and "c3" not in results
        assert all(q.body.count(b"use blue") == 1 for q in r.requests[first:])


# -- there and back ------------------------------------------------------------------------------

BUSY = status(529, "overloaded", error="overloaded_error")


async def test_after_a_fallback_and_back_each_has_its_own_policy_and_prefix(
    tmp_path: Path,
) -> None:
    first = think("first thought", signature=SIGNED) + call(("c1", "echo", {"word": "a"}))
    main = Provider([first, BUSY, BUSY, BUSY, BUSY, say("back")], wire="anthropic")
    spare = Provider([call(("c2", "echo", {"word": "b"})), say("from the spare")])
    config = row("anthropic", "claude-sonnet-4-5", main)
    config["providers"]["alibaba"] = {"base_url": spare.base_url, "api_key_env": "SPARE_KEY"}
    config["fallback_providers"] = ["alibaba:qwen3-max"]
    async with spare, rig(tmp_path, main, config=config, tools=[echo()]) as r:
        assert (await r.turn("one")).text == "from the spare"
        assert (await r.turn("two")).text == "back"
        for request in main.requests:
            check_layout(request, "native")
        for request in spare.requests:
            check_layout(request, "no results")
            assert SIGNED.encode() not in request.body, "nobody else's signatures"
            check_legal(request)
        check_prefix(spare.requests)
        check_prefix([main.requests[0], main.requests[1], main.requests[-1]])
        back = main.requests[-1]
        assert SIGNED.encode() in back.body and b"from the spare" in back.body
        assert not [n for n in r.notices if n.code == "prefix"]


async def test_a_session_goes_on_in_another_process_with_the_same_bytes(tmp_path: Path) -> None:
    provider = Provider([call(("c1", "read_file", {"path": "a.txt"})), say("one"), say("two")])
    async with provider:
        async with rig(tmp_path, provider, check=False) as r:
            r.home.file("a.txt", "alpha")
            await r.turn("one")
            id = r.session.id
        second = Provider([say("two")])
        async with rig(tmp_path, second, resume=id, check=False) as r:
            await r.turn("two")
        check_prefix([*provider.requests, second.requests[0]])


# -- the guard -----------------------------------------------------------------------------------


def first_difference(one: Received, two: Received) -> int:
    pairs = zip(one.body, two.body, strict=False)
    return next(i for i, (a, b) in enumerate(pairs) if a != b)


def warnings(r: Rig) -> list[str]:
    return [n.text for n in r.notices if n.code == "prefix"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("who", ["system", "tools", "message 2", "quirks learned: flatten"])
async def test_a_request_that_begins_differently_is_named(
    tmp_path: Path, wire: str, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    steps = [say("hello"), call(("c1", "echo", {"word": "w" * 900})), say("done"), say("again")]
    async with rig(tmp_path, steps, wire=wire, tools=[echo()], replay=False) as r:
        r.breaks_prefix = True
        await r.turn("first")
        await r.turn("second")
        assert not warnings(r)
        session = r.session
        match who:
            case "system":
                changed = session.transcript.meta.system.replace("Hermes", "Hermas")
                session.transcript.meta = structs.replace(session.transcript.meta, system=changed)
            case "tools":
                specs = session.agent.specs[1:]
                session.host.agent = structs.replace(session.agent, specs=specs)
            case "message 2":
                said = session.transcript.history.messages[1]
                other = structs.replace(said, parts=(Text("hallo"),))
                session.transcript.history.messages[1] = other
                session.transcript.history.views.clear()
            case _:
                target = session.agent.providers[0].target
                r.runtime.agents.learned[target].quirks["flatten"] = True
        await r.turn("third")
        (text,) = warnings(r)
        at = first_difference(r.requests[-2], r.requests[-1])
        assert f"at byte {at:,} " in text and "tokens are read again" in text
        assert ("quirks learned: flatten" if "flatten" in who else who) in text
        assert len(text) <= 300 and text in caplog.text
        r.provider.add(say("fourth"))
        await r.turn("fourth")
        assert len(warnings(r)) == 1, "the new beginning is the beginning now"


async def test_what_a_provider_does_not_cache_may_change(tmp_path: Path) -> None:
    """Limits, and requests that stand beside the conversation."""
    cut = call(("c1", "echo", '{"word": "never en')).stop("length")
    steps = [say("hello"), cut, say("whole"), say("and")]
    async with rig(tmp_path, steps, tools=[echo()]) as r:
        await r.turn("first")
        await r.turn("second")
        assert r.requests[2].json["max_tokens"] and "max_tokens" not in r.requests[1].json
        await r.turn("third")
        assert not warnings(r)


async def test_a_refused_request_is_not_what_was_cached(tmp_path: Path) -> None:
    """It is learned from, and what was sent before it still stands at the beginning."""

    def picky(request: Received) -> Any:
        if "stream_options" in request.json:
            return status(400, "Unknown parameter: 'stream_options'.")
        return say("ok")

    async with rig(tmp_path, [say("hello")], then=picky) as r:
        await r.turn("first")
        await r.turn("second")
        assert len(r.requests) == 3 and not warnings(r)


async def test_the_guard_costs_no_more_in_a_long_conversation(tmp_path: Path) -> None:
    """It compares what is new, however long the rest is."""
    from hermes.llm import cache_guard

    compared: list[int] = []
    real = cache_guard._common_prefix

    def counting(one: bytes, two: bytes) -> int:
        compared.append(len(one))
        return real(one, two)

    steps = [call((f"c{n}", "echo", {"word": f"{n}" * 1000})) for n in range(20)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache_guard, "_common_prefix", counting)
        async with rig(tmp_path, [*steps, say("done")], tools=[echo()], check=False) as r:
            await r.turn()
    assert len(compared) >= 19 and max(compared) < 8000


# -- changes in the middle -----------------------------------------------------------------------


def context(r: Rig) -> CommandContext:
    return CommandContext(r.runtime, r.session, "test")


async def test_another_model_says_what_it_costs(tmp_path: Path) -> None:
    provider = Provider([], then=say("ok"), models=("kit-model", "kit-model-2"))
    async with rig(tmp_path, provider, config={"model": {"max_tokens": 100}}) as r:
        reply = await model_command.run(context(r), "kit-model-2")
        assert "tokens" not in reply.text, "nothing has been read yet"
        await r.turn("x" * 20_000)
        reply = await model_command.run(context(r), "kit-model")
        assert "kit-model" in reply.text and "It will re-read the conversation once" in reply.text
        tokens = int(reply.text.split("about ")[1].split(" tokens")[0].replace(",", ""))
        assert 3_000 < tokens < 60_000
        await r.turn("go on")
        assert not warnings(r), "it was asked for"


@pytest.mark.parametrize(("name", "costs"), [("anthropic", True), ("openrouter", False)])
async def test_another_effort_says_what_it_costs_where_it_does(
    tmp_path: Path, name: str, costs: bool
) -> None:
    wire = "anthropic" if name == "anthropic" else "chat"
    model = "claude-sonnet-5" if costs else "openai/gpt-5"
    provider = Provider(then=say("ok"), wire=wire)
    async with rig(tmp_path, provider, config=row(name, model, provider)) as r:
        await r.turn("x" * 20_000)
        reply = await reasoning_command.run(context(r), "high")
        assert ("re-read the conversation" in reply.text) == costs
        await r.turn("again")
        check_prefix_of_messages(r.requests)
        assert not warnings(r)


def check_prefix_of_messages(requests: list[Received]) -> None:
    one, two = plain(requests[0])["messages"], plain(requests[1])["messages"]
    assert two[: len(one)] == one


async def test_tools_that_are_searched_for_leave_the_list_alone(tmp_path: Path) -> None:
    steps = [
        call(("c1", "tool_search", {"query": "python"})),
        call(("c2", "tool_search", {"name": "nonsense", "arguments": {}})),
        say("done"),
    ]
    async with rig(tmp_path, steps) as r:
        await r.turn()
        lists = [json.dumps(q.json["tools"]) for q in r.requests]
        assert len(set(lists)) == 1 and "tool_search" in lists[0]
        check_prefix(r.requests)
        assert [m.role for m in messages(r.requests[-1])].count("tool") == 2
