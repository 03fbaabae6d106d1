"""The search service Brave."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from hermes.net.fetcher import WebFetcher
from hermes.net.search.base import (
    SearchBackend,
    SearchHit,
    SearchRequest,
    convert_results,
    decode_page,
    fetch_json,
    make_hit,
)


class _BraveResult(Struct):
    url: str = ""
    title: str | None = ""
    description: str | None = ""


class _BraveWeb(Struct):
    results: list[Any] | None = None


class _BraveResponse(Struct):
    web: _BraveWeb | None = None


async def _search_brave(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    query = urlencode({"q": request.query, "count": min(request.count, 20)})
    page = await fetch_json(
        fetcher,
        request,
        f"{request.base_url}/res/v1/web/search?{query}",
        headers={"X-Subscription-Token": request.key},
    )
    web = decode_page(page, _BraveResponse).web or _BraveWeb()
    return [
        make_hit(r.title, r.url, r.description) for r in convert_results(web.results, _BraveResult)
    ]


BACKEND = SearchBackend("brave", "https://api.search.brave.com", "BRAVE_API_KEY", _search_brave)
