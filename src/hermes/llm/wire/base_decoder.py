"""The base of decoders that read server-sent events, and the error bodies of most servers."""

from collections.abc import Mapping
from typing import Any, NoReturn

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.provider import ResponseSink
from hermes.llm.errors.classifier import classify_error
from hermes.llm.wire.convert import as_dict, as_text, parse_document
from hermes.llm.wire.lenient_json import decode_json, to_text
from hermes.llm.wire.sse import SseParser


class BaseDecoder:
    """Hands each event of a stream to `_decode_event`, a document to `_decode_value`, and the end
    of either to `_end_answer`. Everything after `[DONE]` is ignored."""

    def __init__(self, sink: ResponseSink) -> None:
        self.activity = 0
        self.skipped = 0
        """Events that were not JSON."""
        self._sink = sink
        self._sse = SseParser()
        self._done = False
        self._reason = ""
        """Why the provider stopped; empty: it has not said so yet."""

    @property
    def is_finished(self) -> bool:
        """Whether the stop reason has come: nothing is lost if the stream breaks off after it."""
        return self._done or self._reason != ""

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
        for name, raw in events:
            try:
                event = decode_json(raw)
            except ValueError:
                event = self._decode_odd_event(raw)
            if self._done:
                return
            if isinstance(event, dict):
                self.activity += 1
                self._decode_event(name, event)

    def _decode_event(self, name: str, event: dict[str, Any]) -> None:
        raise NotImplementedError

    def _decode_value(self, value: dict[str, Any]) -> None:
        raise NotImplementedError

    def _end_answer(self, *, complete: bool) -> None:
        raise NotImplementedError

    def _decode_odd_event(self, raw: bytes) -> Any:
        """The value of an event that the typed decoder refused; None for `[DONE]` and non-JSON."""
        if raw.strip() == b"[DONE]":
            self._done = True
            return None
        try:
            return decode_json(raw)
        except ValueError:
            self.skipped += 1
            return None


def read_error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    """(code, message, param) of an error body, in any of the forms that servers and the proxies in
    front of them use."""
    error, message = _find_error_object(body)
    raw = as_dict(error.get("metadata")).get("raw")
    words = ": ".join([to_text(w) for w in (message, raw) if w])
    code = next(filter(None, map(error.get, ("code", "status_code", "type", "error_type"))), "")
    if not words and not isinstance(as_dict(body).get("error"), dict):
        return "", "", ""
    return to_text(code), words, as_text(error.get("param"))


def _find_error_object(body: Any) -> tuple[dict[str, Any], Any]:
    """The object that describes the error, and its message."""
    if isinstance(body, list) and body:
        body = body[0]
    outer = as_dict(body)
    inner = outer.get("error") or outer.get("errors")
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if isinstance(inner, str) and inner:
        return outer, inner
    error = as_dict(inner) or as_dict(outer.get("base_resp")) or outer
    if error.get("status_code") == 0:
        return outer, None
    names = ("message", "Message", "detail", "msg", "status_msg")
    return error, next(filter(None, map(error.get, names)), None)


def find_error_status(body: Any) -> int | None:
    """The HTTP status that an error inside an answer names."""
    error, _ = _find_error_object(body)
    for key in ("status_code", "http_status_code", "status", "code"):
        value = error.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def raise_error(body: Any) -> NoReturn:
    """Raise the classified error of a body inside an answer."""
    code, message, param = read_error(body, {})
    raise ProviderError(
        classify_error(status=find_error_status(body), code=code, message=message, param=param)
    )
