"""Runs inside a sandbox beside a command: a TCP port that leads to the egress proxy's socket."""

# It is handed to an interpreter as text, so it imports nothing of ours. The port is open before the
# command starts, and the command takes this process's place, so its exit status is the one that
# counts.

from __future__ import annotations

import os
import signal
import socket
import sys


def main(proxy: str, port: int, command: list[str]) -> int:
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    # Its connections inherit it: a small answer does not wait for an acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if os.fork() == 0:
        if os.fork() == 0:  # nobody's child: the command must not find one it did not start
            serve(listener, proxy)
        os._exit(0)
    os.wait()
    listener.close()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
    return 127


def serve(listener: socket.socket, proxy: str) -> None:
    """Until the sandbox ends. The output belongs to the command: who waits for its end must not
    wait for this."""
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
                    carry(connection, proxy)
                finally:
                    os._exit(0)
        except OSError:
            pass  # no process to be had: this connection is refused
        connection.close()


def carry(client: socket.socket, proxy: str) -> None:
    """Each direction by a process of its own: neither waits for the other."""
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
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
