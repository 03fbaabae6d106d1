"""What all search backends share: request, hits, and the errors of the service."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from html import unescape
from typing import Any

import msgspec
from msgspec import Struct

from hermes.net.errors import EgressError
from hermes.net.fetcher import FetchedPage, WebFetcher

MAX_BYTES = 2 * 1024 * 1024
TIMEOUT = 20.0
_TAG = re.compile(r"<[^<>]{1,200}>")
_MAX_TITLE = 200
_MAX_SNIPPET = 500
_BROKEN = "The search service sent an unexpected response; check web.search.base_url."


class SearchHit(Struct, frozen=True):
    title: str
    url: str
    snippet: str = ""


class _RawHit(Struct):
    url: str = ""
    title: str | None = None
    snippet: str | None = None


class SearchRequest(Struct, frozen=True):
    """One search, with everything a backend needs."""

    query: str
    count: int
    base_url: str
    key: str = ""
    key_name: str = ""
    """The variable the key came from, for messages."""


class SearchBackend(Struct, frozen=True):
    """A search service: its default URL, the default variable of its key, and how to query it."""

    name: str
    base_url: str
    """Empty: there is no default, it must be configured."""
    key_env: str
    """Empty: it needs no key."""
    search: Callable[[WebFetcher, SearchRequest], Awaitable[list[SearchHit]]]


async def fetch_json(
    fetcher: WebFetcher,
    request: SearchRequest,
    url: str,
    *,
    headers: Mapping[str, str],
    body: Any = None,
) -> FetchedPage:
    """A successful JSON request; POST when there is a body."""
    body = b"" if body is None else msgspec.json.encode(body)
    kind = {"Content-Type": "application/json"} if body else {}
    async with fetcher.fetch(
        url,
        method="POST" if body else "GET",
        headers={"Accept": "application/json", **kind, **headers},
        body=body,
        max_bytes=MAX_BYTES,
        timeout=TIMEOUT,
    ) as page:
        check_status(page, request)
        return page


def check_status(page: FetchedPage, request: SearchRequest) -> None:
    status = page.status
    if status in (401, 403) and request.key_name:
        raise EgressError(f"The search service refused the key in {request.key_name} ({status}).")
    if status == 429:
        raise EgressError("The search service reports too many requests; try again later.")
    if status == 402:
        raise EgressError("The search service reports that the account is out of credit.")
    if not 200 <= status < 300:
        raise EgressError(f"The search service answered {status} instead of results.")


def read_hits(
    page: FetchedPage, path: Sequence[str], snippet: Callable[[dict[str, Any]], Any]
) -> list[SearchHit]:
    """The hits in the list at `path` of a JSON response; odd entries do not spoil the others."""
    try:
        results: Any = msgspec.json.decode(page.body, type=dict[str, Any])
        for key in path:
            results = msgspec.convert(results or {}, dict[str, Any]).get(key)
        results = msgspec.convert(results or [], list[Any])
    except msgspec.DecodeError:
        raise EgressError(_BROKEN) from None
    found: list[SearchHit] = []
    for result in results:
        with suppress(msgspec.ValidationError, AttributeError, TypeError):
            raw = msgspec.convert({**result, "snippet": snippet(result)}, _RawHit)
            found.append(make_hit(raw.title, raw.url, raw.snippet))
    if results and not found:
        raise EgressError(_BROKEN)
    return found


def make_hit(title: str | None, url: str, snippet: str | None) -> SearchHit:
    text = strip_markup(title or "")[:_MAX_TITLE]
    return SearchHit(text or url, url, strip_markup(snippet or "")[:_MAX_SNIPPET])


def strip_markup(text: str) -> str:
    """The text on one line, without markup."""
    return " ".join(unescape(_TAG.sub("", text)).split())


def filter_hits(hits: list[SearchHit], count: int) -> list[SearchHit]:
    """Only web URLs, each once."""
    found: dict[str, SearchHit] = {}
    for hit in hits:
        if hit.url.startswith(("http://", "https://")):
            found.setdefault(hit.url, hit)
    return list(found.values())[:count]
