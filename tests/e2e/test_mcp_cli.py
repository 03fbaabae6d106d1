"""`hermes mcp` as a program: servers are added, tested, called, reviewed and removed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from hermes.mcp.definitions import ToolDefinition
from hermes.mcp.pins import PinStore
from hermes.mcp.server_config import parse_server
from tests.e2e.test_knowledge import loaded_modules
from tests.flow.test_mcp import KIT, SWAP, script
from tests.kit import Home, Provider, call, run_hermes, say
from tests.kit.bodies import messages
from tests.kit.processes import naming

ECHO = """
def call(m):
    text = json.dumps(m["params"].get("arguments"))
    write(m["id"], {"content": [{"type": "text", "text": text}]})
serve(call)
"""


async def run(home: Home, *words: str) -> tuple[int, str, str]:
    ran = await run_hermes(["mcp", *words], home)
    return ran.rc, ran.stdout, ran.stderr


async def test_a_server_is_added_tested_called_and_removed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert await run(home, "list") == (
        0,
        "",
        "hermes: no MCP servers are configured; see hermes mcp --help\n",
    )
    server = script(tmp_path, ECHO, "mcp-echo-cli")
    command = [server["command"], *server["args"]]
    code, out, _ = await run(home, "add", "kit", "--env", "A=1", "--", *command)
    assert (code, out) == (0, "added kit; to try it: hermes mcp test kit\n")
    code, out, _ = await run(home, "test", "kit")
    assert code == 0 and re.fullmatch(r"kit: ok, 1 tool, \d+ ms, 2025-06-18\n", out)
    code, out, _ = await run(home, "call", "kit", "work", '{"a": 2}')
    assert (code, out) == (0, '{"a": 2}\n')
    code, _, err = await run(home, "call", "kit", "nothing")
    assert code == 2 and "has no tool nothing. Tools: work." in err
    code, _, err = await run(home, "call", "kit", "work", "[1]")
    assert code == 2 and "must be a JSON object" in err
    assert (await run(home, "disable", "kit"))[1] == "kit is disabled\n"
    assert (await run(home, "list"))[1] == "kit  disabled\n"
    assert (await run(home, "enable", "kit"))[1] == "kit is enabled\n"
    code, out, _ = await run(home, "list", "--json")
    assert json.loads(out) == [{"name": "kit", "state": "ok", "tools": 1, "origin": "config.yaml"}]
    assert (await run(home, "add", "kit", "--", "x"))[0] == 2
    assert (await run(home, "remove", "kit"))[1] == "removed kit\n"
    assert json.loads((home.path / "mcp" / "pins.json").read_text()) == {}
    assert not naming("mcp-echo-cli")


async def test_usage_errors_change_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    before = (home.path / "config.yaml").read_bytes()
    for words in (
        ["add", "x"],
        ["add", "x", "--url", "http://a", "--", "b"],
        ["add", "a__b", "--", "c"],
        ["add", "x", "--url", "ftp://a"],
        ["test"],
        ["test", "absent"],
        ["call", "x"],
        ["list", "x"],
    ):
        code, _, err = await run(home, *words)
        assert code == 2 and err.count("\n") == 1, (words, err)
    home.env["HERMES_CHILD"] = "1"
    for words in (["add", "x", "--", "y"], ["review", "x"], ["call", "x", "y"], ["serve"]):
        code, _, err = await run(home, *words)
        assert code == 2 and "An agent's tool may not" in err
    assert (home.path / "config.yaml").read_bytes() == before


async def test_failures_are_listed_and_changes_reviewed(tmp_path: Path) -> None:
    text = tmp_path / "description"
    text.write_text("Does work.")
    swap = script(tmp_path, SWAP, "mcp-swap-cli")
    home = Home(
        tmp_path,
        mcp_servers={
            "swap": {**swap, "args": [*swap["args"], str(text)]},
            "gone": {"command": "no-such-program"},
            "typo": {"comand": "x"},
        },
    )
    assert (await run(home, "test", "swap"))[0] == 0
    text.write_text("Does other work.")
    code, out, _ = await run(home, "list")
    rows = dict(line.split(None, 1) for line in out.splitlines())
    assert code == 0 and rows["swap"] == "changed  1 tool"
    assert rows["gone"].startswith("failed: could not be started: there is no program")
    assert rows["typo"].startswith("failed: cannot be used: Object contains unknown field")
    code, out, err = await run(home, "test", "swap")
    assert (code, out) == (1, "swap: changed\n")
    assert "MCP swap changed 1 tool since you agreed; it is off: hermes mcp review swap." in err
    code, out, err = await run(home, "review", "swap")
    assert code == 2 and "needs --yes" in err
    assert "changed  work\n  - Does work.\n  + Does other work.\n" in out
    code, out, _ = await run(home, "review", "swap", "--yes")
    assert code == 0 and out.endswith("agreed to 2 tools of swap\n")
    assert (await run(home, "review", "swap"))[1] == "swap: nothing changed\n"


async def test_a_single_prompt_uses_a_server_and_leaves_nothing(tmp_path: Path) -> None:
    steps = [
        call(("c1", "tool_search", {"query": "add numbers"})),
        call(("c2", "tool_search", {"name": "mcp__kit__add", "arguments": {"a": 1, "b": 1}})),
        say("two"),
        say("hello Bo"),
    ]
    async with Provider(steps) as p:
        home = Home.of(tmp_path, p)
        (home.path / "mcp.json").write_text(
            json.dumps({"mcpServers": {"kit": {"type": "stdio", "command": sys.executable,
                                               "args": [KIT, ], "other": 1}}})
        )  # fmt: skip
        ran = await run_hermes(["chat", "-q", "what is 1 + 1?"], home)
        assert ran.rc == 0 and ran.stdout.strip() == "two", ran
        assert "MCP kit: 10 tools." in ran.stderr
        assert "2" in messages(p.requests[2])[-1].results[-1][1]
        ran = await run_hermes(["chat", "-q", "/mcp:kit:greet who=Bo"], home)
        assert ran.rc == 0 and messages(p.requests[3])[-1].text == "Please greet Bo."
    assert not naming(KIT)


def test_unused_servers_cost_nothing(tmp_path: Path) -> None:
    """Twenty servers with fifty known tools each: one short line, no import, no process."""
    with Provider([say("Hello.")]) as p:
        home = Home.of(tmp_path, p)
        entries = {f"server{n}": {"command": "no-such-program"} for n in range(20)}
        home.configure(mcp_servers=entries)
        pins = PinStore(home.path)
        for name, entry in entries.items():
            tools = [
                ToolDefinition(f"tool{n}", "Does something. " * 20, {"type": "object"})
                for n in range(50)
            ]
            pins.save_pin(name, parse_server(name, dict(entry)).digest, tools)
        loaded = loaded_modules(home)
        heavy = {"mcp", "mcp_types", "pydantic", "anyio", "httpx2", "jsonschema"}
        assert not heavy & {name.partition(".")[0] for name in loaded}
        assert "hermes.mcp.connection" not in loaded
        body = p.requests[0].body
        assert len(body) < 12 * 1024 and b"server0 (50)" in body and b"tool0" not in body


def test_without_servers_nothing_of_them_is_loaded(tmp_path: Path) -> None:
    with Provider([say("Hello.")]) as p:
        loaded = loaded_modules(Home.of(tmp_path, p))
        assert not [name for name in loaded if name.startswith(("hermes.mcp", "mcp"))]
        assert b"mcp" not in p.requests[0].body.lower()


async def test_doctor_and_config_check_name_what_is_wrong(tmp_path: Path) -> None:
    home = Home(tmp_path, mcp_servers={"gone": {"command": "no-such-program"}, "typo": {"x": 1}})
    ran = await run_hermes(["doctor", "--json"], home)
    row = next(row for row in json.loads(ran.stdout) if row["name"] == "mcp")
    assert row["state"] == "note" and "there is no program" in " ".join(row["details"])
    ran = await run_hermes(["config", "check"], home)
    assert ran.rc == 0 and "note: mcp_servers.typo is not used: Object contains" in ran.stdout
