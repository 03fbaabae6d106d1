"""Decompresses a response in bounded chunks."""

import zlib
from collections.abc import Iterator
from typing import Any

from hermes.net.errors import EgressError

ACCEPTED_ENCODINGS = "gzip, deflate"
"""What a request may offer: only encodings that can be decompressed here under a limit."""
_CHUNK_SIZE = 256 * 1024


class Decompressor:
    """A decoder for one Content-Encoding; `feed` yields bounded chunks."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise EgressError("The response uses a compression that was not offered.")
        self._plain = name in ("", "identity")
        self._deflate = name == "deflate"
        self._decoder: Any = None
        self._ended = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._plain:
            yield data
            return
        full = False
        while (data or full) and not self._ended:
            if self._decoder is None:
                self._decoder = zlib.decompressobj(self._window_bits(data))
            try:
                chunk = self._decoder.decompress(data, _CHUNK_SIZE)
            except zlib.error:
                raise EgressError("The compressed response is damaged.") from None
            yield chunk
            full = len(chunk) == _CHUNK_SIZE
            data = self._decoder.unconsumed_tail
            if self._decoder.eof:
                # Several gzip members may follow each other; anything else is padding.
                data = self._decoder.unused_data
                self._ended = bool(self._deflate or (data and data[0] != 0x1F))
                self._decoder, full = None, False

    def finish(self) -> None:
        """To be called at the end of the body. Raises EgressError when the compressed data is
        incomplete."""
        if self._decoder is not None:
            raise EgressError("The response ended too early.")

    def _window_bits(self, data: bytes) -> int:
        if not self._deflate:
            return 31
        return 15 if data[0] & 0x0F == 8 else -15  # some servers omit the zlib header
