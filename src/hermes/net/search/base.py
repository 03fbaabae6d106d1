"""What all search backends share: the question, the answer, and how a refusal reads."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from html import unescape
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hermes.net.errors import EgressError
from hermes.net.fetcher import Door, Page

MAX_BYTES = 2 * 1024 * 1024
TIMEOUT = 20.0
_TAG = re.compile(r"<[^<>]{1,200}>")
_TITLE = 200
_SNIPPET = 500
_BROKEN = "The search service's answer is not what it promises to be; check web.search.base_url."
A = TypeVar("A")


class Hit(Struct, frozen=True):
    title: str
    url: str
    snippet: str = ""


class Asked(Struct, frozen=True):
    """One search, with everything a backend needs for it."""

    query: str
    count: int
    base_url: str
    key: str = ""
    key_name: str = ""
    """Where the key came from, for messages."""


class Backend(Struct, frozen=True):
    """A row: where it usually is, which variable usually holds its key, how it is asked."""

    name: str
    base_url: str
    """Empty: there is no usual address, it must be configured."""
    key_env: str
    """Empty: it needs no key."""
    search: Callable[[Door, Asked], Awaitable[list[Hit]]]


async def ask(
    door: Door, asked: Asked, url: str, *, headers: Mapping[str, str], send: Any = None
) -> Page:
    """A JSON question (POST when something is sent), answered with success."""
    body = b"" if send is None else msgspec.json.encode(send)
    kind = {"Content-Type": "application/json"} if body else {}
    async with door.fetch(
        url,
        method="POST" if body else "GET",
        headers={"Accept": "application/json", **kind, **headers},
        body=body,
        max_bytes=MAX_BYTES,
        timeout=TIMEOUT,
    ) as page:
        check(page, asked)
        return page


def check(page: Page, asked: Asked) -> None:
    status = page.status
    if status in (401, 403) and asked.key_name:
        raise EgressError(f"The search service refused the key in {asked.key_name} ({status}).")
    if status == 429:
        raise EgressError("The search service says: too many requests; try again later.")
    if status == 402:
        raise EgressError("The search service says: the account has no credit left.")
    if not 200 <= status < 300:
        raise EgressError(f"The search service answered {status} instead of results.")


def decode(page: Page, shape: type[A]) -> A:
    try:
        return msgspec.json.decode(page.body, type=shape, strict=False)
    except msgspec.DecodeError:
        raise EgressError(_BROKEN) from None


def each(results: list[Any] | None, shape: type[A]) -> list[A]:
    """Those of the results that have their shape: one odd entry does not spoil the others."""
    found: list[A] = []
    for one in results or ():
        with suppress(msgspec.ValidationError):
            found.append(msgspec.convert(one, shape, strict=False))
    if results and not found:
        raise EgressError(_BROKEN)
    return found


def hit(title: str | None, url: str, snippet: str | None) -> Hit:
    shown = plain(title or "")[:_TITLE]
    return Hit(shown or url, url, plain(snippet or "")[:_SNIPPET])


def plain(text: str) -> str:
    """One line without markup."""
    return " ".join(unescape(_TAG.sub("", text)).split())


def usable(hits: list[Hit], count: int) -> list[Hit]:
    """Web addresses only, each once."""
    found: dict[str, Hit] = {}
    for one in hits:
        if one.url.startswith(("http://", "https://")):
            found.setdefault(one.url, one)
    return list(found.values())[:count]
