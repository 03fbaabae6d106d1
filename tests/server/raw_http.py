"""Requests as raw bytes, for tests of what an HTTP client would not send."""

from __future__ import annotations

from tests.kit.api import API_KEY

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}


def request_head(path: str, *lines: str, method: str = "POST", version: str = "1.1") -> bytes:
    first = f"{method} {path} HTTP/{version}"
    return "\r\n".join((first, *lines, "", "")).encode("utf-8", "surrogateescape")


def with_key(*lines: str) -> tuple[str, ...]:
    """These header lines after those of a valid request."""
    return ("Host: localhost", f"Authorization: Bearer {API_KEY}", *lines)


def status_of(response: bytes) -> int:
    assert response.startswith(b"HTTP/"), response[:100]
    return int(response.split()[1])
