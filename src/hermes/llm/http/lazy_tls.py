"""Imports aiohttp without reading the CA certificates; the first TLS connection reads them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def load_aiohttp() -> Any:
    """The module aiohttp, imported on first use."""
    found = sys.modules.get("aiohttp")
    if found is not None:
        return found
    with _postpone_certificates():
        import aiohttp
    return aiohttp


@contextmanager
def _postpone_certificates() -> Iterator[None]:
    """aiohttp creates two TLS contexts when it is imported and reads the CA files into both: 45 ms,
    more than half of its import, and wasted when the endpoint is plain http. A context that asks
    for the default certificates meanwhile gets them when it is first used. From then on it is an
    ordinary context, so other users of aiohttp cannot tell the difference."""
    import ssl

    class LazyContext(ssl.SSLContext):
        def _load_now(self) -> ssl.SSLContext:
            self.set_default_verify_paths()
            self.__class__ = ssl.SSLContext  # type: ignore[assignment]
            return self

        def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
            return self._load_now().wrap_bio(*args, **kwargs)

        def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
            return self._load_now().wrap_socket(*args, **kwargs)

        def get_ca_certs(self, *args: Any, **kwargs: Any) -> Any:
            return self._load_now().get_ca_certs(*args, **kwargs)

        def cert_store_stats(self) -> dict[str, int]:
            return self._load_now().cert_store_stats()

    def mark_lazy(context: ssl.SSLContext) -> None:
        context.__class__ = LazyContext

    # A method of the C base class: setting it here shadows that one, deleting it restores it.
    ssl.SSLContext.set_default_verify_paths = mark_lazy  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        del ssl.SSLContext.set_default_verify_paths
