"""Content as OpenAI clients send it, a string or a list of parts, as parts of our own."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from msgspec import structs

from hermes.core.image_size import MOST_PIXELS, is_oversized
from hermes.core.message import Media, Message, Text
from hermes.net.errors import EgressError
from hermes.net.ip_ranges import is_disguised_ipv4, is_reachable
from hermes.net.url import parse_url
from hermes.server.http.errors import ApiError, bad

MAX_IMAGE = 20 * 1024 * 1024
_ACTIVE = frozenset({"image/svg+xml", "image/svg"})
"""Images that are programs."""
_TEXT = frozenset({"text", "input_text", "output_text"})
_DETAILS = frozenset({"auto", "low", "high"})


def parts_of(content: Any, where: str) -> tuple[Text | Media, ...]:
    """Text alone becomes one part, so that the same words are always the same bytes."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if not isinstance(content, list):
        raise bad(f"{where} must be a string or a list of parts.", where)
    found = [_part(part, f"{where}[{n}]") for n, part in enumerate(content)]
    if all(isinstance(part, Text) for part in found):
        text = "\n".join(part.text for part in found if isinstance(part, Text) and part.text)
        return (Text(text),) if text else ()
    return tuple(part for part in found if not isinstance(part, Text) or part.text)


def _part(part: Any, where: str) -> Text | Media:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, dict):
        raise bad(f"{where} must be an object.", where)
    kind = part.get("type")
    if kind in _TEXT:
        text = part.get("text", "")
        if not isinstance(text, str):
            raise bad(f"{where}.text must be a string.", f"{where}.text")
        return Text(text)
    if kind in ("image_url", "input_image"):
        given = part.get("image_url")
        told = given if isinstance(given, dict) else {"url": given, "detail": part.get("detail")}
        url, detail = told.get("url"), told.get("detail")
        if not isinstance(url, str) or not url:
            raise _unsupported("an image needs image_url", where)
        known = isinstance(detail, str) and detail in _DETAILS
        return structs.replace(image(url, where), detail=detail if known else "")
    raise _unsupported(f"parts of type {str(kind)[:40]!r} are not supported", where)


def image(url: str, where: str) -> Media:
    """http(s) is fetched by the provider, never by us; private addresses are refused anyway."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "data":
        return _inline(rest, where)
    if scheme.lower() not in ("http", "https"):
        raise _unsupported("an image is an http(s) address or a data:image/… one", where)
    try:
        place = parse_url(url)
    except EgressError as error:
        raise bad(f"{where}: {error}", where) from None
    literal = place.literal
    if place.is_internal or (
        literal is not None and (is_disguised_ipv4(literal) or not is_reachable(literal))
    ):
        raise bad(f"{where}: this address is not public.", where)
    return Media("image/*", url=url)


def _inline(rest: str, where: str) -> Media:
    head, comma, data = rest.partition(",")
    mime, *flags = [word.strip().lower() for word in head.split(";")]
    if not mime.startswith("image/") or mime in _ACTIVE or not comma or "base64" not in flags:
        raise _unsupported("of data: addresses only base64 images are supported", where)
    if len(data) > MAX_IMAGE * 4 // 3 + 4:
        raise bad(f"{where}: an image may have {MAX_IMAGE // 1024 // 1024} MB.", where)
    try:
        raw = base64.b64decode(data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise bad(f"{where}: the image is not valid base64.", where) from None
    if is_oversized(raw):
        raise bad(f"{where}: the image has more than {MOST_PIXELS // 1_000_000} megapixels.", where)
    return Media("image/jpeg" if mime == "image/jpg" else mime, raw)


def visible(message: Message) -> bool:
    return any(
        isinstance(p, Media) or (isinstance(p, Text) and p.text.strip()) for p in message.parts
    )


def _unsupported(why: str, where: str) -> ApiError:
    return bad(f"{where}: {why}.", where, "unsupported_content_type")
