"""MCP against others: the official conformance suite both ways, and the reference servers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.clients.client_run import install_node, install_python
from tests.e2e.test_mcp_serve import serving
from tests.flow.test_mcp import PATIENT
from tests.kit import Home, Provider, call, run_hermes, say

PACKAGES = (
    "node@22",
    "@modelcontextprotocol/conformance@0.1.16",
    "@modelcontextprotocol/server-everything",
    "@modelcontextprotocol/server-filesystem",
    "@modelcontextprotocol/server-memory",
)
CLIENT = Path(__file__).parent / "clients" / "scripts" / "mcp_conformance_client.py"
CLIENT_SCENARIOS = """
initialize tools_call elicitation-sep1034-client-defaults sse-retry auth/metadata-default
auth/metadata-var1 auth/metadata-var2 auth/metadata-var3 auth/basic-cimd
auth/scope-from-www-authenticate auth/scope-from-scopes-supported
auth/scope-omitted-when-undefined auth/scope-step-up auth/scope-retry-limit
auth/token-endpoint-auth-basic auth/token-endpoint-auth-post auth/token-endpoint-auth-none
auth/pre-registration auth/2025-03-26-oauth-endpoint-fallback auth/resource-mismatch
auth/offline-access-scope auth/offline-access-not-supported
""".split()
SERVER_SCENARIOS = (
    "server-initialize ping tools-list resources-list prompts-list dns-rebinding-protection".split()
)


@pytest.fixture(scope="module")
def node() -> Path:
    return install_node(PACKAGES) / "node_modules" / ".bin"


async def run_suite(node: Path, *words: str) -> tuple[int, str]:
    env = {**os.environ, "PATH": f"{node}:{os.environ['PATH']}"}
    ran = await asyncio.to_thread(
        subprocess.run,
        [str(node / "conformance"), *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return ran.returncode, ran.stdout[-3000:] + ran.stderr[-1000:]


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS)
async def test_our_client_conforms(node: Path, scenario: str) -> None:
    command = f"{sys.executable} {CLIENT}"
    code, shown = await run_suite(node, "client", "--command", command, "--scenario", scenario)
    assert code == 0, shown


async def test_our_server_conforms(node: Path, tmp_path: Path) -> None:
    async with serving(Home(tmp_path)) as (address, _):
        for scenario in SERVER_SCENARIOS:
            code, shown = await run_suite(node, "server", "--url", address, "--scenario", scenario)
            assert code == 0, (scenario, shown)


async def call_tool(home: Home, name: str, tool: str, **arguments: object) -> str:
    ran = await run_hermes(["mcp", "call", name, tool, json.dumps(arguments)], home)
    assert ran.rc == 0, ran
    return ran.stdout


async def use_servers_in_a_session(home: Home, notes: Path) -> None:
    """The tools of all servers are found and called in one turn."""
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("everything__echo", {"message": "hi"}, "Echo: hi"),
        ("files__list_directory", {"path": str(notes)}, "[FILE] a.txt"),
        ("memory__read_graph", {}, "entities"),
        ("time__get_current_time", {"timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
    ]
    steps = [call(("c0", "tool_search", {"query": "echo list_directory read_graph current_time"}))]
    for number, (name, arguments, _) in enumerate(calls, 1):
        wish = {"name": f"mcp__{name}", "arguments": arguments}
        steps.append(call((f"c{number}", "tool_search", wish)))
    async with Provider([*steps, say("done")]) as provider:
        home.configure(**Home.of(home.path.parent, provider).config)
        ran = await run_hermes(["chat", "-q", "go", "--output", "json"], home)
        assert ran.rc == 0, ran
        results = [tool["result"] for tool in ran.json["tool_calls"][1:]]
        for (name, _, expected), found in zip(calls, results, strict=True):
            assert expected in found, (name, found)


async def test_the_page_begins_with_something_that_works(tmp_path: Path) -> None:
    """The commands of docs/mcp.md, with the server from where `uvx` would have it."""
    page = (Path(__file__).parents[2] / "docs" / "mcp.md").read_text()
    block = page.partition("```sh\n")[2].partition("```")[0]
    install, *lines = block.splitlines()
    assert install.startswith("pip install") and any("uvx mcp-server-time" in x for x in lines)
    tools = tmp_path / "bin"
    tools.mkdir()
    python = install_python(["mcp-server-time"])
    (tools / "uvx").write_text(f'#!/bin/sh\nexec "{python}" -m mcp_server_time\n')
    (tools / "uvx").chmod(0o755)
    async with Provider([say("Answered.")]) as provider:
        home = Home.of(tmp_path, provider)
        home.env["PATH"] = f"{tools}:{Path(sys.executable).parent}:{home.env['PATH']}"
        ran = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-ec", "\n".join(lines)],
            env=home.env,
            cwd=home.work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=180,
        )
    assert ran.returncode == 0 and "time: ok, 2 tools, " in ran.stdout, ran
    assert ran.stdout.splitlines()[-1] == "Answered."


async def test_the_reference_servers_work(node: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("hello from a file")
    time = install_python(["mcp-server-time"])
    entries: dict[str, dict[str, Any]] = {
        "everything": {"command": str(node / "mcp-server-everything")},
        "files": {"command": str(node / "mcp-server-filesystem"), "args": [str(notes)]},
        "memory": {
            "command": str(node / "mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")},
        },
        "time": {"command": str(time), "args": ["-m", "mcp_server_time"]},
    }
    home = Home(
        tmp_path, mcp_servers={name: {**entry, **PATIENT} for name, entry in entries.items()}
    )
    home.env["PATH"] = f"{node}:{home.env['PATH']}"
    ran = await run_hermes(["mcp", "list", "--json"], home)
    assert {row["state"] for row in json.loads(ran.stdout)} == {"ok"}, ran
    await use_servers_in_a_session(home, notes)
    assert "Echo: hi" in await call_tool(home, "everything", "echo", message="hi")
    text = await call_tool(home, "files", "read_text_file", path=str(notes / "a.txt"))
    assert "hello from a file" in text
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote programs"]}
    await call_tool(home, "memory", "create_entities", entities=[entity])
    assert "wrote programs" in await call_tool(home, "memory", "read_graph")
    assert "Asia/Tokyo" in await call_tool(home, "time", "get_current_time", timezone="Asia/Tokyo")
