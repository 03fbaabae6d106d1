"""One call of an MCP server over stdio, by us and by the bare library: python -m bench.mcp_calls"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from statistics import median
from typing import Any

from mcp import Client, StdioServerParameters

from bench.measure import emit
from hermes.mcp.server_config import parse_server
from hermes.mcp.server_link import LinkSeams, ServerLink

CALLS = 300
SERVER = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("bench")
@server.tool()
def add(a: int, b: int) -> str:
    return str(a + b)
server.run("stdio")
"""
ARGUMENTS = {"a": 1, "b": 2}


async def time_call(call: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def main() -> None:
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        tasks.add(task)
        return task

    with tempfile.TemporaryDirectory() as folder:
        entry = {"command": sys.executable, "args": ["-c", SERVER]}
        seams = LinkSeams(Path(folder), lambda name: None, spawn)
        link = ServerLink(parse_server("bench", entry), seams)
        await link.connect()
        (tool,) = link.agreement.read_tools()
        bare = StdioServerParameters(command=sys.executable, args=["-c", SERVER])
        ours, theirs = [], []
        async with Client(bare) as client:
            for _ in range(CALLS):  # in turn: both see the same machine
                ours.append(await time_call(lambda: link.call_tool(tool, ARGUMENTS)))
                theirs.append(await time_call(lambda: client.call_tool("add", ARGUMENTS)))
        await link.close()
    emit("mcp_call", median(ours))
    emit("mcp_ratio", median(ours) / median(theirs))


if __name__ == "__main__":
    asyncio.run(main())
