"""Requests stay the same, byte for byte: thirty conversations as they were recorded.

What a provider has cached is lost when a request begins differently, so a change of the code must
not change what is sent. After a change that is meant to: HERMES_TEST_RECORD=1 make test
ARGS="tests/flow/test_request_bytes.py", and read the difference in data/requests.json.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from hermes.core.message import Media, Text
from hermes.core.tool import Tool, ToolResult
from tests.kit import Provider, Received, call, nothing, say, status, think
from tests.kit.rig import Rig, rig

RECORDED = Path(__file__).parent / "data" / "requests.json"
SIGNED = "c2lnbmF0dXJl"
PIXEL = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Er"
    "kJggg=="
)


class Word(Struct):
    word: str = ""


async def _echo(params: Word, context: Any) -> ToolResult:
    return ToolResult((Text(f"heard {params.word}"),))


ECHO: Tool[Any] = Tool("echo", "Says it again.", Word, _echo)


# -- what is said ------------------------------------------------------------------------------


async def text(r: Rig) -> None:
    r.provider.add(say("hello"), say("better"))
    await r.turn("first\nline two \u2028 and an emoji \U0001f600")
    await r.turn("second")


async def tools(r: Rig) -> None:
    sign = {"thoughtSignature": SIGNED} if r.provider.wire == "gemini" else {}
    r.provider.add(
        think("two at once", signature=SIGNED)
        + call(("c1", "echo", {"word": "a"}), ("c2", "echo", {"word": "b"}), **sign),
        say("one more. ") + call(("c3", "echo", {"word": "ü"}), **sign),
        say("done"),
        say("good bye"),
    )
    await r.turn("go")
    await r.turn("and now?")


async def files(r: Rig) -> None:
    r.home.file("notes.txt", "alpha\nbeta\n")
    r.provider.add(
        call(("c1", "read_file", {"path": "notes.txt"})),
        call(("c2", "patch", {"path": "notes.txt", "old_string": "beta", "new_string": "gamma"})),
        call(("c3", "write_file", {"path": "new.txt", "content": "x\n"})),
        say("written"),
    )
    await r.turn("change the notes")


async def images(r: Rig) -> None:
    r.provider.add(say("a point"), say("still a point"))
    await r.turn("what is this?", Media("image/png", data=PIXEL))
    await r.turn("sure?")


async def mistakes(r: Rig) -> None:
    """A tool that does not exist, arguments that are none, two calls with one id."""
    r.provider.add(
        call(("c1", "no_such_tool", {"a": 1})),
        call(("c2", "echo", '{"word": "a"')),
        call(("c3", "echo", {"word": "a"}), ("c3", "echo", {"word": "b"})),
        say("sorry"),
    )
    await r.turn("go")


async def faults(r: Rig) -> None:
    """A server error, an empty answer, one that is cut off by its length."""
    r.provider.add(
        status(500, "try later"),
        say("The first half of it").stop("length"),
        say(" and the rest."),
        nothing(),
        say("here I am"),
    )
    await r.turn("tell me")
    await r.turn("again")


CONVERSATIONS: list[tuple[str, str, str, Callable[[Rig], Any]]] = [
    # provider, model, wire, what is said
    *(("custom", "kit-model", wire, said) for wire in ("chat",) for said in (text, files, images)),
    *(("custom", "kit-model", wire, tools) for wire in ("chat", "responses", "gemini", "bedrock")),
    *(("custom", "kit-model", wire, mistakes) for wire in ("chat", "responses", "anthropic")),
    *(("custom", "kit-model", wire, faults) for wire in ("chat", "anthropic", "gemini")),
    ("custom", "kit-model", "responses", images),
    ("custom", "kit-model", "bedrock", images),
    ("anthropic", "claude-sonnet-4-5", "anthropic", tools),
    ("anthropic", "claude-sonnet-4-5", "anthropic", images),
    ("openai", "gpt-5", "responses", tools),
    ("openai", "gpt-5", "responses", text),
    ("gemini", "gemini-2.5-pro", "gemini", tools),
    ("gemini", "gemini-2.5-pro", "gemini", images),
    ("bedrock", "anthropic.claude-sonnet-4-5", "bedrock", tools),
    ("openrouter", "anthropic/claude-sonnet-4.5", "chat", tools),
    ("openrouter", "openai/gpt-5", "chat", tools),
    ("deepseek", "deepseek-chat", "chat", tools),
    ("alibaba", "qwen3-max", "chat", tools),
    ("mistral", "mistral-large-latest", "chat", tools),
    ("kimi", "kimi-k2", "chat", tools),
    ("zai", "glm-4.7", "chat", mistakes),
    ("xai", "grok-4", "chat", faults),
]


def name_of(conversation: tuple[str, str, str, Callable[[Rig], Any]]) -> str:
    provider, model, wire, said = conversation
    return f"{provider}-{model.replace('/', '-')}-{wire}-{said.__name__}"


def config_for(provider: Provider, name: str, model: str) -> dict[str, Any]:
    """The built-in row of this name, at the scripted provider's address."""
    if name == "custom":
        return {"model": {"default": model}}
    row = {"base_url": provider.base_url, "api_key_env": "KIT_KEY"}
    if provider.wire == "responses":
        row["api_mode"] = "responses"
    chosen = {"provider": name, "default": model, "base_url": "", "api_key_env": ""}
    return {"model": {**chosen, "api_mode": None}, "providers": {name: row}}


def without_chance(request: Received, r: Rig) -> str:
    """The body with what differs from run to run named instead."""
    body = request.body.decode()
    places = ((f"{r.home.work}/", "WORK/"), (str(r.home.work.parent), "ROOT"))
    for value, name in (*places, (r.session.id, "SESSION")):
        body = body.replace(value, name)
    body = re.sub(r"<(/?)([a-z-]+)-[0-9a-f]{6}\b", r"<\1\2-MARK", body)
    body = re.sub(r"Platform: [^\\\n]*", "Platform: PLATFORM", body)
    body = re.sub(r"\b20\d\d-\d\d-\d\d(?: \d\d:\d\d(?::\d\d)?)?\b", "DATE", body)
    return without_additions(re.sub(r"hermes_[0-9a-f]{16,}", "RANDOM", body))


def without_additions(body: str) -> str:
    """The body without what was added on purpose since the recording: the parameter `escalate` of
    `terminal`, the lines of the prompt about the sandbox, and the declaration of `memory`."""
    while (start := body.find(',"escalate":{')) >= 0:
        body = body[:start] + body[end_of_object(body, start) :]
    while (start := body.find('"name":"memory"')) >= 0:
        while not body[: start + 1].endswith((",{", "[{")):
            start = body.rindex("{", 0, start)
        body = body[: start - 1] + body[end_of_object(body, start) :]
    body = re.sub(
        r" (cronjob|delegate_task|image_generate|memory|skill_manage|skill_view|skills_list"
        r"|text_to_speech),(?= [a-z_]+[,.])",
        "",
        body,
    )
    return re.sub(r"\\nCommands run in a sandbox: .*?the user decides\.", "", body)


def end_of_object(body: str, start: int) -> int:
    """Behind the first object that begins at `start` or later."""
    end, depth = body.index("{", start), 0
    while True:
        depth += {"{": 1, "}": -1}.get(body[end], 0)
        end += 1
        if not depth:
            return end


@pytest.mark.parametrize("conversation", CONVERSATIONS, ids=name_of)
async def test_requests_are_what_they_were(
    tmp_path: Path, conversation: tuple[str, str, str, Callable[[Rig], Any]]
) -> None:
    name, model, wire, converse = conversation
    provider = Provider([], wire=wire)
    config = config_for(provider, name, model)
    async with rig(tmp_path, provider, config=config, tools=[ECHO], check=False) as r:
        await converse(r)
        assert not provider.steps and not provider.surprises
        sent = [without_chance(q, r) for q in r.requests]
    record = {
        "digests": [hashlib.sha256(body.encode()).hexdigest()[:16] for body in sent],
        "last": sent[-1],
    }
    if os.environ.get("HERMES_TEST_RECORD"):
        remember(name_of(conversation), record)
    recorded = json.loads(RECORDED.read_text())[name_of(conversation)]
    assert record["last"] == recorded["last"]
    assert record["digests"] == recorded["digests"], "an earlier request than the last differs"


def remember(name: str, record: dict[str, Any]) -> None:
    everything = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    everything[name] = record
    text = json.dumps(everything, indent=1, sort_keys=True, ensure_ascii=False)
    RECORDED.write_text(text + "\n")
