"""Reads the server name from a TLS ClientHello."""

_HANDSHAKE = 0x16
_MAX_LENGTH = 64 * 1024


def read_server_name(data: bytes) -> str | None:
    """The requested name ("" when there is none); None when more bytes are needed. Raises
    ConnectionError when this is not a ClientHello."""
    message = _join_records(data)
    if message is None:
        return None
    try:
        return _read_sni(message)
    except (IndexError, UnicodeDecodeError):
        raise ConnectionError("a malformed ClientHello") from None


def _join_records(data: bytes) -> bytes | None:
    """The handshake message, assembled from its records; None when more bytes are needed."""
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
            length = 4 + int.from_bytes(joined[1:4], "big")
            if length > _MAX_LENGTH:
                raise ConnectionError("a ClientHello of absurd size")
            if len(joined) >= length:
                return joined[4:length]
        if len(data) < 5 + size:
            return None
        data = data[5 + size :]
    return None


def _read_sni(body: bytes) -> str:
    offset = 34  # version and random
    offset += 1 + body[offset]  # session
    offset += 2 + int.from_bytes(body[offset : offset + 2], "big")  # cipher suites
    offset += 1 + body[offset]  # compressions
    end = offset + 2 + int.from_bytes(body[offset : offset + 2], "big")
    offset += 2
    while offset + 4 <= min(end, len(body)):
        kind = int.from_bytes(body[offset : offset + 2], "big")
        size = int.from_bytes(body[offset + 2 : offset + 4], "big")
        if kind == 0:
            names = body[offset + 4 : offset + 4 + size]
            if names[2] != 0:
                return ""
            length = int.from_bytes(names[3:5], "big")
            return names[5 : 5 + length].decode("ascii")
        offset += 4 + size
    return ""
