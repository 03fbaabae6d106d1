"""What goes over the wire is small, and grows only at its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit import WIRES, Home, Provider, call, run_hermes, say
from tests.kit.bodies import messages, prefix, system, tools

LIMIT = 12 * 1024
SMALL_LIMIT = 6 * 1024
"""At an endpoint of which only the address and the model's name are known."""
UNREADABLE = (
    '<tool_call>{"name": "write_file", "arguments": {"path": "a", "content": "b</tool_call>'
)


@pytest.mark.parametrize("wire", WIRES)
async def test_the_request_for_hi_is_below_12_kilobytes(tmp_path: Path, wire: str) -> None:
    async with Provider([say("hello")], wire=wire) as p:
        ran = await run_hermes(["chat", "-q", "hi"], Home.of(tmp_path, p))
        assert ran.rc == 0
        request = p.requests[0]
        assert len(request.body) < LIMIT
        assert {"terminal", "read_file", "write_file"} <= set(tools(request)), "with its tools"
        assert system(request) and [m.text for m in messages(request)] == ["hi"]


async def test_a_bare_endpoint_is_sent_less_than_6_kilobytes(tmp_path: Path) -> None:
    """Also when a call could not be read and the answer is requested again in a fixed form."""
    answer = json.dumps({"about": "knowledge", "answer": "hello"})
    async with Provider([say(UNREADABLE), say(answer)]) as p:
        model = {"provider": "custom", "base_url": p.base_url, "default": "tiny-1.5b"}
        ran = await run_hermes(["chat", "-q", "hi"], Home(tmp_path, model=model))
        assert ran.rc == 0 and ran.stdout == "hello\n", ran
        assert "a tool call could not be read: asking for it in a fixed form" in ran.stderr
        assert "prompt cache" not in ran.stderr, "what was done on purpose is no loss"
        native, forced = p.requests
        assert tools(native) and "response_format" in forced.json
        assert all(len(request.body) < SMALL_LIMIT for request in p.requests)


@pytest.mark.parametrize("wire", WIRES)
async def test_consecutive_requests_share_their_prefix(tmp_path: Path, wire: str) -> None:
    """Within a turn and over three processes that continue one session."""
    steps = [
        say("Let me see. ") + call(("c1", "read_file", {"path": "a.txt"})),
        say("It says älpha."),
        say("Second."),
        call(("c2", "read_file", {"path": "a.txt", "limit": 1})),
        say("Third."),
    ]
    async with Provider(steps, wire=wire) as p:
        home = Home.of(tmp_path, p)
        home.file("a.txt", "älpha\n")
        for text, more in (("one", []), ("two", ["--continue"]), ("three", ["--continue"])):
            ran = await run_hermes(["chat", "-q", text, *more], home)
            assert ran.rc == 0, ran
        assert len(p.requests) == 5
        for before, after in zip(p.requests, p.requests[1:], strict=False):
            assert after.body.startswith(prefix(before)), f"\n{before.body!r}\n{after.body!r}"
            assert json.loads(after.body)
