"""Large bodies rely on a private attribute of aiohttp: this fails when that changes."""

from __future__ import annotations

import warnings

import aiohttp
import pytest

from hermes.llm.http.large_body import LARGE_BYTES, wrap_body


def test_aiohttp_still_warns_of_bytes_from_that_size_on() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aiohttp.BytesPayload(bytes(LARGE_BYTES))
    with pytest.warns(ResourceWarning):
        aiohttp.BytesPayload(bytes(LARGE_BYTES + 1))


def test_a_large_body_is_one_without_the_warning() -> None:
    body = b"x" * (LARGE_BYTES + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        payload = wrap_body(body)
    assert isinstance(payload, aiohttp.BytesPayload)
    assert payload.size == len(body) and payload.content_type == "application/json"
    assert payload.decode() == body.decode()


def test_a_small_one_is_left_alone() -> None:
    assert wrap_body(b"x") == b"x" and wrap_body(b"") is None
