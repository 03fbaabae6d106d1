"""The body of a successful answer, read as what it is: a stream, one JSON object, or neither."""

from __future__ import annotations

import re

from hermes.core.errors import Failure, Kind, ProviderError
from hermes.core.response_sink import ResponseSink
from hermes.llm.http.transport import Exchange
from hermes.llm.http.watchdog import Watchdog
from hermes.llm.response_builder import MAX_BYTES
from hermes.llm.wire import Decoder

_BLANK = b"\xef\xbb\xbf \t\r\n"
_FIELD = re.compile(rb"(?:data|event|id|retry)?:")
_PAGE = re.compile(rb"<(?:!doctype|!--|html|head|body|\?xml)", re.IGNORECASE)
_ENOUGH = 9
"""Bytes that tell how a body begins: the longest of these beginnings."""
_AFTER_THE_END = 5.0
"""Seconds for what may follow the reason why it stopped: usage, and the end of the body."""
_MAX_WHOLE = 2 * MAX_BYTES
EVENTS = "text/event-stream"
FRAMES = "application/vnd.amazon.eventstream"


class Reading:
    """Content types lie in both directions, so the first bytes decide. Only decoded events feed
    the watchdog: a stream of nothing but comments is a silent one."""

    def __init__(
        self,
        exchange: Exchange,
        watchdog: Watchdog,
        decoder: Decoder,
        sink: ResponseSink,
        stream_type: str,
    ) -> None:
        self._exchange = exchange
        self._watchdog = watchdog
        self._decoder = decoder
        self._sink = sink
        self._stream_type = stream_type
        self._mode = ""
        """Undecided, then `stream` or `whole`."""
        self._held: list[bytes] = []
        self._size = 0
        self._seen = 0
        self._ended = -1
        """How much there was when the provider first said why it stopped."""
        self._went_on = False

    async def step(self) -> bool:
        """Take in what has arrived; False at the end of the answer. Raises ProviderError; what
        had been received is in the Answer by then."""
        try:
            data = await self._watchdog.wait(self._exchange.read())
        except ProviderError as error:
            return self._cut(error)
        if not data:
            self._end()
            return False
        if self._mode == "stream":
            self._feed(data)
        else:
            self._hold(data)
        return True

    def _feed(self, data: bytes) -> None:
        decoder = self._decoder
        try:
            decoder.feed(data)
        finally:
            if decoder.activity != self._seen:
                self._seen = decoder.activity
                self._watchdog.event()
                if decoder.ended and not self._went_on:
                    self._hurry()

    def _hurry(self) -> None:
        """Little follows the reason why it stopped. Some give it with every piece: when there is
        more of the answer behind it, it was none."""
        if self._ended < 0:
            self._ended = self._sink.size
            self._watchdog.hurry(_AFTER_THE_END)
        elif self._sink.size > self._ended:
            self._went_on = True
            self._watchdog.relax()

    def _hold(self, data: bytes) -> None:
        if not self._held:
            # Blank lines keep a connection alive while a request waits its turn. A byte order
            # mark may be cut anywhere: what is left of one would spoil the first line.
            data = data.lstrip(_BLANK)
            if not data:
                return
        self._held.append(data)
        self._size += len(data)
        if self._mode == "whole":
            self._watchdog.event()
            if self._size > _MAX_WHOLE:
                raise ProviderError(Failure(Kind.ANSWER_TOO_LARGE, "the answer is too large"))
            return
        so_far = b"".join(self._held)
        self._mode = self._guess(so_far, last=False)
        if self._mode == "stream":
            self._held.clear()
            self._feed(so_far)

    def _guess(self, data: bytes, *, last: bool) -> str:
        """How to read a body that begins like this; "" when more of it must be seen."""
        start = data.lstrip(_BLANK)
        kind = self._exchange.content_type
        if kind == FRAMES or (self._stream_type == FRAMES and data[:1] == b"\0"):
            return "stream"
        if start[:1] in (b"{", b"["):
            return "whole"
        sure = last or len(start) >= _ENOUGH
        if start[:1] == b"<" and not sure:
            return ""
        if _PAGE.match(start) or (start[:1] == b"<" and kind != EVENTS):
            raise self._no_api("a web page")
        if kind == EVENTS or _FIELD.match(start):
            return "stream"
        if sure:
            raise self._no_api("text")
        return ""

    def _end(self) -> None:
        if not self._mode:
            data = b"".join(self._held)
            if not data.strip(_BLANK) and self._exchange.content_type not in (EVENTS, FRAMES):
                raise ProviderError(
                    Failure(Kind.NETWORK, f"{self._exchange.host} sent an empty answer")
                )
            self._mode = self._guess(data, last=True) if data.strip(_BLANK) else "stream"
            if self._mode == "stream" and data:
                self._held.clear()
                self._feed(data)
        if self._mode == "stream":
            self._decoder.close()
        else:
            self._decoder.whole(b"".join(self._held))

    def _cut(self, error: ProviderError) -> bool:
        """The connection broke or was given up. After the provider's last word that is no loss."""
        if self._mode != "stream":
            raise error
        if self._decoder.ended and not self._went_on:
            self._decoder.close()
            return False
        self._sink.stop = "died"
        raise error

    def _no_api(self, what: str) -> ProviderError:
        host = self._exchange.host
        return ProviderError(Failure(Kind.NOT_API, f"{host} answered with {what}, not an API"))


def can_unframe() -> bool:
    """Whether streams in Amazon's frames can be read here."""
    from hermes.llm.auth import aws

    return aws.installed()
