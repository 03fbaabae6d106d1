"""The public form of what happened."""

from __future__ import annotations

from typing import Any

import pytest

from hermes.cli.terminal.render import event_object
from hermes.core.events import ToolStarted
from hermes.core.message import ToolCall


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ('{"path": "x"}', {"path": "x"}),
        ("", {}),
        ("None", {}),
        ("null", {}),
        ('{"path": "x",}', {"path": "x"}),
        ("{'path': None}}", {"path": None}),
        ("[1]", [1]),
        ('{"a":1}{"a":2}', '{"a":1}{"a":2}'),
    ],
)
def test_arguments_are_those_the_tool_was_given(raw: str, shown: Any) -> None:
    event = event_object(ToolStarted(ToolCall("c1", "read_file", raw)))
    assert event is not None and event["arguments"] == shown
