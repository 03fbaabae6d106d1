"""Parses message content that clients send: a string, or a list of text and image parts."""

import base64
import binascii
from typing import Any

from msgspec import structs

from hermes.core.image_size import MOST_PIXELS, is_oversized
from hermes.core.message import Media, Message, Text
from hermes.net.errors import EgressError
from hermes.net.ip_ranges import is_disguised_ipv4, is_reachable
from hermes.net.url import parse_url
from hermes.server.http.errors import ApiError, bad_request

MAX_IMAGE_BYTES = 20 * 1024 * 1024
_SCRIPTABLE = frozenset({"image/svg+xml", "image/svg"})
"""Image types that can contain scripts."""
_TEXT_TYPES = frozenset({"text", "input_text", "output_text"})
_DETAILS = frozenset({"auto", "low", "high"})


def parse_content(content: Any, field: str) -> tuple[Text | Media, ...]:
    """Parse message content. Text-only lists become one part, so that prompt caches see the same
    bytes as for a string."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(content),) if content else ()
    if not isinstance(content, list):
        raise bad_request(f"{field} must be a string or a list of parts.", field)
    found = [_parse_content_part(part, f"{field}[{n}]") for n, part in enumerate(content)]
    if all(isinstance(part, Text) for part in found):
        text = "\n".join(part.text for part in found if isinstance(part, Text) and part.text)
        return (Text(text),) if text else ()
    return tuple(part for part in found if not isinstance(part, Text) or part.text)


def parse_text(content: Any, field: str) -> str:
    """The text of message content; images in it are checked and left out."""
    return Message("user", parse_content(content, field)).text


def _parse_content_part(part: Any, field: str) -> Text | Media:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, dict):
        raise bad_request(f"{field} must be an object.", field)
    kind = part.get("type")
    if kind in _TEXT_TYPES:
        text = part.get("text", "")
        if not isinstance(text, str):
            raise bad_request(f"{field}.text must be a string.", f"{field}.text")
        return Text(text)
    if kind in ("image_url", "input_image"):
        value = part.get("image_url")
        fields = value if isinstance(value, dict) else {"url": value, "detail": part.get("detail")}
        url, detail = fields.get("url"), fields.get("detail")
        if not isinstance(url, str) or not url:
            raise _unsupported_content_error("an image part needs image_url", field)
        is_known = isinstance(detail, str) and detail in _DETAILS
        return structs.replace(parse_image_url(url, field), detail=detail if is_known else "")
    raise _unsupported_content_error(f"parts of type {str(kind)[:40]!r} are not supported", field)


def parse_image_url(url: str, field: str) -> Media:
    """Parse the URL of an image. Only the provider fetches http(s) URLs; private addresses are
    rejected all the same."""
    scheme, _, url_tail = url.partition(":")
    if scheme.lower() == "data":
        return _parse_data_url(url_tail, field)
    if scheme.lower() not in ("http", "https"):
        raise _unsupported_content_error("an image must be an http(s) or data:image/… URL", field)
    try:
        address = parse_url(url)
    except EgressError as error:
        raise bad_request(f"{field}: {error}", field) from None
    literal = address.literal
    if address.is_internal or (
        literal is not None and (is_disguised_ipv4(literal) or not is_reachable(literal))
    ):
        raise bad_request(f"{field}: the address is not public.", field)
    return Media("image/*", url=url)


def _parse_data_url(url_tail: str, field: str) -> Media:
    head, comma, data = url_tail.partition(",")
    mime, *flags = [word.strip().lower() for word in head.split(";")]
    if not mime.startswith("image/") or mime in _SCRIPTABLE or not comma or "base64" not in flags:
        raise _unsupported_content_error("data: URLs must contain a base64 image", field)
    if len(data) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise bad_request(
            f"{field}: images must not exceed {MAX_IMAGE_BYTES // 1024 // 1024} MB.", field
        )
    try:
        raw = base64.b64decode(data.rstrip("=") + "=" * (-len(data.rstrip("=")) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise bad_request(f"{field}: the image is not valid base64.", field) from None
    if is_oversized(raw):
        raise bad_request(
            f"{field}: the image has more than {MOST_PIXELS // 1_000_000} megapixels.", field
        )
    return Media("image/jpeg" if mime == "image/jpg" else mime, raw)


def has_visible_content(message: Message) -> bool:
    """Whether the message has an image, or text other than white space."""
    return any(
        isinstance(p, Media) or (isinstance(p, Text) and p.text.strip()) for p in message.parts
    )


def _unsupported_content_error(reason: str, field: str) -> ApiError:
    return bad_request(f"{field}: {reason}.", field, "unsupported_content_type")
