"""Codes that sign a browser in: made by any process of the home, each good once and for minutes."""

import hashlib
import re
import secrets
import time

from hermes.core.store import Objects

CODE_SECONDS = 300.0
MAX_OPEN = 3
_KIND = "sign_in_code"
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 8
_SHAPE = re.compile(f"[{_ALPHABET}]{{{_LENGTH}}}")
_LOOKALIKES = str.maketrans({"O": "0", "I": "1", "L": "1", "-": None, " ": None})


async def create_code(objects: Objects) -> str:
    """A new code, as people read it. Of more than MAX_OPEN the oldest become void."""
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_LENGTH))
    await objects.put(_KIND, _hash_code(code), b"", keep_latest=MAX_OPEN)
    return f"{code[:4]}-{code[4:]}"


def parse_code(text: str) -> str | None:
    """The code that was typed; None when no code looks like it."""
    code = text.upper().translate(_LOOKALIKES)
    return code if len(text) <= 2 * _LENGTH and _SHAPE.fullmatch(code) else None


async def redeem_code(objects: Objects, code: str) -> bool:
    """Use a code up; False when it is wrong, used, void or too old."""
    digest = _hash_code(code)
    found = await objects.get(_KIND, digest, owner="")
    if found is None or not await objects.remove(_KIND, digest, owner=""):
        return False
    return 0 <= time.time() - found.created < CODE_SECONDS


async def void_codes(objects: Objects) -> None:
    for found in await objects.list_all(_KIND):
        await objects.remove(_KIND, found.id, owner=found.owner)


def _hash_code(code: str) -> str:
    return hashlib.sha256(code.replace("-", "").encode()).hexdigest()
