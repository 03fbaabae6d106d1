"""What the decoders of server-sent events share: reading streams and documents, and errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.response_sink import ResponseSink
from hermes.llm.errors.classifier import classify_error
from hermes.llm.wire.convert import as_dict, as_text, parse_document
from hermes.llm.wire.lenient_json import decode_json, to_text
from hermes.llm.wire.sse import SseParser


class BaseDecoder:
    """Hands the events of a stream to `_take`, a complete body to `_body`, and the end of either
    to `_end`. Nothing behind `[DONE]` is looked at."""

    def __init__(self, sink: ResponseSink) -> None:
        self.activity = 0
        self.skipped = 0
        """Events that were no JSON; the stream went on."""
        self._sink = sink
        self._sse = SseParser()
        self._done = False

    @property
    def is_finished(self) -> bool:
        """Whether the provider has said its last word: what breaks after it is no loss."""
        return self._done

    def feed(self, data: bytes) -> None:
        events = self._sse.feed(data)
        if events and not self._done:
            self._decode_events(events)

    def close(self) -> None:
        events = self._sse.close()
        if events and not self._done:
            self._decode_events(events)
        self._end_answer(complete=False)

    def decode_document(self, body: bytes) -> None:
        value = parse_document(body)
        self.activity += 1
        if not isinstance(value, dict):
            raise ProviderError(Failure(Kind.NOT_API, "the answer is not a JSON object"))
        self._decode_value(value)
        self._end_answer(complete=True)

    def _decode_events(self, events: list[tuple[str, bytes]]) -> None:
        raise NotImplementedError

    def _decode_value(self, value: dict[str, Any]) -> None:
        raise NotImplementedError

    def _end_answer(self, *, complete: bool) -> None:
        raise NotImplementedError

    def _decode_odd_event(self, raw: bytes) -> Any:
        """An event the typed decoder refused: `[DONE]`, no JSON, or JSON of an unexpected shape."""
        if raw.strip() == b"[DONE]":
            self._done = True
            return None
        try:
            return decode_json(raw)
        except ValueError:
            self.skipped += 1
            return None


def can_stream() -> bool:
    """Server-sent events need nothing that could be missing."""
    return True


def read_error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    """(code, message, param) of an error body in any of the shapes servers of these protocols,
    and the proxies before them, use."""
    told, message = _find_error_object(body)
    raw = as_dict(told.get("metadata")).get("raw")
    words = ": ".join([to_text(w) for w in (message, raw) if w])
    code = next((told[k] for k in ("code", "status_code", "type", "error_type") if told.get(k)), "")
    if not words and not isinstance(as_dict(body).get("error"), dict):
        return "", "", ""
    return to_text(code), words, as_text(told.get("param"))


def _find_error_object(body: Any) -> tuple[dict[str, Any], Any]:
    """The object that tells about the error, and its words."""
    if isinstance(body, list) and body:
        body = body[0]
    outer = as_dict(body)
    inner = outer.get("error") or outer.get("errors")
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if isinstance(inner, str) and inner:
        return outer, inner
    told = as_dict(inner) or as_dict(outer.get("base_resp")) or outer
    names = ("message", "Message", "detail", "msg", "status_msg")
    if told.get("status_code") == 0:
        return outer, None
    return told, next((told[n] for n in names if told.get(n)), None)


def find_error_status(body: Any) -> int | None:
    """The HTTP status an in-band error speaks of."""
    told, _ = _find_error_object(body)
    for key in ("status_code", "http_status_code", "status", "code"):
        value = told.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def raise_error(body: Any) -> NoReturn:
    """Raise what an in-band error body says."""
    code, message, param = read_error(body, {})
    raise ProviderError(
        classify_error(status=find_error_status(body), code=code, message=message, param=param)
    )
