"""Carries messages over the standard input and output of a supervised program."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from hermes.core.text import clean_value
from hermes.mcp.piped_process import PipedProcess
from hermes.mcp.server_log import ServerLog

MAX_MESSAGE = 10 * 1024 * 1024
MAX_GARBAGE = 1000
"""Lines that are no messages after which a server is given up."""
TOO_LARGE = "It sent a message of more than 10 MB."
Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


class StdioTransport:
    """The connection to one program; `problem` says why it broke, if it was not its end."""

    def __init__(self, process: PipedProcess, log: ServerLog) -> None:
        self.problem = ""
        self.ended = asyncio.Event()
        self._process = process
        self._log = log

    @asynccontextmanager
    async def open_streams(self) -> AsyncIterator[Streams]:
        arrived, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, waiting = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read_messages, arrived)
            tasks.start_soon(self._write_messages, waiting)
            try:
                yield incoming, outgoing
            finally:
                tasks.cancel_scope.cancel()
                for stream in (arrived, incoming, outgoing, waiting):
                    stream.close()

    async def _read_messages(
        self, arrived: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        garbage = 0
        try:
            async with arrived:
                while line := await self._read_line():
                    try:
                        message = _parse_message(line)
                    except (ValueError, RecursionError):
                        garbage += 1
                        self._log.write(b"(not a message) " + line[:500] + b"\n")
                        if garbage < MAX_GARBAGE:
                            continue
                        self.problem = f"It wrote {garbage} lines that are no messages."
                        return
                    await arrived.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # our side has closed
        finally:
            self.ended.set()

    async def _read_line(self) -> bytes:
        """The next line; empty at the end of its output, or when it is too long."""
        try:
            return await self._process.reader.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError:
            self.problem = TOO_LARGE
            return b""

    async def _write_messages(self, waiting: MemoryObjectReceiveStream[SessionMessage]) -> None:
        writer = self._process.writer
        try:
            async for item in waiting:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(text.encode() + b"\n")
                await writer.drain()
        except (anyio.ClosedResourceError, OSError):
            return  # the reader notices the end


def _parse_message(line: bytes) -> JSONRPCMessage:
    """A message; what is no character in its texts is replaced, so that somebody who waits for it
    gets the rest."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        value = clean_value(json.loads(line.decode(errors="replace")))
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
