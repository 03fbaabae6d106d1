"""The search service Exa."""

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


class _ExaResult(Struct):
    url: str = ""
    title: str | None = ""
    text: str | None = ""
    summary: str | None = ""
    highlights: list[str] | None = None


class _ExaResponse(Struct):
    results: list[Any] | None = None


async def _search_exa(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    page = await fetch_json(
        fetcher,
        request,
        f"{request.base_url}/search",
        headers={"x-api-key": request.key},
        body={
            "query": request.query,
            "numResults": request.count,
            "contents": {"text": {"maxCharacters": 500}},
        },
    )
    return [
        make_hit(r.title, r.url, _choose_snippet(r))
        for r in convert_results(decode_page(page, _ExaResponse).results, _ExaResult)
    ]


def _choose_snippet(result: _ExaResult) -> str:
    return " … ".join(result.highlights or ()) or result.summary or result.text or ""


BACKEND = SearchBackend("exa", "https://api.exa.ai", "EXA_API_KEY", _search_exa)
