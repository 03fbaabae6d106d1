"""Runs beside a command inside a sandbox: forwards a TCP port to the egress proxy's socket."""

# Passed to an interpreter as text, so it imports nothing of ours. The port is open before the
# command starts, and the command replaces this process, so its exit status is what the caller sees.
# Commands of a session share their loopback, so each has a port of its own, and serves nobody else.

import os
import signal
import socket
import sys
from typing import NoReturn

USUAL_PORT = 3128
VARIABLES = tuple(f"{form}_proxy" for form in ("http", "https", "all"))
"""What makes curl, pip, git and most other programs use a proxy, also in capitals."""


def start_relay(proxy: str, command: list[str]) -> NoReturn:
    """Start the relay, on its usual port if that is free, then become the command."""
    try:
        listener = socket.create_server(("127.0.0.1", USUAL_PORT), backlog=64)
    except OSError:
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    # Inherited by connections: a small response does not wait for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if os.fork() == 0:
        if os.fork() == 0:  # orphaned: the command must not find a child it did not start
            serve_connections(listener, proxy)
        os._exit(0)
    os.wait()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    settings = [f"{form}={url}" for name in VARIABLES for form in (name, name.upper())]
    os.execv("/usr/bin/env", ["env", *settings, *command])


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
                    if belongs_to_us(connection.getpeername()[1]):
                        copy_streams(connection, proxy)
                finally:
                    os._exit(0)
        except OSError:
            pass  # no process can be forked: this connection is refused
        connection.close()


def belongs_to_us(port: int) -> bool:
    """Whether a process that we can see, and so one of this command, has the socket at a port."""
    with open("/proc/net/tcp", encoding="ascii") as file:  # noqa: PTH123
        lines = (line.split() for line in file.read().splitlines()[1:])
    sockets = {f"socket:[{words[9]}]" for words in lines if words[1] == f"0100007F:{port:04X}"}
    for process in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            folder = f"/proc/{process}/fd/"
            if sockets & {os.readlink(folder + fd) for fd in os.listdir(folder)}:  # noqa: PTH115, PTH208
                return True
        except OSError:
            continue
    return False


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
    start_relay(sys.argv[1], sys.argv[2:])
