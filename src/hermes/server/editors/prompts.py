"""What an editor sends as a prompt, as a message."""

import base64
import binascii
from collections.abc import Sequence
from typing import Any

from acp import RequestError, schema

from hermes.core.message import Media, Message, Part, Text
from hermes.core.untrusted_text import make_inert, wrap_text


def read_prompt(blocks: Sequence[Any], mark: str) -> tuple[Message, bool]:
    """The message, and whether it holds more than the user's own words. `mark`: of quoted text."""
    parts: list[Part] = []
    texts: list[str] = []
    has_data = False
    for block in blocks:
        match block:
            case schema.TextContentBlock(text=text):
                texts += [text] if text.strip() else []
            case schema.ImageContentBlock(data=data, mime_type=mime):
                parts.append(Media(mime, _decode_bytes(data)))
            case schema.ResourceContentBlock(uri=uri, name=name):
                texts.append(f"[{name}]({uri})")
            case schema.EmbeddedResourceContentBlock(resource=resource):
                has_data = True
                content = getattr(resource, "text", None)
                if content is None:
                    content = "(binary content, not shown)"
                quoted = wrap_text(make_inert(content), mark, begin=True, end=True)
                texts.append(f"{resource.uri}:\n{quoted}")
            case _:
                raise RequestError.invalid_params({"reason": "this kind of content is not taken"})
    if texts:
        parts.append(Text("\n\n".join(texts)))
    if not parts:
        raise RequestError.invalid_params({"reason": "the prompt is empty"})
    return Message("user", tuple(parts)), has_data


def _decode_bytes(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError.invalid_params({"reason": "an image is not valid base64"}) from None
