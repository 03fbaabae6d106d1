"""The fields of a request around its messages, as all wires build them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from hermes.core.provider import Settings, ToolSpec
from hermes.llm.provider_spec import Quirks
from hermes.llm.wire.convert import BUDGETS, parse_arguments
from hermes.llm.wire.lenient_json import encode_json

MAX_TOKENS = 8192
"""The output limit where a wire needs one and none is set."""
MIN_BUDGET = 1024
LEVELS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh"}
"""Effort -> the level that adaptive thinking knows."""


class RequestHead(Struct, frozen=True):
    """What a request says besides its messages."""

    system: str
    tools: tuple[ToolSpec, ...]
    settings: Settings
    stream: bool


class HeadCache:
    """Caches the bytes before the messages until their content changes."""

    __slots__ = ("_bytes", "_encode", "_head")

    def __init__(self, encode: Callable[[RequestHead], bytes]) -> None:
        self._encode = encode
        self._head: RequestHead | None = None
        self._bytes = b""

    def get_bytes(self, head: RequestHead) -> bytes:
        if self._head != head:
            self._bytes = self._encode(head)
            self._head = head
        return self._bytes


def thinking_fields(
    quirks: Quirks, settings: Settings, limit: int, display: str = ""
) -> dict[str, Any]:
    """The fields that ask for thinking by a token budget or by an adaptive level."""
    effort = settings.effort
    if effort is None or (settings.tool_choice == "required" and effort != "none"):
        return {}  # a model that must call a tool may not think first
    match quirks.effort:
        case "budget" if effort != "none":
            # A quarter of the output is left for the answer itself.
            budget = min(BUDGETS[effort], limit * 3 // 4)
            if budget < MIN_BUDGET:
                return {}
            return {"thinking": {"type": "enabled", "budget_tokens": budget}}
        case "adaptive" if effort == "none":
            return {"thinking": {"type": "disabled"}}
        case "adaptive":
            shown = {"display": display} if display else {}
            level = {"effort": LEVELS[effort]}
            return {"thinking": {"type": "adaptive", **shown}, "output_config": level}
        case _:
            return {}


def append_path(base_url: str, path: str) -> str:
    """The base URL with the path added, unless it ends in it; a query stays at the end."""
    base, mark, query = base_url.partition("?")
    base = base.rstrip("/")
    return (base if base.endswith(path) else base + path) + mark + query


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
