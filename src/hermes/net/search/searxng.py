"""A self-hosted SearXNG."""

from urllib.parse import urlencode

from hermes.net.errors import EgressError
from hermes.net.fetcher import WebFetcher
from hermes.net.search.base import SearchBackend, SearchHit, SearchRequest, check_status, read_hits


async def _search_searxng(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    query = urlencode({"q": request.query, "format": "json"})
    headers = {"Accept": "application/json"}
    if request.key:
        headers["Authorization"] = f"Bearer {request.key}"
    async with fetcher.fetch(f"{request.base_url}/search?{query}", headers=headers) as page:
        if page.status == 403:
            raise EgressError(
                "This SearXNG does not answer in JSON: "
                "add `json` to search.formats in its settings.yml."
            )
        check_status(page, request)
        return read_hits(page, ("results",), lambda result: result.get("content"))


BACKEND = SearchBackend("searxng", "", "", _search_searxng)
