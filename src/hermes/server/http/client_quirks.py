"""Clients that misread parts of the protocols, recognised by the headers they send."""

from collections.abc import Mapping

_SDK_HEADER = "X-Stainless-Lang"
"""Sent by every official SDK."""
_CHUNK_READERS = tuple(
    "ai-sdk/ async-openai go-http-client langchain litellm openai/ opencode".split()
)
"""Clients that read every event of a chat stream as a chunk, whatever its name."""
_CALL_RUNNERS = ("agents/", "ai-sdk/", "codex", "opencode")
"""Clients that try to run every function call they see. Shown a call that has already run, they
run it again, or report an unknown function, endlessly."""


def reads_only_chunks(headers: Mapping[str, str]) -> bool:
    return _SDK_HEADER in headers or _matches_client(headers, _CHUNK_READERS)


def runs_every_call(headers: Mapping[str, str]) -> bool:
    return _matches_client(headers, _CALL_RUNNERS)


def _matches_client(headers: Mapping[str, str], marks: tuple[str, ...]) -> bool:
    client = f"{headers.get('User-Agent', '')} {headers.get('Originator', '')}".lower()
    return any(mark in client for mark in marks)
