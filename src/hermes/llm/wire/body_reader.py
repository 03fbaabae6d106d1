"""How a response body is read, decided once, by its first bytes: stream, document or neither."""

import re
from collections.abc import Callable
from typing import Literal

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.llm.wire import Decoder

MAX_DOCUMENT = 64 * 1024 * 1024
_EVENTS = "text/event-stream"
_FRAMES = "application/vnd.amazon.eventstream"
_BLANK = b"\xef\xbb\xbf \t\r\n"
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
_EVENT_LINE = re.compile(rb"[\r\n](?:data|event):")
_PAGE = re.compile(rb"<(?:!doctype|!--|html|head|body|\?xml)", re.IGNORECASE)
_ENOUGH = 9
"""Bytes that tell how a body begins: the longest of these beginnings."""


class BodyReader:
    """Content types lie in both directions, so the first bytes decide. What looks like a document
    is held until it ends, or turns out to be a stream behind a line of garbage."""

    def __init__(self, decoder: Decoder, content_type: str, stream_type: str, host: str) -> None:
        self._decoder = decoder
        self._content_type = content_type
        self._stream_type = stream_type
        self._host = host
        self._held: list[bytes] = []
        self._size = 0
        self._near = b""
        self.form: Literal["undecided", "document", "stream"] = "undecided"
        self.feed: Callable[[bytes], None] = self._inspect_start
        """Takes the next bytes of the body."""

    def close(self) -> None:
        """The body ends here. Raises ProviderError when it is no answer."""
        if self.form == "undecided":
            if self._held:
                self._decide_form(b"".join(self._held), last=True)
            elif self._content_type in (_EVENTS, _FRAMES):
                self.form = "stream"
            else:
                raise ProviderError(Failure(Kind.NETWORK, f"{self._host} sent an empty answer"))
        if self.form == "stream":
            self._decoder.close()
        else:
            self._decoder.decode_document(b"".join(self._held))

    def _inspect_start(self, data: bytes) -> None:
        if not self._held:
            # Blank lines keep a connection alive while a request waits its turn. A byte order
            # mark may be cut anywhere: what is left of one would spoil the first line.
            data = data.lstrip(_BLANK)
            if not data:
                return
        self._held.append(data)
        self._decide_form(b"".join(self._held), last=False)

    def _decide_form(self, start: bytes, *, last: bool) -> None:
        """Go on as what begins like this; unless it is the last of it, more may have to come."""
        kind = self._content_type
        sure = last or len(start) >= _ENOUGH
        if start[:1] in (b"{", b"["):
            self._begin_document(start)
        elif kind == _FRAMES or (self._stream_type == _FRAMES and start[:1] == b"\0"):
            self._begin_stream(start)
        elif start[:1] == b"<":
            if sure and (kind != _EVENTS or _PAGE.match(start)):
                raise self._not_api("a web page")
            if sure:
                self._begin_document(start)
        elif kind == _EVENTS or _FIELD.match(start):
            self._begin_stream(start)
        elif sure:
            raise self._not_api("text")

    def _begin_document(self, start: bytes) -> None:
        self._held.clear()
        self.form = "document"
        self.feed = self._hold_document
        self._hold_document(start)

    def _hold_document(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        if self._size > MAX_DOCUMENT:
            raise ProviderError(Failure(Kind.ANSWER_TOO_LARGE, "the answer is too large"))
        near = self._near + data
        self._near = near[-8:]
        if _EVENT_LINE.search(near):  # JSON has no such line
            self._begin_stream(b"".join(self._held))

    def _begin_stream(self, start: bytes) -> None:
        self._held.clear()
        self.form = "stream"
        self.feed = self._decoder.feed
        self.feed(start)

    def _not_api(self, what: str) -> ProviderError:
        text = f"{self._host} answered with {what}, not an API"
        return ProviderError(Failure(Kind.NOT_API, text))
