"""What models give to tools, nearly right: taken for what it means, or refused with what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
from msgspec import to_builtins

from hermes.core.errors import ToolError
from hermes.core.message import Message, ToolCall
from hermes.tools._files.paths import resolve_path
from hermes.tools.registry import load_tool
from hermes.tools.todo import restore_todos

TODO = {"content": "x", "status": "in_progress", "id": "1"}


@pytest.mark.parametrize(
    ("tool", "given", "meant"),
    [
        ("patch", dict(path="a", old_string="b", new_string="c"), dict(path="a", old="b", new="c")),
        ("patch", dict(filePath="a", oldString="b", replaceAll="true"), dict(old="b", all=True)),
        ("patch", dict(path="a", old="1", old_string="2"), dict(old="1")),
        ("patch", dict(path="a", old=5, new=6.5), dict(old="5", new="6.5")),
        ("read_file", dict(path="a", offset="2", limit=None), dict(offset=2, limit=2000)),
        ("read_file", dict(path="a", offset="2.0", limit=""), dict(offset=2, limit=2000)),
        ("read_file", dict(file_path="a", start_line=3, end_line=4), dict(path="a", offset=3)),
        ("search_files", dict(query="x", kind="Names", context="null"), dict(kind="names")),
        ("todo", dict(todos=[dict(content="x", status="In-Progress", id=1)]), dict(todos=[TODO])),
        ("todo", dict(todos='[{"content": "x"}]'), {}),
        ("todo", dict(todos=dict(content="x")), {}),
        ("clarify", dict(question="x", options="a"), dict(choices=["a"])),
        ("execute_code", dict(code="```python\nif x:\n    y\n```\n"), dict(code="if x:\n    y")),
        ("execute_code", dict(script="\n  x\n  y"), dict(code="\nx\ny")),
        ("execute_code", dict(code="x = 1\n"), dict(code="x = 1\n")),
        ("web_search", dict(query="x", limit=3), dict(query="x", count=3)),
    ],
)
def test_what_can_mean_only_one_thing(
    tool: str, given: dict[str, Any], meant: dict[str, Any]
) -> None:
    found = to_builtins(load_tool(tool).parse_params(given))
    assert {name: found[name] for name in meant} == meant


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("read_file", {}, "`path` is missing. It takes {path, offset?, limit?}"),
        ("read_file", dict(path=["a"]), "`path` must be text, not a list"),
        ("read_file", dict(path="a", offset=2.5), "`offset` must be a whole number, not 2.5"),
        ("read_file", dict(path="a", offset="two"), "must be a whole number, not 'two'"),
        ("write_file", dict(path="a", content={"b": 1}), "`content` must be text, not an object"),
        ("write_file", dict(path="a", description="b"), "`content` is missing"),
        ("search_files", dict(pattern="a", kind="files"), "one of content, names, not 'files'"),
        ("todo", dict(todos=[{}]), "`todos[0].content` is missing"),
        ("todo", dict(todos=["x"]), "`todos[0]` must be an object, not 'x'"),
        ("todo", dict(todos=[dict(content="x", status="done")]), "in_progress, pending, not"),
    ],
)
def test_what_cannot_be_meant_is_said(tool: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolError) as error:
        load_tool(tool).parse_params(given)
    assert f"Invalid arguments for {tool}: " in str(error.value) and said in str(error.value)


def test_what_a_tool_does_not_know_is_named() -> None:
    read = load_tool("read_file")
    assert read.describe_ignored({"path": "a", "end_line": 4}) == (
        "ignored: end_line; read_file takes path, offset, limit"
    )
    assert not read.describe_ignored({"file_path": "a", "limit": "2", "offset": None})


def test_a_list_that_was_mended_is_recalled() -> None:
    call = ToolCall("c", "todo", '{"todos": [{"content": "x", "id": 7}]}')
    assert [item.id for item in restore_todos([Message("assistant", (call,))])] == ["7"]


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (" a.txt\n", "a.txt"),
        ("`a.txt`", "a.txt"),
        ("\"'a b.txt'\"", "a b.txt"),
        ("'new.txt'", "new.txt"),
        ("file://{}/a%20b.txt", "a b.txt"),
        ("FILE://localhost{}/a.txt", "a.txt"),
        ("@a.txt", "a.txt"),
        ("@scope/x", "@scope/x"),
        ('"q"', '"q"'),
        ("~nobody-here", "~nobody-here"),
        (normalize("NFC", "é.txt"), normalize("NFD", "é.txt")),
        (normalize("NFD", "ü.txt"), normalize("NFC", "ü.txt")),
    ],
)
def test_paths_with_something_around_them(tmp_path: Path, raw: str, name: str) -> None:
    for there in ("a.txt", "a b.txt", '"q"', "q", normalize("NFD", "é.txt"), "ü.txt"):
        (tmp_path / there).touch()
    assert resolve_path(raw.replace("{}", str(tmp_path)), tmp_path) == tmp_path / name


@pytest.mark.parametrize("raw", ['"/etc/x"', "'../x'", "@/etc/x", "file:///etc/x"])
def test_where_a_path_leads_does_not_depend_on_what_is_there(tmp_path: Path, raw: str) -> None:
    """It was judged before it is used."""
    before = resolve_path(raw, tmp_path)
    (tmp_path / raw).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / raw).touch()
    assert resolve_path(raw, tmp_path) == before
