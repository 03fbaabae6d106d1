"""Keys are compared without revealing how much of them is right."""

from __future__ import annotations

import hmac

import pytest

from hermes.config.api_server import ApiServer
from hermes.server.http.errors import ApiError
from hermes.server.http.principals import Principals

KEYS = {"ann": "key-of-ann-0123456789abcdef", "bob": "key-of-bob-0123456789abcdef"}


@pytest.mark.parametrize(
    "key",
    [*KEYS.values(), "x" + KEYS["ann"][1:], KEYS["ann"][:-1] + "x", KEYS["ann"][:5], "", "ключ"],
)
def test_every_key_takes_the_same_comparisons(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever letters are right: all stored keys, in constant time, as digests of one length."""
    compared: list[tuple[int, int]] = []
    compare_digest = hmac.compare_digest

    def record_comparison(given: bytes, stored: bytes) -> bool:
        compared.append((len(given), len(stored)))
        return compare_digest(given, stored)

    monkeypatch.setattr(hmac, "compare_digest", record_comparison)
    principals = Principals(ApiServer(), KEYS)
    if key in KEYS.values():
        assert principals.identify([f"Bearer {key}"]).has_key
    else:
        with pytest.raises(ApiError, match="Invalid"):
            principals.identify([f"Bearer {key}"])
    assert compared == [(32, 32)] * len(KEYS)
