"""Runs inside the sandbox, alone: a TCP port of its own loopback leads to the proxy's socket.

    python3 -I relay_script.py SOCKET PORT [COMMAND ARGUMENT ...]

The port is open before the command starts; the command takes this process's place, so its exit
status is the one that counts. Without a command the relay itself stays. Standard library only.
"""

from __future__ import annotations

import os
import socket
import sys


def main() -> int:
    path, port, *command = sys.argv[1:]
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(port)))
    listener.listen(64)
    if not command:
        _relay(listener, path, 0)
        return 0
    parent = os.getpid()
    if os.fork():
        listener.close()
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    # The output belongs to the command: who waits for its end must not wait for the relay.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    _relay(listener, path, parent)
    return 0


def _relay(listener: socket.socket, path: str, parent: int) -> None:
    import asyncio

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            pass  # what was already received is still written before the other side is closed

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_unix_connection(path)
        except OSError:
            writer.transport.abort()
            return
        up = asyncio.ensure_future(pipe(reader, there[1]))
        try:
            await pipe(there[0], writer)
        finally:
            up.cancel()
            there[1].close()
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(one, sock=listener)
        ended = asyncio.Event()
        if parent:
            asyncio.get_running_loop().add_reader(os.pidfd_open(parent), ended.set)
        async with server:
            await ended.wait()

    asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
