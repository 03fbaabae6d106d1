"""Letting people in: a stranger gets a code, the owner approves it in a terminal."""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable

from msgspec import structs

from hermes.core.errors import ConfigError
from hermes.core.store import Pairing
from hermes.gateway import texts
from hermes.store.tables.mailbox import SqlPairings

_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
CODE_LENGTH = 8
CODE_SECONDS = 3600.0
REPEAT_SECONDS = 600.0
MAX_WAITING = 3
MAX_FAILURES = 5
LOCK_SECONDS = 3600.0


def make_code() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(CODE_LENGTH))


def hash_code(code: str, salt: str = "") -> str:
    """Slow on purpose: a code has 40 bits."""
    salt = salt or secrets.token_hex(16)
    digest = hashlib.scrypt(code.encode(), salt=bytes.fromhex(salt), n=2**12, r=8, p=1, dklen=32)
    return f"{salt}${digest.hex()}"


def matches_code(code: str, stored: str) -> bool:
    salt, _, _ = stored.partition("$")
    return bool(salt) and hmac.compare_digest(hash_code(code, salt), stored)


class PairingDesk:
    """Gives out codes and lets people in; a code is stored as a hash and nowhere else."""

    def __init__(self, pairings: SqlPairings, clock: Callable[[], float] = time.time) -> None:
        self._pairings = pairings
        self._clock = clock
        self._refused: dict[tuple[str, str], float] = {}
        """When strangers were told that too many wait."""

    async def greet_stranger(self, platform: str, user: str, name: str, chat: str) -> str:
        """What to say to a stranger; empty: nothing, because it was said a moment ago."""
        now = self._clock()
        waiting = [
            p
            for p in await self._pairings.list_all(platform)
            if not p.approved and now - p.created < CODE_SECONDS
        ]
        mine = next((p for p in waiting if p.user == user), None)
        if mine is not None and now - mine.created < REPEAT_SECONDS:
            return ""
        if mine is None and len(waiting) >= MAX_WAITING:
            return self._refuse_stranger(platform, user, now)
        code = make_code()
        await self._pairings.put(
            Pairing(platform, user, name[:100], chat, now, code=hash_code(code))
        )
        return texts.PAIRING_CODE.format(code=code, platform=platform)

    def _refuse_stranger(self, platform: str, user: str, now: float) -> str:
        recent = {key: at for key, at in self._refused.items() if now - at < REPEAT_SECONDS}
        self._refused = {(platform, user): now, **recent}
        return "" if (platform, user) in recent else texts.PAIRING_FULL

    async def approve_code(self, platform: str, code: str) -> Pairing:
        """Let the owner of a code in; ConfigError when it is wrong, old, or codes are locked."""
        failures, last = await self._pairings.count_failures(platform)
        now = self._clock()
        if failures >= MAX_FAILURES and now - last < LOCK_SECONDS:
            raise ConfigError(
                f"Too many wrong codes for {platform}: no code is accepted for an hour. Nobody "
                "was let in. Try again later."
            )
        word = code.strip().upper()
        for pairing in await self._pairings.list_all(platform):
            is_fresh = not pairing.approved and now - pairing.created < CODE_SECONDS
            if is_fresh and matches_code(word, pairing.code):
                await self._pairings.set_failures(platform, 0)
                approved = structs.replace(pairing, approved=True, code="")
                await self._pairings.put(approved)
                return approved
        recent = failures if now - last < LOCK_SECONDS else 0
        await self._pairings.set_failures(platform, recent + 1)
        raise ConfigError(
            f"No one waits with that code on {platform}: it is wrong, used or older than an hour. "
            "Nobody was let in. Ask for a new one by writing to the bot."
        )
