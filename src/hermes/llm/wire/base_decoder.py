"""What decoders of the chat and responses protocols share: bodies read as what they are, errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.response_sink import ResponseSink
from hermes.llm.errors.classifier import classify
from hermes.llm.wire import lenient_json as jsonic
from hermes.llm.wire.convert import parsed, record, string
from hermes.llm.wire.sse import MAX_EVENT, Parser

_BLANK = b"\xef\xbb\xbf \t\r\n"
_EVENTS = re.compile(rb"(?:^|[\r\n])(?:data|event):")


class Reader:
    """Hands the events of a stream to `_take`, a complete body to `_body`, and the end of either
    to `_end`. Content types lie: a stream that is one JSON object is read as such, and the
    reverse. Nothing behind `[DONE]` is looked at."""

    def __init__(self, sink: ResponseSink) -> None:
        self.activity = 0
        self.skipped = 0
        """Events that were no JSON; the stream went on."""
        self._sink = sink
        self._sse = Parser()
        self._begun = False
        self._plain: list[bytes] | None = None
        self._size = 0
        self._near = b""
        self._done = False

    @property
    def ended(self) -> bool:
        """Whether the provider has said its last word: what breaks after it is no loss."""
        return self._done

    def feed(self, data: bytes) -> None:
        if not self._begun:
            start = data.lstrip(_BLANK)[:1]
            self._begun = bool(start)
            if start and start in b"{[<":
                self._plain = []
        if self._plain is not None:
            data = self._hold(self._plain, data)
        events = self._sse.feed(data)
        if events and not self._done:
            self._take(events)

    def _hold(self, plain: list[bytes], data: bytes) -> bytes:
        """Keep what looks like one JSON object, or like a page, until it ends or turns out to be
        a stream behind a line of garbage: then all of it is due."""
        plain.append(data)
        self.activity += 1
        self._size += len(data)
        if self._size > MAX_EVENT:
            raise ProviderError(Failure(Kind.ANSWER_TOO_LARGE, "the answer is too large"))
        near = b" " + self._near + data
        self._near = near[-8:]
        if not _EVENTS.search(near):
            return b""
        self._plain = None
        return b"".join(plain)

    def close(self) -> None:
        if self._plain is not None:
            self.whole(b"".join(self._plain))
            return
        events = self._sse.close()
        if events and not self._done:
            self._take(events)
        self._end(complete=False)

    def whole(self, body: bytes) -> None:
        try:
            value = jsonic.loads(body)
        except ValueError:
            if not _EVENTS.search(body):
                parsed(body)  # raises what it is instead
            self._take(self._sse.feed(body) + self._sse.close())
            self._end(complete=False)
            return
        self.activity += 1
        if not isinstance(value, dict):
            raise ProviderError(Failure(Kind.NOT_API, "the answer is not a JSON object"))
        self._body(value)
        self._end(complete=True)

    def _take(self, events: list[tuple[str, bytes]]) -> None:
        raise NotImplementedError

    def _body(self, value: dict[str, Any]) -> None:
        raise NotImplementedError

    def _end(self, *, complete: bool) -> None:
        raise NotImplementedError

    def _odd(self, raw: bytes) -> Any:
        """An event the typed decoder refused: `[DONE]`, no JSON, or JSON of an unexpected shape."""
        if raw.strip() == b"[DONE]":
            self._done = True
            return None
        try:
            return jsonic.loads(raw)
        except ValueError:
            self.skipped += 1
            return None


def error(body: Any, headers: Mapping[str, str]) -> tuple[str, str, str]:
    """(code, message, param) of an error body in any of the shapes servers of these protocols,
    and the proxies before them, use."""
    told, message = _told(body)
    raw = record(told.get("metadata")).get("raw")
    words = ": ".join([jsonic.text(w) for w in (message, raw) if w])
    code = next((told[k] for k in ("code", "status_code", "type", "error_type") if told.get(k)), "")
    if not words and not isinstance(record(body).get("error"), dict):
        return "", "", ""
    return jsonic.text(code), words, string(told.get("param"))


def _told(body: Any) -> tuple[dict[str, Any], Any]:
    """The object that tells about the error, and its words."""
    if isinstance(body, list) and body:
        body = body[0]
    outer = record(body)
    inner = outer.get("error") or outer.get("errors")
    if isinstance(inner, list) and inner:
        inner = inner[0]
    if isinstance(inner, str) and inner:
        return outer, inner
    told = record(inner) or record(outer.get("base_resp")) or outer
    names = ("message", "Message", "detail", "msg", "status_msg")
    if told.get("status_code") == 0:
        return outer, None
    return told, next((told[n] for n in names if told.get(n)), None)


def status_of(body: Any) -> int | None:
    """The HTTP status an in-band error speaks of."""
    told, _ = _told(body)
    for key in ("status_code", "http_status_code", "status", "code"):
        value = told.get(key)
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int) and 400 <= value <= 599:
            return value
    return None


def fail(body: Any) -> NoReturn:
    """Raise what an in-band error body says."""
    code, message, param = error(body, {})
    raise ProviderError(classify(status=status_of(body), code=code, message=message, param=param))
