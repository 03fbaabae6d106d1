"""The fields of a request around its messages, as all wires build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import parse_arguments
from hermes.llm.wire.lenient_json import encode_json


class HeadCache:
    """Caches the bytes before the messages until their content changes."""

    __slots__ = ("_bytes", "_key")

    def __init__(self) -> None:
        self._key: object = None
        self._bytes = b""

    def get_head(self, key: object, build: Callable[[], bytes]) -> bytes:
        if self._key != key:
            self._bytes = build()
            self._key = key
        return self._bytes


def shape_fields(fields: dict[str, Any], quirks: Quirks) -> dict[str, Any]:
    """The fields, plus those the endpoint needs and without those it refuses. A dotted name in
    `drop` removes a part of a field."""
    out = {**fields, **quirks.body}
    for path in quirks.drop:
        name, _, inner = path.partition(".")
        if name == "model":
            continue
        if inner and isinstance(out.get(name), dict):
            out[name] = {k: v for k, v in out[name].items() if k != inner}
        else:
            out.pop(name, None)
    return out


def legal_arguments(args: str) -> str:
    """The arguments as a JSON object in a string, unchanged if they are one. Anything else is
    wrapped in an object, as endpoints require one; it is not dropped, because the model must see
    what it wrote next to the error it got for it."""
    try:
        if isinstance(msgspec.json.decode(args), dict):
            return args
    except (ValueError, RecursionError):
        pass
    return encode_json(parse_arguments(args)).decode()
