"""Reads the server name out of a TLS ClientHello."""

from __future__ import annotations

_HANDSHAKE = 0x16
_MAX_LENGTH = 64 * 1024


def read_server_name(data: bytes) -> str | None:
    """The name asked for ("" when none is); None when more bytes are needed.
    ConnectionError: this is no ClientHello."""
    message = _join_records(data)
    if message is None:
        return None
    try:
        return _read_sni(message)
    except (IndexError, UnicodeDecodeError):
        raise ConnectionError("a malformed ClientHello") from None


def _join_records(data: bytes) -> bytes | None:
    """The handshake message, put together from its records."""
    if (data and data[0] != _HANDSHAKE) or len(data) > _MAX_LENGTH:
        raise ConnectionError("not a TLS handshake")
    joined = b""
    while len(data) >= 5:
        if data[0] != _HANDSHAKE or data[1] != 3:
            raise ConnectionError("not a TLS handshake")
        size = int.from_bytes(data[3:5], "big")
        joined += data[5 : 5 + size]
        if len(joined) >= 4:
            if joined[0] != 1:
                raise ConnectionError("not a ClientHello")
            whole = 4 + int.from_bytes(joined[1:4], "big")
            if whole > _MAX_LENGTH:
                raise ConnectionError("a ClientHello of absurd size")
            if len(joined) >= whole:
                return joined[4:whole]
        if len(data) < 5 + size:
            return None
        data = data[5 + size :]
    return None


def _read_sni(body: bytes) -> str:
    at = 34  # version and random
    at += 1 + body[at]  # session
    at += 2 + int.from_bytes(body[at : at + 2], "big")  # cipher suites
    at += 1 + body[at]  # compressions
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    at += 2
    while at + 4 <= min(end, len(body)):
        kind = int.from_bytes(body[at : at + 2], "big")
        size = int.from_bytes(body[at + 2 : at + 4], "big")
        if kind == 0:
            names = body[at + 4 : at + 4 + size]
            if names[2] != 0:
                return ""
            length = int.from_bytes(names[3:5], "big")
            return names[5 : 5 + length].decode("ascii")
        at += 4 + size
    return ""
