"""Turns a page or a PDF, which may be hostile, into text; runs as a process of its own."""

#     python -I page_text_worker.py html|pdf URL  < document  > {"title", "text", "note"} as JSON
#
# A process can be stopped, and its memory is limited and freed. Imports nothing from hermes.

import io
import json
import re
import sys
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

_MAX_MEMORY = 1536 * 1024 * 1024
_MAX_CPU_SECONDS = 40
_MAX_LENGTH = 4_000_000
_MAX_PAGES = 1000
_MIN_ARTICLE_LENGTH = 250
"""Characters an article should have; with fewer, the whole page is considered."""
_SKIPPED_TAGS = frozenset(
    "script style noscript template svg head iframe object canvas select".split()
)
_BLOCK_TAGS = frozenset(
    "p div section article main header footer nav aside ul ol table tr blockquote pre form "
    "figure figcaption h1 h2 h3 h4 h5 h6 dl dt dd hr details summary".split()
)
_MARKS = {
    **{f"h{level}": "#" * level + " " for level in range(1, 7)},
    **{"li": "\n- ", "br": "\n", "td": " | ", "th": " | ", "pre": "```\n"},
}
"""What stands in the text for the beginning of an element."""
_VOID_TAGS = frozenset("br hr img input meta link area base col embed source track wbr".split())


def main() -> int:
    _set_limits()
    kind, url = sys.argv[1:3]
    data = sys.stdin.buffer.read()
    result = _read_pdf(data) if kind == "pdf" else _read_html(data.decode("utf-8", "replace"), url)
    result["text"] = result["text"][:_MAX_LENGTH]
    sys.stdout.buffer.write(json.dumps(result).encode())
    return 0


def _set_limits() -> None:
    import resource

    for what, value in (
        (resource.RLIMIT_AS, _MAX_MEMORY),
        (resource.RLIMIT_CPU, _MAX_CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        if hard == resource.RLIM_INFINITY or value < hard:
            resource.setrlimit(what, (value, value))


def _read_html(html: str, url: str) -> dict[str, Any]:
    parser = PlainTextParser(url)
    parser.feed(html)
    parser.close()
    page_text = parser.get_text()
    try:
        import trafilatura
    except ImportError:
        note = "simple text: install the extra `web` for readable articles"
        return {"title": parser.get_title(), "text": page_text, "note": note}
    try:
        text = trafilatura.extract(
            html,
            url=url,
            output_format="markdown",
            include_links=True,
            include_tables=True,
            include_comments=True,
            favor_recall=True,
        )
    except (ValueError, TypeError, AttributeError, RecursionError, AssertionError):
        text = None
    note = ""
    if not text or (len(text) < _MIN_ARTICLE_LENGTH and len(page_text) > 2 * len(text)):
        text, note = page_text, "no article found: the text of the whole page"
    return {"title": parser.get_title(), "text": text, "note": note}


class PlainTextParser(HTMLParser):
    """The text of a page with headings, lists, links and code, using the standard library alone."""

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._url = url
        self._out: list[str] = []
        self._title: list[str] = []
        self._skipping: list[str] = []
        self._links: list[tuple[str, int]] = []
        self._in_title = False
        self._pre = 0

    def get_title(self) -> str:
        return " ".join("".join(self._title).split())[:300]

    def get_text(self) -> str:
        text = "".join(self._out)
        text = re.sub(r"[ \t]+\n", "\n", text)
        return re.sub(r"\n{3,}", "\n\n", text).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self._title:
            self._in_title = True
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.append(tag)
            return
        attributes = dict(attrs)
        if tag in _SKIPPED_TAGS or (_is_hidden(attributes) and tag not in _VOID_TAGS):
            self._skipping.append(tag)
            return
        self._open_element(tag, attributes)

    def _open_element(self, tag: str, attributes: dict[str, str | None]) -> None:
        if tag in _BLOCK_TAGS:
            self._out.append("\n\n")
        if tag in _MARKS:
            self._out.append(_MARKS[tag])
        if tag == "pre":
            self._pre += 1
        elif tag == "a":
            self._links.append((attributes.get("href") or "", len(self._out)))
        elif tag == "img" and attributes.get("alt"):
            self._out.append(f"[image: {attributes['alt']}]")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.pop()
            return
        if tag == "a" and self._links:
            self._close_link(*self._links.pop())
        elif tag == "pre" and self._pre:
            self._pre -= 1
            self._out.append("\n```\n\n")
        elif tag in _BLOCK_TAGS:
            self._out.append("\n\n")

    def _close_link(self, href: str, start: int) -> None:
        words = "".join(self._out[start:]).strip()
        if not words or "\n" in words or not href or href.startswith(("#", "javascript:", "data:")):
            return
        try:
            target = urljoin(self._url, href)
        except ValueError:
            return
        self._out[start:] = [f"[{words}]({target})"]

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        if self._skipping or self._in_title:
            return
        if self._pre:
            self._out.append(data)
            return
        words = re.sub(r"\s+", " ", data)
        if words == " " and (not self._out or self._out[-1].endswith(("\n", " "))):
            return
        self._out.append(words)


def _is_hidden(attributes: dict[str, str | None]) -> bool:
    style = (attributes.get("style") or "").replace(" ", "").lower()
    return "hidden" in attributes or "display:none" in style or "visibility:hidden" in style


def _read_pdf(data: bytes) -> dict[str, Any]:
    try:
        from pypdf import PdfReader
        from pypdf.errors import PyPdfError
    except ImportError:
        return {"error": "Reading a PDF needs the extra `web` of this program.", "text": ""}
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"error": "The PDF is protected with a password.", "text": ""}
        title = str(reader.metadata.title or "") if reader.metadata else ""
        count = len(reader.pages)
        parts: list[str] = []
        room = _MAX_LENGTH
        for number in range(min(count, _MAX_PAGES)):
            words = reader.pages[number].extract_text().strip()
            parts.append(f"[page {number + 1} of {count}]\n{words}")
            room -= len(words)
            if room < 0:
                break
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return {"error": f"The PDF cannot be read ({type(error).__name__}).", "text": ""}
    except (RecursionError, MemoryError, NotImplementedError, OSError) as error:
        return {"error": f"The PDF cannot be read ({type(error).__name__}).", "text": ""}
    is_empty = all(part.endswith("]\n") for part in parts)
    note = "no text in this PDF: its pages are probably images" if is_empty else ""
    return {"title": " ".join(title.split())[:300], "text": "\n\n".join(parts), "note": note}


if __name__ == "__main__":
    sys.exit(main())
