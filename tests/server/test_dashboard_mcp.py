"""MCP servers in the dashboard: added, tried, switched and removed, with a real one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.kit.api import api
from tests.kit.dashboard import ON, sign_in


def find_row(answer: Any, name: str) -> Any:
    return next(row for row in answer.json["data"] if row["name"] == name)


async def test_mcp_servers_are_added_tried_switched_and_removed(tmp_path: Path) -> None:
    async with api(tmp_path, config=ON) as a:
        browser = await sign_in(a)
        command = [sys.executable, "-m", "tests.kit.mcp_server"]
        folder = str(Path(__file__).parents[2])
        body = {"verb": "add", "name": "kit", "command": command, "env": {"PYTHONPATH": folder}}
        assert (await browser.post("/api/mcp", body)).status == 200
        assert (await browser.post("/api/mcp", body)).status == 422
        assert find_row(await browser.get("/api/mcp"), "kit")["state"] == "not started"
        tried = await browser.post("/api/mcp", {"verb": "test", "name": "kit"})
        assert tried.json["state"] == "ok" and tried.json["tools"] > 3, tried.json
        assert find_row(await browser.get("/api/mcp"), "kit")["state"] == "ok"
        reviewed = await browser.post("/api/mcp", {"verb": "review", "name": "kit"})
        assert reviewed.json == {"changes": []}
        off = await browser.post("/api/mcp", {"verb": "disable", "name": "kit"})
        assert off.status == 200
        assert find_row(await browser.get("/api/mcp"), "kit")["state"] == "disabled"
        assert (await browser.post("/api/mcp", {"verb": "remove", "name": "kit"})).status == 200
        assert (await browser.get("/api/mcp")).json["data"] == []
        both = {"verb": "add", "name": "x", "url": "https://x.example", "command": ["x"]}
        assert (await browser.post("/api/mcp", both)).status == 400
