"""Tavily."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hermes.net.fetcher import Door
from hermes.net.search.base import Asked, Backend, Hit, ask, decode, each, hit


class _Result(Struct):
    url: str = ""
    title: str | None = ""
    content: str | None = ""


class _Answer(Struct):
    results: list[Any] | None = None


async def _search(door: Door, asked: Asked) -> list[Hit]:
    page = await ask(
        door,
        asked,
        f"{asked.base_url}/search",
        headers={"Authorization": f"Bearer {asked.key}"},
        send={"query": asked.query, "max_results": min(asked.count, 20), "search_depth": "basic"},
    )
    return [hit(r.title, r.url, r.content) for r in each(decode(page, _Answer).results, _Result)]


BACKEND = Backend("tavily", "https://api.tavily.com", "TAVILY_API_KEY", _search)
