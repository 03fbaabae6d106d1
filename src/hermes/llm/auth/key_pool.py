"""API keys: cleaned for use in a header, and picked from a pool where exhausted ones cool down."""

import logging
import random
import unicodedata
from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.llm.auth.cooldown import Cooldowns, PoolKey

log = logging.getLogger(__name__)

PoolStrategy: TypeAlias = Literal["fill-first", "round-robin", "least-used", "random"]
LOGIN_SOURCE = "the login to "
"""Prefix of a credential's source when it is a login."""
_DASHES = dict.fromkeys(
    map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-"
)
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"), "")
_COOLDOWN = {Kind.RATE_LIMITED: 60.0, Kind.BILLING: 3600.0}
_COOLDOWN_REFUSED = 24 * 3600.0
"""A key that was refused rather than exhausted is the last choice for a day."""


class Credential(Struct, frozen=True):
    """A key and where it came from; `id` and `token` are for keys with several parts."""

    source: str = ""
    value: str = ""
    """The key. For a login its token, once that is known to be valid."""
    id: str = ""
    token: str = ""
    login: str = ""
    """The file of a login; empty: this is a key."""

    def __repr__(self) -> str:
        return f"Credential(source={self.source!r})"


NO_KEY = Credential()


def clean_key(key: Credential) -> str:
    """The key as a header can carry it. Keys copied from a PDF or a chat contain dashes, spaces and
    letters that only look right; those with an obvious meaning are replaced."""
    if key.value.isascii() and key.value.isprintable() and " " not in key.value:
        return key.value
    text = key.value.translate(_DASHES).translate(_INVISIBLE)
    text = "".join(unicodedata.normalize("NFKC", text).split())
    for index, char in enumerate(text):
        if not "!" <= char <= "~":
            name = unicodedata.name(char, "a control character").lower()
            words = (
                f"the key in {key.source} cannot be sent: character {index + 1} is {name} "
                f"(U+{ord(char):04X}), which no key contains. Copy the key again."
            )
            raise ProviderError(Failure(Kind.AUTH, words))
    return text


class KeyPool:
    """The keys of one endpoint; its cooldowns are shared by everybody who calls it."""

    def __init__(
        self,
        base_url: str,
        keys: Sequence[Credential],
        cooldowns: Cooldowns,
        strategy: PoolStrategy = "fill-first",
    ) -> None:
        self._base_url = base_url
        self._keys = tuple(keys) or (NO_KEY,)
        self._cooldowns = cooldowns
        self._strategy = strategy
        self._calls = dict.fromkeys(map(self.pool_key, self._keys), 0)
        self._turn = 0

    def pool_key(self, key: Credential) -> PoolKey:
        """What the provider counts its limits by."""
        return self._base_url, key.login or key.value

    async def ask_nodes(self) -> None:
        """Learn which keys other nodes have set aside."""
        await self._cooldowns.ask_nodes(self._calls)

    def pick_key(self) -> Credential:
        """The next key by the pool's strategy; when all are cooling down, the one that will be
        available first."""
        if len(self._keys) == 1:
            return self._keys[0]
        remaining = {key: self._cooldowns.seconds_left(self.pool_key(key)) for key in self._keys}
        ready = [key for key in self._keys if not remaining[key]]
        if not ready:
            return min(self._keys, key=lambda key: remaining[key])
        match self._strategy:
            case "round-robin":
                order = [*self._keys[self._turn :], *self._keys[: self._turn]]
                return next(key for key in order if key in ready)
            case "least-used":
                return min(ready, key=lambda key: self._calls[self.pool_key(key)])
            case "random":
                return random.choice(ready)
            case _:
                return ready[0]

    def take_next_key(self) -> Credential:
        """Pick a key for a call, so that the next call may use another."""
        key = self.pick_key()
        if len(self._keys) > 1:
            self._calls[self.pool_key(key)] += 1
            self._turn = (self._keys.index(key) + 1) % len(self._keys)
        return key

    def set_aside(self, key: Credential, failure: Failure) -> bool:
        """Start the key's cooldown; False when no other key is left to try."""
        if len(self._keys) == 1:
            return False
        seconds = failure.retry_after or _COOLDOWN.get(failure.kind, _COOLDOWN_REFUSED)
        self._cooldowns.start(self.pool_key(key), seconds, failure.kind.value)
        following = self.pick_key()
        another_left = not self._cooldowns.seconds_left(self.pool_key(following))
        why, then = failure.kind.value, f"now {following.source}"
        then = then if another_left else "no other is left"
        log.info("key %s set aside for %.0f s (%s); %s", key.source, seconds, why, then)
        return another_left
