"""DuckDuckGo, through its pages for browsers without scripts."""

import re
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlencode, urlsplit

from hermes.net.errors import EgressError
from hermes.net.fetcher import FetchedPage, WebFetcher
from hermes.net.search import base
from hermes.net.search.base import SearchBackend, SearchHit, SearchRequest

_TITLES = frozenset({"result__a", "result-link"})
_SNIPPETS = frozenset({"result__snippet", "result-snippet"})
_RESULTS = re.compile(rb"no-results|No (?:more )?results|id=.?links\b|result-link|result__a", re.I)
"""Matches every page of results, also an empty one."""
_DEFAULT_URL = "https://html.duckduckgo.com"


async def _search_duckduckgo(fetcher: WebFetcher, request: SearchRequest) -> list[SearchHit]:
    """Tries the full page, then the lite one: they are rarely blocked at the same time."""
    lite = "https://lite.duckduckgo.com" if request.base_url == _DEFAULT_URL else request.base_url
    for url in (f"{request.base_url}/html/", f"{lite}/lite/"):
        page = await _post_query(fetcher, request, url)
        is_captcha = page.status in (202, 403, 418) or b"anomaly-modal" in page.body
        if not is_captcha:
            base.check_status(page, request)
            found = parse_results(page.body.decode("utf-8", "replace"))
            if not found and not _RESULTS.search(page.body):
                raise EgressError(
                    "DuckDuckGo did not send results; try again later or set another "
                    "web.search.backend."
                )
            return found
    raise EgressError(
        "DuckDuckGo asks for a CAPTCHA; try again later or set another web.search.backend."
    )


async def _post_query(fetcher: WebFetcher, request: SearchRequest, url: str) -> FetchedPage:
    async with fetcher.fetch(
        url,
        method="POST",
        headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "text/html"},
        body=urlencode({"q": request.query, "kl": ""}).encode(),
        max_bytes=base.MAX_BYTES,
        timeout=base.TIMEOUT,
    ) as page:
        return page


def parse_results(html: str) -> list[SearchHit]:
    """The results of a page, without advertisements."""
    reader = _ResultParser()
    reader.feed(html)
    reader.close()
    return [base.make_hit(title, url, snippet) for url, title, snippet in reader.found]


class _ResultParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, str, str]] = []
        self._in = ""
        self._tag = ""
        self._text: list[str] = []
        self._in_advert = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        classes = frozenset((attributes.get("class") or "").split())
        if "result" in classes or tag == "tr":
            self._in_advert = bool({"result--ad", "result-sponsored"} & classes)
        if tag == "a" and classes & _TITLES:
            url = _resolve_link(attributes.get("href") or "")
            self._begin_text("title" if url and not self._in_advert else "", tag)
            if self._in:
                self.found.append((url, "", ""))
        elif classes & _SNIPPETS and self.found and not self._in_advert:
            self._begin_text("snippet", tag)

    def _begin_text(self, what: str, tag: str) -> None:
        self._in, self._tag, self._text = what, tag, []

    def handle_data(self, data: str) -> None:
        if self._in:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if not self._in or tag != self._tag:
            return
        url, title, snippet = self.found[-1]
        text = " ".join("".join(self._text).split())
        self.found[-1] = (url, text, snippet) if self._in == "title" else (url, title, text)
        self._in = ""


def _resolve_link(link: str) -> str:
    """The target behind DuckDuckGo's own redirect; empty for advertisements."""
    if link.startswith("//"):
        link = "https:" + link
    try:
        parts = urlsplit(link)
    except ValueError:
        return ""
    if parts.path == "/y.js":
        return ""
    hidden = parse_qs(parts.query).get("uddg")
    if parts.path == "/l/" and hidden:
        return hidden[0]
    return link if parts.scheme in ("http", "https") else ""


BACKEND = SearchBackend("duckduckgo", _DEFAULT_URL, "", _search_duckduckgo)
