"""Our MCP client as the official conformance suite starts it: the address is the last argument."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

import httpx2

from hermes.core.errors import HermesError
from hermes.mcp import connection as module
from hermes.mcp.server_config import parse_server

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
CONTEXT = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")


async def follow(address: str) -> None:
    """A browser whose user always agrees."""
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as browser:
        await browser.get(address)


async def agree(question: str, choices: tuple[str, ...]) -> str:
    """A person who takes what is proposed."""
    return ""


async def main(url: str) -> None:
    tasks: set[asyncio.Task[None]] = set()

    def show(address: str) -> None:
        tasks.add(asyncio.create_task(follow(address)))

    known = "https://conformance-test.local/client-metadata.json" if "cimd" in SCENARIO else ""
    client = {"client_id": known, **{k: v for k, v in CONTEXT.items() if k.startswith("client_")}}
    entry = {"url": url, "oauth": client}
    config = parse_server("suite", entry)
    login = module.BrowserLogin(show, None) if SCENARIO.startswith("auth/") else None
    events = module.ConnectionEvents(lambda: None, lambda: agree)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        listener = await login.listen(0) if login else None
        try:
            async with module.open_connection(config, home, events, login) as (made, _):
                tools = await made.list_tools()
                for tool in tools:
                    arguments = {name: 1 for name in tool.schema.get("properties", {})}
                    await made.call_tool(tool.name, arguments, print)
        except HermesError as error:
            print(error, file=sys.stderr)
            sys.exit(1)
        finally:
            if listener:
                listener.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
