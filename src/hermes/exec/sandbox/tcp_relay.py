"""Runs beside a command inside a sandbox: forwards a TCP port to the egress proxy's socket."""

# Passed to an interpreter as text, so it imports nothing of ours. The port is open before the
# command starts, and the command replaces this process, so its exit status is what the caller sees.

from __future__ import annotations

import os
import signal
import socket
import sys


def start_relay(proxy: str, port: int, command: list[str]) -> int:
    """Start the relay, then become the command."""
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    # Inherited by connections: a small response does not wait for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if os.fork() == 0:
        if os.fork() == 0:  # orphaned: the command must not find a child it did not start
            serve_connections(listener, proxy)
        os._exit(0)
    os.wait()
    listener.close()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    return 127


def serve_connections(listener: socket.socket, proxy: str) -> None:
    """Serve until the sandbox ends. Standard streams are closed: whoever waits for the end of the
    command's output must not wait for this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    while True:
        connection, _ = listener.accept()
        try:
            if os.fork() == 0:
                listener.close()
                try:
                    copy_streams(connection, proxy)
                finally:
                    os._exit(0)
        except OSError:
            pass  # no process can be forked: this connection is refused
        connection.close()


def copy_streams(client: socket.socket, proxy: str) -> None:
    """Copy each direction in its own process, so that neither waits for the other."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(proxy)
    source, target = (client, server) if os.fork() else (server, client)
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        client.close()
        server.close()


if __name__ == "__main__":
    sys.exit(start_relay(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
