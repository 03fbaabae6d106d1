"""The lines an editor sends; the first request is answered before anything large is imported."""

import asyncio
import json
from typing import Any

from typing_extensions import override

from hermes.version import VERSION

PROTOCOL_VERSION = 1
_INVALID_REQUEST = -32600
CAPABILITIES: dict[str, Any] = {
    "protocolVersion": PROTOCOL_VERSION,
    "agentCapabilities": {
        "loadSession": True,
        "mcpCapabilities": {"http": True, "sse": True},
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "sessionCapabilities": {"list": {}, "fork": {}, "resume": {}, "close": {}},
    },
    "agentInfo": {"name": "hermes", "title": "Hermes", "version": VERSION},
    "authMethods": [],
}
"""What `initialize` answers."""


class EditorReader(asyncio.StreamReader):
    """Leaves out lines that are no messages: they would end the connection."""

    @override
    async def readuntil(self, separator: Any = b"\n") -> bytes:
        while True:
            line = await super().readuntil(separator)
            match _read_object(line):
                case {"id": int(id), "error": error, **rest} if "method" not in rest:
                    words = error if isinstance(error, dict) else {"message": str(error)}
                    return json.dumps({"id": id, "error": words}).encode() + b"\n"
                case {"method": str()} | {"id": int()}:
                    return line


def _read_object(line: bytes) -> Any:
    """A line as JSON; None when it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


async def answer_initialize(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> dict[str, Any] | None:
    """Answer the first request of an editor; its parameters, or None if it has gone. Other requests
    are refused."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            continue
        if not line:
            return None
        request = _read_object(line)
        if not isinstance(request, dict) or "id" not in request:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
        is_first = request.get("method") == "initialize"
        if is_first:
            reply["result"] = CAPABILITIES
        else:
            reply["error"] = {"code": _INVALID_REQUEST, "message": "Send initialize first."}
        writer.write(json.dumps(reply).encode() + b"\n")
        await writer.drain()
        if is_first:
            params = request.get("params")
            return params if isinstance(params, dict) else {}
