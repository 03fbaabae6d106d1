"""Runs inside a sandbox beside a command: a TCP port that leads to the egress proxy's socket.

It is handed to an interpreter as text, so it imports nothing of ours.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys


def main(proxy: str, port: int, command: list[str]) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    if os.fork() == 0:
        if os.fork() == 0:  # nobody's child: the command must not find one it did not start
            serve(listener, proxy)
        os._exit(0)
    os.wait()
    listener.close()
    os.execvp(command[0], command)


def serve(listener: socket.socket, proxy: str) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(1, 2)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            try:
                carry(connection, proxy)
            finally:
                os._exit(0)
        connection.close()


def carry(client: socket.socket, proxy: str) -> None:
    server = socket.socket(socket.AF_UNIX)
    server.connect(proxy)
    other = {client: server, server: client}
    reading = [client, server]
    while reading:
        for source in select.select(reading, [], [])[0]:
            if data := source.recv(65536):
                other[source].sendall(data)
            else:
                reading.remove(source)
                other[source].shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
