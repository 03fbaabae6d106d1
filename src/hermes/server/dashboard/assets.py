"""The static files of the pages: read once, compressed once, addressed by the hash of all."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

from msgspec import Struct

from hermes.server.http import web

_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; manifest-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": _CSP,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
STATIC = Path(__file__).parent / "static"
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".html": "text/html; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
_PAGE = "page.html"
_HASH_MARK = b"{assets}"


class Asset(Struct, frozen=True):
    content_type: str
    body: bytes
    """Compressed with gzip."""

    def build_response(self, request: web.BaseRequest, cache: str) -> web.Response:
        """Browsers all take gzip; who does not say so gets it plain."""
        headers = {
            **PAGE_HEADERS,
            "Content-Type": self.content_type,
            "Cache-Control": cache,
            "Vary": "Accept, Accept-Encoding",
        }
        if "gzip" not in request.headers.get("Accept-Encoding", ""):
            return web.Response(body=gzip.decompress(self.body), headers=headers)
        return web.Response(body=self.body, headers={**headers, "Content-Encoding": "gzip"})


class Assets:
    """All static files in memory; they are read when the first is asked for."""

    def __init__(self, folder: Path = STATIC) -> None:
        self._folder = folder
        self._files: dict[str, Asset] = {}
        self._hash = ""

    @property
    def hash(self) -> str:
        """Changes with any of the files."""
        self._load_files()
        return self._hash

    @property
    def page(self) -> Asset:
        self._load_files()
        return self._files[_PAGE]

    def find_asset(self, name: str) -> Asset | None:
        self._load_files()
        return None if name == _PAGE else self._files.get(name)

    def _load_files(self) -> None:
        if self._files:
            return
        files = [file for file in sorted(self._folder.iterdir()) if file.suffix in _TYPES]
        contents = {file.name: file.read_bytes() for file in files}
        digest = hashlib.sha256()
        for name, content in contents.items():
            digest.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        self._hash = digest.hexdigest()[:16]
        contents[_PAGE] = contents[_PAGE].replace(_HASH_MARK, self._hash.encode())
        for name, content in contents.items():
            kind = _TYPES[Path(name).suffix]
            self._files[name] = Asset(kind, gzip.compress(content, mtime=0))
