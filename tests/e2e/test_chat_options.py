"""Options of a conversation: answers that fit a schema, tools allowed ahead, worktrees."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.kit import Home, Provider, call, run_hermes, say

pytestmark = pytest.mark.e2e
SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer", "minimum": 1}, "names": {"$ref": "#/$defs/names"}},
    "required": ["count"],
    "additionalProperties": False,
    "$defs": {"names": {"type": "array", "items": {"type": "string", "minLength": 2}}},
}


async def test_an_answer_fits_the_schema(tmp_path: Path) -> None:
    async with Provider([say("about three"), say('```json\n{"count": 3}\n```')]) as p:
        home = Home.of(tmp_path, p)
        home.file("schema.json", json.dumps(SCHEMA))
        ran = await run_hermes(["-q", "how many?", "--output-schema", "schema.json"], home)
        assert (ran.rc, ran.stdout) == (0, '{"count":3}\n'), ran.stderr
        assert "minimum" in p.requests[0].json["messages"][-1]["content"]


async def test_an_answer_that_never_fits_fails(tmp_path: Path) -> None:
    async with Provider([], then=lambda _: say('{"count": 0}')) as p:
        home = Home.of(tmp_path, p)
        home.file("schema.json", json.dumps(SCHEMA))
        args = ["-q", "how many?", "--output-schema", "schema.json", "--output", "json"]
        ran = await run_hermes(args, home)
        assert ran.rc == 1 and ran.json["error"]["code"] == "output_schema"
        assert "'count' in the answer must be at least 1" in ran.json["error"]["message"]
        missing = await run_hermes(["-q", "x", "--output-schema", "nosuch.json"], home)
        assert missing.rc == 2 and "cannot read nosuch.json" in missing.stderr


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ('{"type": "objet"}', "$.type must be one of object, array, string, number, integer"),
        ('{"properties": {"n": {"type": "int"}}}', "$.properties.n.type must be one of"),
        ('{"properties": ["n"]}', "$.properties must be an object"),
        ('{"anyOf": [{"required": "n"}]}', "$.anyOf[0].required must be a list"),
        ('{"items": {"minLength": true}}', "$.items.minLength must be a number"),
        ('{"pattern": "("}', "$.pattern is no regular expression"),
        ("[]", "it must be an object"),
        ("{", "is not JSON"),
    ],
)
async def test_what_is_no_schema_is_refused(tmp_path: Path, schema: str, problem: str) -> None:
    """Any answer would fit it."""
    async with Provider([]) as p:
        home = Home.of(tmp_path, p)
        home.file("schema.json", schema)
        ran = await run_hermes(["-q", "how many?", "--output-schema", "schema.json"], home)
        assert ran.rc == 2 and problem in ran.stderr and not p.requests


@pytest.mark.parametrize(("allowed", "ran_it"), [("terminal:git stash drop", True), ("", False)])
async def test_tools_are_allowed_ahead(tmp_path: Path, allowed: str, ran_it: bool) -> None:
    asking = call(("c1", "terminal", {"command": "git stash drop"}))
    async with Provider([asking, say("done")]) as p:
        home = Home.of(tmp_path, p)
        ran = await run_hermes(["-q", "go", "--allowed-tools", allowed], home)
        assert ran.rc == 0
        result = p.last.json["messages"][-1]["content"]
        assert ("Not run" not in result) is ran_it


async def test_tools_of_plugins_and_servers_are_allowed_ahead(tmp_path: Path) -> None:
    code = """
def register(api):
    api.register_tool("add_note", "notes", {}, lambda args, **kw: "noted", risk="write")
"""
    noting = call(("c1", "tool_search", {"name": "add_note", "arguments": {}}))
    async with Provider([noting, say("done")]) as p:
        home = Home.of(tmp_path, p, plugins={"enabled": ["notes"]})
        (home.path / "plugins").mkdir(mode=0o700)
        (home.path / "plugins/notes.py").write_text(code)
        allowed = "add_note,mcp__kit__add"
        ran = await run_hermes(["-q", "go", "--allowed-tools", allowed, "--output", "json"], home)
        assert [row["result"] for row in ran.json["tool_calls"]] == ["noted"], ran


@pytest.mark.parametrize("allowed", ["terminal", "write_file:x", "nosuch"])
async def test_what_cannot_be_allowed_is_refused(tmp_path: Path, allowed: str) -> None:
    async with Provider([]) as p:
        ran = await run_hermes(["-q", "go", "--allowed-tools", allowed], Home.of(tmp_path, p))
        assert ran.rc == 2 and "--allowed-tools" in ran.stderr


async def test_a_worktree(tmp_path: Path) -> None:
    writing = call(("w1", "write_file", {"path": "made.txt", "content": "x\n"}))
    async with Provider([writing, say("done"), say("again")]) as p:
        home = Home.of(tmp_path, p)
        refused = await run_hermes(["-q", "go", "--worktree", "fix"], home)
        assert refused.rc == 2 and "git" in refused.stderr
        for words in (
            ["init", "-q", "-b", "main"],
            ["-c", "user.name=x", "-c", "user.email=y", "commit", "-q", "--allow-empty", "-m", "a"],
        ):
            subprocess.run(["git", *words], cwd=home.work, check=True)
        ran = await run_hermes(["-q", "go", "--worktree", "fix"], home)
        assert ran.rc == 0, ran.stderr
        other = tmp_path / "work-fix"
        assert (other / "made.txt").exists() and not (home.work / "made.txt").exists()
        again = await run_hermes(["-q", "go", "--worktree", "fix", "--continue"], home)
        assert again.stdout == "again\n", again.stderr
        for name in ("../x", ""):
            bad = await run_hermes(["-q", "go", "--worktree", name], home)
            assert bad.rc == 2 and "name of a worktree" in bad.stderr
