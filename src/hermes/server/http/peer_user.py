"""The local user at the other end of a loopback connection, as far as the kernel tells."""

import asyncio
import os
import socket
import struct
from pathlib import Path

_SOCK_DIAG = 4
_BY_FAMILY = 20
_HEADER = struct.Struct("=IHHII")
_QUERY = struct.Struct("=BBBBI")
_PORTS = struct.Struct("!HH")
_OWNER = struct.Struct("=II")
_OWNER_OFFSET = 80
"""Where the user and the inode stand in a reply; a socket that no process holds has inode 0."""
_NOT_FOUND = -2
_ALL_STATES = 0xFFFFFFFF
_NOBODY = -1


def is_own_user(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the peer runs as the user of this process. True where the system cannot tell; False
    for a connection that its peer has closed."""
    here = transport.get_extra_info("sockname") if transport else None
    peer = transport.get_extra_info("peername") if transport else None
    if not here or not peer:
        return False
    uid: int | None
    try:
        uid = _query_kernel(peer, here)
    except (OSError, AttributeError, struct.error):
        uid = _search_table(peer, here)
    return uid is None or uid == os.geteuid()


def _query_kernel(peer: tuple[str, int], here: tuple[str, int]) -> int:
    """The owner of the peer's socket; _NOBODY if there is none. Raises OSError where the kernel
    takes no such questions."""
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    ports = _PORTS.pack(peer[1], here[1])
    addresses = b"".join(socket.inet_pton(family, end[0]).ljust(16, b"\0") for end in (peer, here))
    query = _QUERY.pack(family, socket.IPPROTO_TCP, 0, 0, _ALL_STATES)
    query += ports + addresses + bytes(4) + b"\xff" * 8
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(_HEADER.pack(_HEADER.size + len(query), _BY_FAMILY, 1, 1, 0) + query)
        reply = kernel.recv(4096)
    if _HEADER.unpack_from(reply)[1] != _BY_FAMILY:
        (error,) = struct.unpack_from("=i", reply, _HEADER.size)
        if error != _NOT_FOUND:
            raise OSError(-error, os.strerror(-error))
        return _NOBODY
    uid, inode = _OWNER.unpack_from(reply, _OWNER_OFFSET)
    is_peer = reply[_HEADER.size + 4 :].startswith(ports)  # not a listener on the same port
    return int(uid) if inode and is_peer else _NOBODY


def _search_table(peer: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The same from the table of all connections, which is slower; None if there is no table."""
    uid = None
    for mapped, name in ((False, "tcp"), (True, "tcp6")):
        try:
            table = Path("/proc/net", name).read_text()
        except OSError:
            continue
        uid = _NOBODY
        ends = [_format_end(end, mapped=mapped) for end in (peer, here)]
        for row in map(str.split, table.splitlines()):
            if row[1:3] == ends and row[9] != "0":
                return int(row[7])
    return uid


def _format_end(end: tuple[str, int], *, mapped: bool) -> str:
    """An address and its port as the tables write them."""
    family = socket.AF_INET6 if ":" in end[0] else socket.AF_INET
    packed = socket.inet_pton(family, end[0])
    if mapped and family == socket.AF_INET:
        packed = bytes(10) + b"\xff\xff" + packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{end[1]:04X}"
