"""Downloads a file, resuming where it broke off, and never more than expected."""

import asyncio
import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from hermes.core.errors import HermesError, ProviderError
from hermes.llm.http.transport import Exchange, Transport
from hermes.version import VERSION

ANSWER_SECONDS = 20.0
SILENT_SECONDS = 60.0
TRIES = 4
"""Attempts without progress before a source is given up."""
_HOPS = 5
_LARGEST_PAGE = 16 * 2**20
_RANGE = re.compile(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)")


class SourceError(HermesError):
    """This source does not have the file, or not as expected; another one may."""


class Downloader:
    """Follows redirects, but never from https to http; the credentials in an address go to its own
    host only."""

    def __init__(self, transport: Transport, address: str = "") -> None:
        self._transport = transport
        parts = urlsplit(address)
        self._origin = _url_origin(address)
        self._login = ""
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._login = "Basic " + b64encode(pair.encode()).decode()

    async def fetch_page(self, url: str, accept: str) -> tuple[bytes, str, str]:
        """A small body, its content type, and the final address after redirects."""
        exchange, final = await self._open_response(url, {"Accept": accept})
        try:
            if exchange.status != 200:
                raise SourceError(f"{exchange.host} answered {exchange.status}")
            async with asyncio.timeout(SILENT_SECONDS):
                return await exchange.read_all(_LARGEST_PAGE), exchange.content_type, final
        except TimeoutError:
            raise SourceError(f"{exchange.host} went silent") from None
        except ProviderError as error:
            raise SourceError(error.failure.message) from None
        finally:
            exchange.close()

    async def download_file(
        self, url: str, target: Path, limit: int, *, report: Callable[[int], None]
    ) -> None:
        """Append the missing part of `to`. If it raises, what has arrived is kept for the next
        try."""
        failures = 0
        while True:
            before = _file_size(target)
            try:
                if await self._download_more(url, target, limit, report):
                    return
                reason = "it ended too early"
            except SourceError:
                raise
            except (ProviderError, TimeoutError) as error:
                reason = str(error) or f"{urlsplit(url).hostname} went silent"
            failures = 0 if _file_size(target) > before else failures + 1
            if failures >= TRIES:
                raise SourceError(reason)
            await asyncio.sleep(0.2 * failures)

    async def _download_more(
        self, url: str, target: Path, limit: int, report: Callable[[int], None]
    ) -> bool:
        """One request; True when the file is complete according to the server."""
        present = _file_size(target)
        headers = {"Range": f"bytes={present}-"} if present else {}
        exchange, _ = await self._open_response(url, headers)
        try:
            begin, total = _content_range(exchange, present)
            if exchange.status == 416 and total == present:
                return True
            if begin is None or (total is not None and total > limit):
                _delete_file(target)
                if begin is None and present:
                    return False
                raise SourceError(f"{exchange.host} offers no file, or one that is too large")
            with target.open("r+b" if present and begin else "wb") as file:
                file.seek(begin)
                size = begin
                while data := await asyncio.wait_for(exchange.read(), SILENT_SECONDS):
                    size += len(data)
                    if size > limit:
                        raise SourceError(f"{exchange.host} sends more than expected")
                    file.write(data)
                    report(size)
            return total is None or size >= total
        finally:
            exchange.close()

    async def _open_response(self, url: str, headers: dict[str, str]) -> tuple[Exchange, str]:
        for _ in range(_HOPS):
            url = strip_login(url)
            sent = {"User-Agent": f"hermes/{VERSION}", "Accept-Encoding": "identity", **headers}
            if self._login and _url_origin(url) == self._origin:
                sent["Authorization"] = self._login
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    exchange = await self._transport.send("GET", url, headers=sent)
            except TimeoutError:
                raise SourceError(f"{urlsplit(url).hostname} does not answer") from None
            except ProviderError as error:
                raise SourceError(error.failure.message) from None
            if exchange.status not in (301, 302, 303, 307, 308):
                return exchange, url
            following = urljoin(url, exchange.headers.get("Location", ""))
            exchange.close()
            safe = following.startswith("https://") or not url.startswith("https://")
            if not following.startswith(("http://", "https://")) or not safe:
                raise SourceError(f"{exchange.host} redirects to an unsafe address")
            url = following
        raise SourceError(f"{urlsplit(url).hostname} redirects too often")


def _url_origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _content_range(exchange: Exchange, present: int) -> tuple[int | None, int | None]:
    """The offset of the body in the file (None: it does not continue what is there), and the size
    of the file if the server states it."""
    match = _RANGE.match(exchange.headers.get("Content-Range", ""))
    total = int(match[2]) if match and match[2] != "*" else None
    if exchange.status == 206 and match and match[1] and int(match[1]) == present:
        return present, total
    if exchange.status == 200:
        length = exchange.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    if exchange.status in (206, 416):
        return None, total
    raise SourceError(f"{exchange.host} answered {exchange.status}")


def strip_login(url: str) -> str:
    """The address without credentials, which go into a header."""
    parts = urlsplit(url)
    if "@" not in parts.netloc:
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _delete_file(file: Path) -> None:
    file.unlink(missing_ok=True)


def _file_size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
