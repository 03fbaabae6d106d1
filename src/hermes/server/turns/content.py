"""Message content as clients send it, a string or a list of parts, into parts of our own."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from msgspec import structs

from hermes.core.image_size import MOST_PIXELS, oversized
from hermes.core.message import Media, Message, Text
from hermes.net.errors import EgressError
from hermes.net.ip_ranges import is_disguised_ipv4, is_reachable
from hermes.net.url import parse_url
from hermes.server.http.errors import ApiError, bad_request

MAX_IMAGE_BYTES = 20 * 1024 * 1024
_SCRIPTABLE = frozenset({"image/svg+xml", "image/svg"})
"""Images that can run scripts."""
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_DETAILS = frozenset({"auto", "low", "high"})


def parse_content(content: Any, where: str) -> tuple[Text | Media, ...]:
    """Parts that are all text become one, so that prompt caches see the same bytes."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if not isinstance(content, list):
        raise bad_request(f"{where} must be a string or a list of parts.", where)
    found = [_parse_content_part(part, f"{where}[{n}]") for n, part in enumerate(content)]
    if all(isinstance(part, Text) for part in found):
        text = "\n".join(part.text for part in found if isinstance(part, Text) and part.text)
        return (Text(text),) if text else ()
    return tuple(part for part in found if not isinstance(part, Text) or part.text)


def _parse_content_part(part: Any, where: str) -> Text | Media:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, dict):
        raise bad_request(f"{where} must be an object.", where)
    kind = part.get("type")
    if kind in _TEXT_TYPES:
        text = part.get("text", "")
        if not isinstance(text, str):
            raise bad_request(f"{where}.text must be a string.", f"{where}.text")
        return Text(text)
    if kind in ("image_url", "input_image"):
        value = part.get("image_url")
        fields = value if isinstance(value, dict) else {"url": value, "detail": part.get("detail")}
        url, detail = fields.get("url"), fields.get("detail")
        if not isinstance(url, str) or not url:
            raise _unsupported_content_error("an image needs image_url", where)
        is_known = isinstance(detail, str) and detail in _DETAILS
        return structs.replace(parse_image_url(url, where), detail=detail if is_known else "")
    raise _unsupported_content_error(f"parts of type {str(kind)[:40]!r} are not supported", where)


def parse_image_url(url: str, where: str) -> Media:
    """The provider fetches http(s) addresses, never we; private ones are refused all the same."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() == "data":
        return _parse_data_url(rest, where)
    if scheme.lower() not in ("http", "https"):
        raise _unsupported_content_error(
            "an image is an http(s) address or a data:image/… one", where
        )
    try:
        address = parse_url(url)
    except EgressError as error:
        raise bad_request(f"{where}: {error}", where) from None
    literal = address.literal
    if address.is_internal or (
        literal is not None and (is_disguised_ipv4(literal) or not is_reachable(literal))
    ):
        raise bad_request(f"{where}: this address is not public.", where)
    return Media("image/*", url=url)


def _parse_data_url(rest: str, where: str) -> Media:
    head, comma, data = rest.partition(",")
    mime, *flags = [word.strip().lower() for word in head.split(";")]
    if not mime.startswith("image/") or mime in _SCRIPTABLE or not comma or "base64" not in flags:
        raise _unsupported_content_error(
            "of data: addresses only base64 images are supported", where
        )
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise bad_request(
            f"{where}: an image may have {MAX_IMAGE_BYTES // 1024 // 1024} MB.", where
        )
    try:
        raw = base64.b64decode(data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"{where}: the image is not valid base64.", where) from None
    if oversized(raw):
        raise bad_request(
            f"{where}: the image has more than {MOST_PIXELS // 1_000_000} megapixels.", where
        )
    return Media("image/jpeg" if mime == "image/jpg" else mime, raw)


def has_visible_content(message: Message) -> bool:
    """Whether it has an image, or text other than white space."""
    return any(
        isinstance(p, Media) or (isinstance(p, Text) and p.text.strip()) for p in message.parts
    )


def _unsupported_content_error(why: str, where: str) -> ApiError:
    return bad_request(f"{where}: {why}.", where, "unsupported_content_type")
