"""Reads the body of a successful response, and tells the watchdog what arrives."""

from hermes.core.errors import ProviderError
from hermes.core.provider import ResponseSink
from hermes.llm.http.transport import Exchange
from hermes.llm.http.watchdog import Watchdog
from hermes.llm.wire import Decoder
from hermes.llm.wire.body_reader import BodyReader

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
