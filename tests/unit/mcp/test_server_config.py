"""Entries of servers: what is accepted, what is refused with a reason, and how tools are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.core.errors import ConfigError
from hermes.mcp.definitions import ToolDefinition, name_tools
from hermes.mcp.pins import PinStore
from hermes.mcp.server_config import parse_server, read_server_file


@pytest.mark.parametrize(
    ("name", "entry", "part"),
    [
        ("ok", {"command": "x"}, ""),
        ("ok-1_2", {"url": "https://example.com/mcp", "transport": "sse"}, ""),
        ("x" * 32, {"command": "x", "env": {"PORT": 8080, "ON": True}}, ""),
        ("x" * 33, {"command": "x"}, "its name"),
        ("a__b", {"command": "x"}, "its name"),
        ("a.b", {"command": "x"}, "its name"),
        ("", {"command": "x"}, "its name"),
        ("ok", {}, "either a command or a url"),
        ("ok", {"command": "x", "url": "https://e.com"}, "either a command or a url"),
        ("ok", {"url": "file:///etc/passwd"}, "http"),
        ("ok", {"command": "x", "comand": "y"}, "comand"),
        ("ok", {"command": "x", "timeout": 0}, "timeout"),
        ("ok", {"command": "x", "args": "y"}, "args"),
        ("ok", {"command": "x", "declare": list("abcdef")}, "declare"),
    ],
)
def test_an_entry_is_accepted_or_says_why_not(name: str, entry: dict[str, Any], part: str) -> None:
    problem = parse_server(name, entry).problem
    assert part in problem and bool(part) == bool(problem)


def test_variables_are_filled_in_and_missing_ones_named() -> None:
    entry = {"command": "${DIR}/run", "args": ["--x=${A}"], "env": {"K": "${A}"}}
    server = parse_server("s", entry)
    got = server.expand_variables({"DIR": "/opt", "A": "1"}.get).settings
    assert (got.command, got.args, got.env) == ("/opt/run", ("--x=1",), {"K": "1"})
    with pytest.raises(ConfigError, match="MCP s needs DIR, which is set neither"):
        server.expand_variables({"A": "1"}.get)
    assert server.digest == parse_server("s", entry).digest


def test_files_of_other_programs_are_understood(tmp_path: Path) -> None:
    text = {
        "mcpServers": {
            "a": {"command": "x", "args": ["y"], "type": "stdio", "autoApprove": ["z"]},
            "b": {"type": "streamable-http", "url": "http://localhost:1/mcp", "disabled": True},
            "c": {"type": "sse", "url": "http://localhost:1/sse"},
        }
    }
    found = read_server_file(json.dumps(text).encode(), "mcp.json", tmp_path)
    assert [s.problem for s in found.values()] == ["", "", ""]
    assert found["a"].settings.args == ("y",) and found["a"].key == f"a@{tmp_path}"
    assert not found["b"].settings.enabled and found["b"].settings.transport == "http"
    assert found["c"].settings.transport == "sse"
    for bad in (b"", b"[]", b'{"mcpServers": 1}', b'{"mcpServers": {"a": 1}}', b"{"):
        with pytest.raises(ConfigError, match="mcpServers"):
            read_server_file(bad, "mcp.json", None)


def test_names_of_tools_are_legal_short_and_unique() -> None:
    offered = ["get.item", "get_item", "x" * 200, "x" * 201, "日本"]
    names = name_tools("srv", offered)
    assert names == name_tools("srv", reversed(offered))
    assert names["get_item"] == "mcp__srv__get_item"
    assert name_tools("srv", ["get.item"]) == {"get.item": "mcp__srv__get_item"}
    assert len(set(names.values())) == 5
    for name in names.values():
        assert len(name) <= 64 and name.isascii() and name.startswith("mcp__srv__")
    assert names["x" * 200][:56] == names["x" * 201][:56]


def test_pins_of_two_writers_are_both_kept_and_a_damaged_file_agrees_to_nothing(
    tmp_path: Path,
) -> None:
    tool = ToolDefinition("t", "Does it.", {"type": "object"})
    one, two = PinStore(tmp_path), PinStore(tmp_path)
    pin = one.save_pin("a", "source", [tool])
    two.save_pin("b", "source", [tool])
    assert set(one.read_all()) == {"a", "b"}
    assert one.read_definitions("a", pin) == [tool]
    changed = ToolDefinition("t", "Does other things.", {"type": "object"})
    one.save_definitions("a", [changed])
    assert one.read_definitions("a", pin) == []
    file = tmp_path / "mcp" / "pins.json"
    assert file.stat().st_mode & 0o077 == 0
    file.write_text("{")
    with pytest.raises(ConfigError, match="no MCP server is used"):
        two.read_all()
