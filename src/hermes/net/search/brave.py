"""The search service Brave."""

from urllib.parse import urlencode

from hermes.net.fetcher import WebFetcher
from hermes.net.search.base import SearchBackend, SearchHit, SearchRequest, fetch_json, read_hits


async def _search_brave(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    query = urlencode({"q": request.query, "count": min(request.count, 20)})
    url = f"{request.base_url}/res/v1/web/search?{query}"
    page = await fetch_json(fetcher, request, url, headers={"X-Subscription-Token": request.key})
    return read_hits(page, ("web", "results"), lambda result: result.get("description"))


BACKEND = SearchBackend("brave", "https://api.search.brave.com", "BRAVE_API_KEY", _search_brave)
