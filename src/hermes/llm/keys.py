"""API keys: made usable for a header, and picked from a pool in which exhausted ones cool down."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from msgspec import Struct

from hermes.core.errors import Failure, Kind, ProviderError

log = logging.getLogger(__name__)

_DASHES = dict.fromkeys(
    map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-"
)
_NOTHING = dict.fromkeys(map(ord, "\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff"), "")
_COOL = {Kind.RATE_LIMITED: 60.0, Kind.BILLING: 3600.0}
_COOL_REFUSED = 24 * 3600.0
"""A key that was refused, not exhausted, is not asked again in this process's ordinary life."""


class Credential(Struct, frozen=True):
    """A key and where it came from. `id` and `token` exist where a key has several parts."""

    source: str = ""
    value: str = ""
    id: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Credential(source={self.source!r})"


NO_KEY = Credential()


def usable(key: Credential) -> str:
    """The key as it can stand in a header. Keys copied from a PDF or a chat have dashes, spaces
    and letters that only look right; what has an obvious meaning is put right."""
    if key.value.isascii() and key.value.isprintable() and " " not in key.value:
        return key.value
    import unicodedata

    text = key.value.translate(_DASHES).translate(_NOTHING)
    text = "".join(unicodedata.normalize("NFKC", text).split())
    for at, char in enumerate(text):
        if not "!" <= char <= "~":
            name = unicodedata.name(char, "a control character").lower()
            raise ProviderError(
                Failure(
                    Kind.AUTH,
                    f"the key in {key.source} cannot be sent: character {at + 1} is {name} "
                    f"(U+{ord(char):04X}), which no key has. Copy the key again.",
                )
            )
    return text


class Pool:
    """The keys of one endpoint, the first usable one first. What cools down is shared through
    `cooling` by everybody who calls that endpoint."""

    def __init__(
        self, base_url: str, keys: Sequence[Credential], cooling: dict[tuple[str, str], float]
    ) -> None:
        self._base_url = base_url
        self._keys = tuple(keys) or (NO_KEY,)
        self._cooling = cooling

    def place(self, key: Credential) -> tuple[str, str]:
        """What limits are counted by."""
        return self._base_url, key.value

    def pick(self) -> Credential:
        """The first key that is not set aside; failing that, the one that will be back first."""
        if len(self._keys) == 1:
            return self._keys[0]
        now = time.monotonic()
        return min(self._keys, key=lambda k: max(0.0, self._until(k) - now))

    def set_aside(self, key: Credential, failure: Failure) -> bool:
        """Whether another key is left to try."""
        if len(self._keys) == 1:
            return False
        now = time.monotonic()
        seconds = failure.retry_after or _COOL.get(failure.kind, _COOL_REFUSED)
        self._cooling[self.place(key)] = now + seconds
        following = self.pick()
        left = self._until(following) <= now
        log.info(
            "key %s set aside for %.0f s (%s); %s",
            key.source,
            seconds,
            failure.kind.value,
            f"now {following.source}" if left else "no other is left",
        )
        return left

    def _until(self, key: Credential) -> float:
        return self._cooling.get(self.place(key), 0.0)
