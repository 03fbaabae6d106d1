"""Extracts the readable text of a fetched page, whatever its format and encoding."""

import asyncio
import codecs
import re
import sys
from functools import lru_cache
from itertools import islice
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from hermes.core.untrusted_text import reveal_hidden
from hermes.net.errors import EgressError
from hermes.net.fetcher import FetchedPage

READABLE_TYPES = (
    "",
    *"text/ +json +xml application/json application/xml application/pdf application/x-pdf".split(),
    *"application/javascript application/x-javascript application/yaml application/x-yaml".split(),
    *"application/toml application/x-ndjson application/x-sh application/octet-stream".split(),
)
"""Content types worth downloading because they can be turned into text."""
TIMEOUT = 45.0
_MIN_PAIRED_SHARE = 0.3
_NON_ASCII = re.compile(rb"[\x80-\xff]")
_NON_ASCII_PAIR = re.compile(rb"[\x80-\xff](?=[\x80-\xff])")
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{2,40})", re.I)
_XML = re.compile(rb"\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z0-9_.:-]{2,40})", re.I)
_STARTS_HTML = re.compile(
    rb"\s*(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Declared encoding -> the one that is actually used, as in browsers.
_ACTUAL_ENCODINGS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "tis-620": "cp874",
}
_ENCODING_PREFIXES = tuple(
    "ascii iso8859 cp gb big5 shift_jis euc koi8 mac tis hz johab utf-8 utf-16 utf-32".split()
)


class PageText(Struct, frozen=True):
    text: str
    title: str = ""
    note: str = ""
    """What the reader should know about how the text was extracted."""


class _WorkerResult(PageText, frozen=True):
    error: str = ""


_ENTITY = re.compile(
    r"&(?:#[xX]0{0,8}[0-9A-Fa-f]{2,5}|#0{0,8}[0-9]{3,6}"
    r"|zwn?j|[lr]rm|ZeroWidthSpace|NoBreak|Invisible(?:Times|Comma)|ApplyFunction|it|ic|af)\b;?"
)
_INVISIBLE = re.compile(
    "[\x00-\x08\x7f-\x9f\u180b-\u180f\u200b-\u206f\ufe00-\ufeff\U000e0000-\U000e0fff]|&[#z]"
)
_MAX_INVISIBLE = 50_000
_REVEALED = re.compile(r"<(U\+[0-9A-F]{4,6})>")


async def read_page(page: FetchedPage, *, seconds: float = TIMEOUT) -> PageText:
    body = page.body
    if body.startswith(b"%PDF-") or page.content_type in ("application/pdf", "application/x-pdf"):
        return await _run_worker("pdf", page.url, body, seconds)
    if page.content_type in _HTML or _STARTS_HTML.match(body[:4096]):
        html = _reveal_hidden(decode_body(body, page.charset)).encode("utf-8", "replace")
        extracted = await _run_worker("html", page.url, html, seconds)
        return structs.replace(extracted, text=extracted.text.replace(r"\<U+", "<U+"))
    if b"\0" in body[:4096] and not body.startswith(tuple(mark for mark, _ in _BYTE_ORDER_MARKS)):
        raise EgressError("The page is binary data, not text.")
    return PageText(decode_body(body, page.charset))


def _reveal_hidden(html: str) -> str:
    """Write out invisible characters before the extractor drops them and joins what they separate.
    Soft hyphens are dropped: they are common in long words. A page full of invisible characters
    is left to the extractor."""
    if next(islice(_INVISIBLE.finditer(html), _MAX_INVISIBLE, None), None):
        return html
    html = _ENTITY.sub(lambda found: _decode_invisible(found[0]), html)
    shown = reveal_hidden(html.replace("\xad", ""))
    return _REVEALED.sub(r"&lt;\1&gt;", shown)


@lru_cache(1024)
def _decode_invisible(entity: str) -> str:
    """The character an entity stands for, if it is invisible; else the entity."""
    from html import unescape

    char = unescape(entity)
    return char if len(char) == 1 and reveal_hidden(f"a{char}a") != f"a{char}a" else entity


def decode_body(body: bytes, declared: str = "") -> str:
    """Decode by byte order mark, the encoding that server or page declare, UTF-8, or a guess."""
    for mark, name in _BYTE_ORDER_MARKS:
        if body.startswith(mark):
            return body.decode(name, "replace")
    inside = _META.search(body[:4096]) or _XML.match(body[:400])
    for name in (declared, inside[1].decode("ascii") if inside else ""):
        codec = _find_codec(name)
        if codec.startswith("utf") and name != declared:
            codec = "utf-8"  # a declaration readable as ASCII is not UTF-16
        if codec == "utf-8" or (codec == "cp1252" and _is_utf8(body)):
            break
        if codec:
            return body.decode(codec, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start >= len(body) - 3:
            return body.decode("utf-8", "replace")
    return _decode_by_guess(body)


def _is_utf8(body: bytes) -> bool:
    """Western text is hardly ever valid UTF-8 by chance, but a server's default is often wrong."""
    try:
        return not body.decode("utf-8").isascii()
    except UnicodeDecodeError:
        return False


def _find_codec(name: str) -> str:
    """Python's name of an encoding used for web pages; empty when there is none."""
    try:
        found = codecs.lookup(name).name
    except (LookupError, ValueError):
        return ""
    return _ACTUAL_ENCODINGS.get(found, found) if found.startswith(_ENCODING_PREFIXES) else ""


def _decode_by_guess(body: bytes) -> str:
    """Isolated non-ASCII bytes are Western accents; sequences of them are left to statistics."""
    start = body[:65536]
    beyond = len(_NON_ASCII.findall(start))
    if len(_NON_ASCII_PAIR.findall(start)) < beyond * _MIN_PAIRED_SHARE:
        return body.decode("cp1252", "replace")
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return body.decode("cp1252", "replace")
    best = from_bytes(start).best()
    return body.decode(best.encoding if best else "cp1252", "replace")


async def _run_worker(kind: str, url: str, data: bytes, seconds: float) -> PageText:
    """In a process of its own: untrusted documents can hang or exhaust the memory."""
    script = Path(__file__).with_name("page_text_worker.py")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-X", "utf8", str(script), kind, url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
    )
    try:
        async with asyncio.timeout(seconds):
            out, _ = await process.communicate(data)
        result = msgspec.json.decode(out, type=_WorkerResult)
    except TimeoutError:
        raise EgressError("The document took too long to read.") from None
    except msgspec.DecodeError:
        raise EgressError("The document is too large or too damaged to be read.") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if result.error:
        raise EgressError(result.error)
    return PageText(result.text, result.title, result.note)
