"""Errors of the responses wire, and bodies that are not what was asked for."""

from __future__ import annotations

import json

import pytest

from hermes.core.errors import Kind
from hermes.core.message import (
    Text,
)
from tests.wire.responses_frames import (
    COUNTED,
    Json,
    Read,
    added,
    delta,
    done,
    end,
    ev,
    frames,
    message,
    stream,
)


@pytest.mark.parametrize(
    "frame",
    [
        end("failed", error={"code": "rate_limit_exceeded", "message": "Rate limit reached"}),
        {"type": "error", "code": "rate_limit_exceeded", "message": "Rate limit reached"},
        {"type": "error", "error": {"code": 429, "message": "Rate limit reached"}},
        {"error": {"code": "429", "message": "Rate limit reached"}},
        'event: error\ndata: {"code": 429, "message": "Rate limit reached"}',
    ],
)
def test_errors_in_the_stream(frame: Json | str) -> None:
    found = Read.failure(frames(delta("so far"), frame))
    assert found.kind is Kind.RATE_LIMITED
    assert "Rate limit reached" in found.message


def test_a_failure_without_words() -> None:
    assert Read.failure(frames(end("failed"))).kind is Kind.SERVER


def test_unknown_events_are_skipped() -> None:
    read = stream(
        {"type": "keepalive", "sequence_number": 1},
        ev("brand_new.delta", 0, delta="x", error={"about": "a tool"}),
        ev("queued", None, response={"status": "queued"}),
        "data: {broken",
        "data: 7",
        {"no": "type"},
        {"type": 5},
        {"type": "response.output_text.delta", "delta": 7},
        done(message("ok")),
        end(),
    )
    assert read.parts == (Text("ok"),)
    assert read.decoder.skipped == 1


@pytest.mark.parametrize("odd", ["\\ud800", "\\u0000", "\x80"])
def test_odd_characters_anywhere_are_replaced(odd: str) -> None:
    body = frames(
        added(message()), delta("a?b"), done(message("a?b")), end(output=[message("a?b")])
    )
    read = Read(body.replace(b"?", odd.encode("latin-1")))
    assert read.parts == (Text("a\ufffdb"),)
    assert read.message.usage == COUNTED


def test_bodies_that_are_not_what_was_asked_for() -> None:
    body = {"status": "completed", "output": [message("hi")], "usage": None}
    assert Read(json.dumps(body).encode(), size=2).parts == (Text("hi"),)
    assert Read(frames(done(message("hi")), end()), whole=True).parts == (Text("hi"),)
    shortcut = {"status": "completed", "output": None, "output_text": "hi"}
    assert Read(json.dumps(shortcut).encode(), whole=True).parts == (Text("hi"),)
    queued = {"status": "queued", "output": [], "usage": None, "error": None}
    assert Read(json.dumps(queued).encode(), whole=True).parts == ()
