"""Seals what the database must not be able to read, with the standard library alone."""

from __future__ import annotations

import hmac
import os
from hashlib import blake2b, scrypt

_NONCE = 16
_TAG = 32
_BLOCK = 64


def seal_text(text: bytes, password: str) -> bytes:
    """Encrypted with a stream of keyed hashes, then authenticated."""
    nonce = os.urandom(_NONCE)
    cipher, mac = _derive_keys(password, nonce)
    sealed = nonce + _mix_stream(text, cipher)
    return sealed + blake2b(sealed, key=mac, digest_size=_TAG).digest()


def unseal_text(sealed: bytes, password: str) -> bytes:
    """Empty: it was not sealed with this password, or was changed."""
    if len(sealed) < _NONCE + _TAG:
        return b""
    body, tag = sealed[:-_TAG], sealed[-_TAG:]
    cipher, mac = _derive_keys(password, body[:_NONCE])
    if not hmac.compare_digest(blake2b(body, key=mac, digest_size=_TAG).digest(), tag):
        return b""
    return _mix_stream(body[_NONCE:], cipher)


def _derive_keys(password: str, nonce: bytes) -> tuple[bytes, bytes]:
    """A key for the stream and one for the tag, both for this nonce alone."""
    made = scrypt(password.encode(), salt=nonce, n=2**12, r=8, p=1, dklen=128)
    return made[:64], made[64:]


def _mix_stream(text: bytes, key: bytes) -> bytes:
    blocks = -(-len(text) // _BLOCK)
    stream = b"".join(blake2b(n.to_bytes(8, "big"), key=key).digest() for n in range(blocks))
    return bytes(a ^ b for a, b in zip(text, stream, strict=False))
