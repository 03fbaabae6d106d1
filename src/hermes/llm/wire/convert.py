"""Conversions that several wires share: arguments, media, counts and documents."""

from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.message import NO_ARGUMENTS, Media, Target, Text
from hermes.core.provider import Effort, ResponseSink
from hermes.llm.wire.lenient_json import decode_json, encode_json

BUDGETS: dict[Effort, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
}
"""Thinking tokens for each effort, where the API takes a number."""


def parse_arguments(args: str) -> dict[str, Any]:
    """The arguments of a call as an object, for wires that accept nothing else."""
    if args.strip() in NO_ARGUMENTS:
        return {}
    try:
        value = decode_json(args)
    except ValueError:
        value = args
    # Not `{}`: the model must see what it wrote, next to the error it got for it.
    return value if isinstance(value, dict) else {"_not_an_object": value}


def inline_data(media: Media) -> tuple[str, str] | None:
    """(mime, base64) of media whose bytes are known; None: there is only an address."""
    if media.data:
        return media.mime, b64encode(media.data).decode()
    head, comma, data = media.url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return head[5:-7].partition(";")[0] or media.mime, data
    return None


def locate_media(media: Media) -> tuple[str, str, str | None]:
    """(mime, address, base64) of media; base64 is None when there is only an address."""
    if (held := inline_data(media)) is None:
        return media.mime, media.url, None
    mime, data = held
    return mime, f"data:{mime};base64,{data}", data


def build_content(
    parts: Sequence[Text | Media], seam: str, *, kind: str, show: Callable[[Media], dict[str, Any]]
) -> str | list[dict[str, Any]]:
    """Texts alone are joined by `seam`; beside media each text is a part of this kind."""
    if not any(isinstance(part, Media) for part in parts):
        return seam.join([part.text for part in parts if isinstance(part, Text)])
    return [
        show(part) if isinstance(part, Media) else {"type": kind, "text": part.text}
        for part in parts
        if isinstance(part, Media) or part.text
    ]


def describe_media(media: Media) -> str:
    """A text in place of media that the protocol cannot carry."""
    what = media.name or (media.url if not media.url.startswith("data:") else "") or "a file"
    return f"[{what} ({media.mime}) cannot be shown to this model]"


def sum_counts(*counts: Any) -> Any:
    """The sum of the counts that are present, None if none is. An impossible count is returned as
    it is, so that the usage gets marked as estimated."""
    found = [c for c in counts if c is not None]
    impossible = [c for c in found if type(c) is not int or c < 0]
    return impossible[0] if impossible else sum(found) if found else None


def parse_document(body: bytes) -> Any:
    """The JSON of a complete body; raises the ProviderError that fits when it is none."""
    try:
        return decode_json(body)
    except ValueError:
        start = body.lstrip()[:1]
    if start in (b"{", b"["):
        raise ProviderError(Failure(Kind.NETWORK, "the answer ended in the middle"))
    words = " ".join(body[:300].decode("utf-8", "replace").split())
    raise ProviderError(Failure(Kind.NOT_API, f"the answer is not JSON: {words}"))


def as_dict(value: Any) -> dict[str, Any]:
    """The value if it is an object, else an empty one: providers send null where one is due."""
    return value if isinstance(value, dict) else {}


def as_dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def open_list(fields: dict[str, Any], last: str) -> bytes:
    """The fields as JSON, followed by the start of one more: the list for the messages."""
    head = encode_json(fields)[:-1]
    return head + (b"," if fields else b"") + b'"' + last.encode() + b'":['


def has_no_content(sink: ResponseSink) -> bool:
    """Whether an answer has neither a call nor visible text."""
    message = sink.build_message(Target("", "", ""))
    return not message.calls and not message.text.strip()


def as_index(value: Any) -> int:
    return value if isinstance(value, int) else 0
