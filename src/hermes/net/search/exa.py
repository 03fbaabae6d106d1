"""The search service Exa."""

from typing import Any

from hermes.net.fetcher import WebFetcher
from hermes.net.search.base import SearchBackend, SearchHit, SearchRequest, fetch_json, read_hits


async def _search_exa(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    body = {
        "query": request.query,
        "numResults": request.count,
        "contents": {"text": {"maxCharacters": 500}},
    }
    headers = {"x-api-key": request.key}
    page = await fetch_json(
        fetcher, request, f"{request.base_url}/search", headers=headers, body=body
    )
    return read_hits(page, ("results",), _choose_snippet)


def _choose_snippet(result: dict[str, Any]) -> Any:
    highlights = " … ".join(result.get("highlights") or ())
    return highlights or result.get("summary") or result.get("text")


BACKEND = SearchBackend("exa", "https://api.exa.ai", "EXA_API_KEY", _search_exa)
