"""The search service Tavily."""

from hermes.net.fetcher import WebFetcher
from hermes.net.search.base import SearchBackend, SearchHit, SearchRequest, fetch_json, read_hits


async def _search_tavily(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    max_results = min(request.count, 20)
    body = {"query": request.query, "max_results": max_results, "search_depth": "basic"}
    headers = {"Authorization": f"Bearer {request.key}"}
    page = await fetch_json(
        fetcher, request, f"{request.base_url}/search", headers=headers, body=body
    )
    return read_hits(page, ("results",), lambda result: result.get("content"))


BACKEND = SearchBackend("tavily", "https://api.tavily.com", "TAVILY_API_KEY", _search_tavily)
