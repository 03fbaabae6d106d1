"""Brave Search."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from hermes.net.fetcher import Door
from hermes.net.search.base import Asked, Backend, Hit, ask, decode, each, hit


class _Result(Struct):
    url: str = ""
    title: str | None = ""
    description: str | None = ""


class _Web(Struct):
    results: list[Any] | None = None


class _Answer(Struct):
    web: _Web | None = None


async def _search(door: Door, asked: Asked) -> list[Hit]:
    query = urlencode({"q": asked.query, "count": min(asked.count, 20)})
    page = await ask(
        door,
        asked,
        f"{asked.base_url}/res/v1/web/search?{query}",
        headers={"X-Subscription-Token": asked.key},
    )
    web = decode(page, _Answer).web or _Web()
    return [hit(r.title, r.url, r.description) for r in each(web.results, _Result)]


BACKEND = Backend("brave", "https://api.search.brave.com", "BRAVE_API_KEY", _search)
