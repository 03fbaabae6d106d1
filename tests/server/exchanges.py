"""What the model was sent by a server under test, and when the server is idle."""

from __future__ import annotations

import asyncio
import base64

from tests.kit.api import Api

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()
PNG_URL = f"data:image/png;base64,{PNG}"


def sent_messages(a: Api, n: int = -1) -> list[tuple[str, object]]:
    """The role and content of each message the model was sent, without the system prompt."""
    messages = a.provider.requests[n].json["messages"]
    return [(m["role"], m.get("content")) for m in messages if m["role"] != "system"]


def sent_system_prompt(a: Api, n: int = -1) -> str:
    messages = a.provider.requests[n].json["messages"]
    return "\n".join(m["content"] for m in messages if m["role"] == "system")


async def wait_until_idle(a: Api) -> None:
    """Wait until no turn is running."""
    async with asyncio.timeout(90):
        while a.server.turns.slots.active_turns:
            await asyncio.sleep(0.01)
