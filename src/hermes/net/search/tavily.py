"""The search service Tavily."""

from __future__ import annotations

from typing import Any

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


class _TavilyResult(Struct):
    url: str = ""
    title: str | None = ""
    content: str | None = ""


class _TavilyResponse(Struct):
    results: list[Any] | None = None


async def _search_tavily(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    page = await fetch_json(
        fetcher,
        request,
        f"{request.base_url}/search",
        headers={"Authorization": f"Bearer {request.key}"},
        body={
            "query": request.query,
            "max_results": min(request.count, 20),
            "search_depth": "basic",
        },
    )
    return [
        make_hit(r.title, r.url, r.content)
        for r in convert_results(decode_page(page, _TavilyResponse).results, _TavilyResult)
    ]


BACKEND = SearchBackend("tavily", "https://api.tavily.com", "TAVILY_API_KEY", _search_tavily)
