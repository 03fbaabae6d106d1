"""SearXNG, an instance of one's own."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from hermes.net.errors import EgressError
from hermes.net.fetcher import Door
from hermes.net.search.base import Asked, Backend, Hit, check, decode, each, hit


class _Result(Struct):
    url: str = ""
    title: str | None = ""
    content: str | None = ""


class _Answer(Struct):
    results: list[Any] | None = None


async def _search(door: Door, asked: Asked) -> list[Hit]:
    query = urlencode({"q": asked.query, "format": "json"})
    headers = {"Accept": "application/json"}
    if asked.key:
        headers["Authorization"] = f"Bearer {asked.key}"
    async with door.fetch(f"{asked.base_url}/search?{query}", headers=headers) as page:
        if page.status == 403:
            raise EgressError(
                "This SearXNG does not answer in JSON: "
                "add `json` to search.formats in its settings.yml."
            )
        check(page, asked)
        return [
            hit(r.title, r.url, r.content) for r in each(decode(page, _Answer).results, _Result)
        ]


BACKEND = Backend("searxng", "", "", _search)
