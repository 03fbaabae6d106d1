"""Reads the body of a response, and tells the watchdog what arrives."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from hermes.core.errors import ProviderError
from hermes.core.provider import ResponseSink
from hermes.llm.errors.classifier import MAX_MESSAGE, classify_error, summarize_body
from hermes.llm.http.transport import Exchange
from hermes.llm.http.watchdog import Watchdog
from hermes.llm.wire import Decoder
from hermes.llm.wire.body_reader import BodyReader

ReadError: TypeAlias = Callable[[Any, Mapping[str, str]], tuple[str, str, str]]
MAX_ERROR = 256 * 1024
_HINTS = re.compile(rb'"(n_ctx|retryDelay|resets_in_seconds|resets_at)"\s*:\s*"?([\d.]+s?)"?')
"""Facts that an error body states outside its message."""
_AFTER_THE_END = 5.0
"""Seconds for what may follow the stop reason: usage and the end of the body."""


class ResponseReader:
    """Only decoded events count as activity: a stream of nothing but comments is silent."""

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
        self._body = BodyReader(decoder, exchange.content_type, stream_type, exchange.host)
        self._activity = 0
        self._size_at_stop = -1
        """Size of the answer when the provider first gave a stop reason."""
        self._went_on = False

    async def read_more(self) -> bool:
        """Take in what has arrived; False at the end of the answer. When it raises ProviderError,
        everything received before is in the sink."""
        try:
            data = await self._watchdog.wait(self._exchange.read())
        except ProviderError as error:
            return self._end_early(error)
        if not data:
            self._body.close()
            return False
        decoder = self._decoder
        try:
            self._body.feed(data)
        finally:
            if decoder.activity != self._activity or self._body.form == "document":
                self._activity = decoder.activity
                self._watchdog.report_event()
                if decoder.is_finished and not self._went_on:
                    self._expect_end()
        return True

    def _expect_end(self) -> None:
        """Expect the end soon after a stop reason. Some providers send one with every piece: if
        more of the answer follows, it is ignored."""
        if self._size_at_stop < 0:
            self._size_at_stop = self._sink.size
            self._watchdog.shorten_silence(_AFTER_THE_END)
        elif self._sink.size > self._size_at_stop:
            self._went_on = True
            self._watchdog.restore_silence()

    def _end_early(self, error: ProviderError) -> bool:
        """The connection broke or timed out. After the stop reason nothing is lost."""
        if self._body.form != "stream":
            raise error
        if self._decoder.is_finished and not self._went_on:
            self._decoder.close()
            return False
        self._sink.stop = "died"
        raise error


async def raise_for_status(exchange: Exchange, watchdog: Watchdog, read_error: ReadError) -> None:
    """Raise the classified error of a response whose status is not a success. `read_error`: finds
    the code, the message and the parameter in its body."""
    status = exchange.status
    if 200 <= status < 300:
        return
    raw = await watchdog.wait(exchange.read_all(MAX_ERROR))
    code, message, param = "", "", ""
    try:
        body = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        message = summarize_body(raw)
    else:
        code, message, param = read_error(body, exchange.headers)
        if not message:
            message = raw[:MAX_MESSAGE].decode("utf-8", "replace")
    if 300 <= status < 400:
        message = f"{exchange.host} redirects to {exchange.headers.get('Location', 'nowhere')}"
    for name, value in _HINTS.findall(raw):
        if value.decode() not in message:
            message += f" ({name.decode()}: {value.decode()})"
    headers = exchange.headers
    raise ProviderError(
        classify_error(status=status, code=code, message=message, param=param, headers=headers)
    )
