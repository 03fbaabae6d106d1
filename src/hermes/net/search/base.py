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
from hermes.net.fetcher import FetchedPage, WebFetcher

MAX_BYTES = 2 * 1024 * 1024
TIMEOUT = 20.0
_TAG = re.compile(r"<[^<>]{1,200}>")
_MAX_TITLE = 200
_MAX_SNIPPET = 500
_BROKEN = "The search service's answer is not what it promises to be; check web.search.base_url."
A = TypeVar("A")


class SearchHit(Struct, frozen=True):
    title: str
    url: str
    snippet: str = ""


class SearchRequest(Struct, frozen=True):
    """One search, with everything a backend needs for it."""

    query: str
    count: int
    base_url: str
    key: str = ""
    key_name: str = ""
    """Where the key came from, for messages."""


class SearchBackend(Struct, frozen=True):
    """A row: where it usually is, which variable usually holds its key, how it is asked."""

    name: str
    base_url: str
    """Empty: there is no usual address, it must be configured."""
    key_env: str
    """Empty: it needs no key."""
    search: Callable[[WebFetcher, SearchRequest], Awaitable[list[SearchHit]]]


async def fetch_json(
    door: WebFetcher,
    asked: SearchRequest,
    url: str,
    *,
    headers: Mapping[str, str],
    send: Any = None,
) -> FetchedPage:
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
        check_status(page, asked)
        return page


def check_status(page: FetchedPage, asked: SearchRequest) -> None:
    status = page.status
    if status in (401, 403) and asked.key_name:
        raise EgressError(f"The search service refused the key in {asked.key_name} ({status}).")
    if status == 429:
        raise EgressError("The search service says: too many requests; try again later.")
    if status == 402:
        raise EgressError("The search service says: the account has no credit left.")
    if not 200 <= status < 300:
        raise EgressError(f"The search service answered {status} instead of results.")


def decode_page(page: FetchedPage, shape: type[A]) -> A:
    try:
        return msgspec.json.decode(page.body, type=shape, strict=False)
    except msgspec.DecodeError:
        raise EgressError(_BROKEN) from None


def convert_results(results: list[Any] | None, shape: type[A]) -> list[A]:
    """Those of the results that have their shape: one odd entry does not spoil the others."""
    found: list[A] = []
    for one in results or ():
        with suppress(msgspec.ValidationError):
            found.append(msgspec.convert(one, shape, strict=False))
    if results and not found:
        raise EgressError(_BROKEN)
    return found


def make_hit(title: str | None, url: str, snippet: str | None) -> SearchHit:
    shown = strip_markup(title or "")[:_MAX_TITLE]
    return SearchHit(shown or url, url, strip_markup(snippet or "")[:_MAX_SNIPPET])


def strip_markup(text: str) -> str:
    """One line without markup."""
    return " ".join(unescape(_TAG.sub("", text)).split())


def filter_hits(hits: list[SearchHit], count: int) -> list[SearchHit]:
    """Web addresses only, each once."""
    found: dict[str, SearchHit] = {}
    for one in hits:
        if one.url.startswith(("http://", "https://")):
            found.setdefault(one.url, one)
    return list(found.values())[:count]
