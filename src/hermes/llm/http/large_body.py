"""Request bodies above 1 MB, which aiohttp would warn about; relies on its private `_size`."""

from typing import Any

LARGE_BYTES = 2**20
"""Above this size aiohttp warns about bytes as a body."""


def wrap_body(body: bytes) -> Any:
    """The body in the form aiohttp accepts without a warning. It warns because writing takes a
    moment; reading the body in a thread, as it suggests, takes longer."""
    if len(body) < LARGE_BYTES:
        return body or None
    import aiohttp

    class LargeBody(aiohttp.BytesPayload):
        def __init__(self, value: bytes) -> None:
            aiohttp.Payload.__init__(self, value, content_type="application/json")
            self._size = len(value)

    return LargeBody(body)
