"""Undoes the compression of an answer piece by piece, never making more than was asked for."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from hermes.net.errors import EgressError

ACCEPTED_ENCODINGS = "gzip, deflate"
"""What a request may offer: only what can be undone here under a cap."""
_CHUNK_SIZE = 256 * 1024


class Decompressor:
    """A decoder for one Content-Encoding; `feed` gives bounded pieces."""

    def __init__(self, encoding: str) -> None:
        name = encoding.strip().lower()
        if name not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise EgressError("The answer is compressed in a way that was not offered.")
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
                piece = self._decoder.decompress(data, _CHUNK_SIZE)
            except zlib.error:
                raise EgressError("The answer's compression is broken.") from None
            yield piece
            full = len(piece) == _CHUNK_SIZE
            data = self._decoder.unconsumed_tail
            if self._decoder.eof:
                # Several members may follow each other; anything else after the end is padding.
                data = self._decoder.unused_data
                self._ended = bool(self._deflate or (data and data[0] != 0x1F))
                self._decoder, full = None, False

    def finish(self) -> None:
        """The body is over. EgressError: its compressed form was not."""
        if self._decoder is not None:
            raise EgressError("The answer broke off in the middle.")

    def _window_bits(self, data: bytes) -> int:
        if not self._deflate:
            return 31
        return 15 if data[0] & 0x0F == 8 else -15  # some servers leave the zlib header out
