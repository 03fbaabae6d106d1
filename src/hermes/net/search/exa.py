"""Exa."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from hermes.net.fetcher import Door
from hermes.net.search.base import Asked, Backend, Hit, ask, decode, each, hit


class _Result(Struct):
    url: str = ""
    title: str | None = ""
    text: str | None = ""
    summary: str | None = ""
    highlights: list[str] | None = None


class _Answer(Struct):
    results: list[Any] | None = None


async def _search(door: Door, asked: Asked) -> list[Hit]:
    page = await ask(
        door,
        asked,
        f"{asked.base_url}/search",
        headers={"x-api-key": asked.key},
        send={
            "query": asked.query,
            "numResults": asked.count,
            "contents": {"text": {"maxCharacters": 500}},
        },
    )
    return [hit(r.title, r.url, _snippet(r)) for r in each(decode(page, _Answer).results, _Result)]


def _snippet(result: _Result) -> str:
    return " … ".join(result.highlights or ()) or result.summary or result.text or ""


BACKEND = Backend("exa", "https://api.exa.ai", "EXA_API_KEY", _search)
