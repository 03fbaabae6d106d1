"""A small MCP server on the official library, with one tool of each kind; run as a program."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from typing import Annotated

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("kit")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@server.tool(
    description=os.environ.get("KIT_DESCRIPTION", "Add two numbers."),
    annotations=ToolAnnotations(read_only_hint=True),
)
def add(a: int, b: int) -> str:
    return str(a + b)


@server.tool(description="Say a text again.")
def echo(text: str) -> str:
    return text


@server.tool(description="Show the environment.")
def environment() -> str:
    return "\n".join(sorted(os.environ))


@server.tool(description="Draw a picture.")
def picture() -> object:
    from mcp.server.mcpserver import Image

    return Image(data=PIXEL, format="png")


@server.tool(description="Wait until it is stopped.")
async def wait_long(path: str) -> str:
    try:
        await asyncio.sleep(3600)
    finally:
        with open(path, "w") as file:
            file.write("cancelled")
    return "never"


@server.tool(description="End the server at once.")
def die() -> str:
    os._exit(3)


@server.tool(
    description="End the server at its first call.",
    annotations=ToolAnnotations(idempotent_hint=True),
)
def die_once(path: str) -> str:
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(3)
    return "alive"


@server.tool(description="Fail.")
def fail() -> str:
    raise ValueError("it does not work")


class Answer(BaseModel):
    city: str
    nights: int


class Secret(BaseModel):
    password: str


async def ask_place() -> Elicit[Answer]:
    return Elicit("Where do you want to stay?", Answer)


async def ask_secret() -> Elicit[Secret]:
    return Elicit("Who are you?", Secret)


@server.tool(description="Book a hotel.")
async def book(place: Annotated[ElicitationResult[Answer], Resolve(ask_place)]) -> str:
    return f"{place.action} {getattr(place, 'data', '')}".strip()


@server.tool(description="Log in with a password.")
async def log_in(secret: Annotated[ElicitationResult[Secret], Resolve(ask_secret)]) -> str:
    return secret.action


@server.resource("kit://note", name="note", description="A note.")
def note() -> str:
    return "the content of the note"


@server.prompt(description="Greets somebody.")
def greet(who: str) -> str:
    return f"Please greet {who}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
