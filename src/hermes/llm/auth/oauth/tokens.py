"""The tokens of one login: the value, and the private file that all processes share."""

from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from hermes.config.paths import make_private_folder
from hermes.config.private_files import replace_file

RENEW_AHEAD = 60.0
"""Seconds before its expiry at which a token is renewed."""


class Token(Struct, frozen=True, omit_defaults=True):
    """The token that calls are made with, and the refresh token that gets the next one."""

    access: str
    refresh: str = ""
    expires: float = 0.0
    """0: not stated."""
    obtained: float = 0.0
    account: str = ""
    server: str = ""
    """The token endpoint that issued it; no other ever receives it."""
    origin: str = ""
    """The program it was adopted from; empty: a login made here."""

    def __repr__(self) -> str:
        return f"Token(server={self.server!r})"

    def is_due(self, now: float) -> bool:
        """Whether it should be renewed now. A token that lives for less than two minutes is renewed
        halfway."""
        if not self.expires:
            return False
        life = max(0.0, self.expires - self.obtained)
        return now >= self.expires - min(RENEW_AHEAD, life / 2)

    def is_expired(self, now: float) -> bool:
        return bool(self.expires) and now >= self.expires


def load_token(file: Path) -> Token | None:
    """The stored token; None: there is none, or it cannot be read."""
    try:
        return decode_token(file.read_bytes())
    except OSError:
        return None


def save_token(file: Path, token: Token) -> None:
    """Store the token durably; OSError when that failed."""
    make_private_folder(file.parent)
    replace_file(file, encode_token(token))


def encode_token(token: Token) -> bytes:
    return msgspec.json.encode(token)


def decode_token(body: bytes) -> Token | None:
    try:
        return msgspec.json.decode(body, type=Token)
    except ValueError:
        return None


def decode_claims(jwt: str) -> Mapping[str, Any]:
    """The claims of a JWT, unverified: only for a token that came straight from its issuer. Empty:
    it is no JWT."""
    try:
        _, claims, _ = jwt.split(".")
        found = msgspec.json.decode(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def read_claim(jwt: str, path: tuple[str, ...]) -> str:
    """The text at that path in a JWT; empty: there is none."""
    value: Any = decode_claims(jwt)
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
